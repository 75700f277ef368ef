"""The special tokens of a model's own tokenizer: texts that a server may take for an instruction when they stand in a
prompt.

They are read from the files beside the weights (``tokenizer_config.json``, ``tokenizer.json``,
``special_tokens_map.json``), or asked of a vLLM that tells (``/tokenizer_info``, which it does with
``--enable-tokenizer-info-endpoint``). Both give the same tokens for the same model and revision, so they belong to the
model's identity and need no digest of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from gavel.models.calls.retry import TRANSPORT_ERRORS
from gavel.models.calls.transport import Transport
from gavel.models.service import Service
from gavel.models.types import NO_TOKENS, SpecialTokens

ENDPOINT = "/tokenizer_info"
PATIENCE_S = 3.0
_FILES = ("tokenizer_config.json", "tokenizer.json", "special_tokens_map.json")
_TEMPLATE = "chat_template.jinja"
_SHORTEST = 3
"""Characters; shorter ones (``!`` and line breaks serve as padding somewhere) are ordinary text."""
_OK = 200


def read_special_tokens(folder: Path) -> SpecialTokens:
    """Read the tokens of the tokenizer in a model's folder; ``NO_TOKENS`` where it has no such files, or none that can
    be read.
    """
    documents = {name: found for name in _FILES if (found := _read_json(folder / name))}
    try:
        template = (folder / _TEMPLATE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        template = ""
    return _make_tokens(documents, template)


def make_tokenizer_url(base_url: str) -> str:
    """Return where a server tells of its tokenizer, beside its ``/v1``."""
    return base_url.rstrip("/").removesuffix("/v1") + ENDPOINT


async def ask_special_tokens(transport: Transport, base_url: str) -> SpecialTokens | None:
    """Ask a server for its tokenizer; ``NO_TOKENS`` where it does not tell, None where it did not answer and may be
    asked again.
    """
    try:
        answer = await transport.get(make_tokenizer_url(base_url), PATIENCE_S)
        found: Any = orjson.loads(answer.body) if answer.status == _OK else None
    except orjson.JSONDecodeError:
        return NO_TOKENS
    except TRANSPORT_ERRORS:
        return None
    return _make_tokens({ENDPOINT: found}, "") if isinstance(found, dict) else NO_TOKENS


def find_tokenizer_folder(service: Service, environment: Mapping[str, str]) -> Path | None:
    """Return the folder that holds the files of a service's tokenizer; None where they are not on this machine."""
    own = service.engine_args or {}
    model, revision = own.get("tokenizer", service.model), own.get("tokenizer_revision", service.revision)
    return find_snapshot(str(model), revision, environment)


def find_snapshot(model: str, revision: str | None, environment: Mapping[str, str]) -> Path | None:
    """Return the folder that holds a model's files: itself, or its snapshot in the hub's cache; None where there is
    none.
    """
    if model.startswith(("/", "./", "../", "~")):
        folder = Path(model).expanduser()
    elif revision:
        folder = _find_hub_cache(environment) / f"models--{model.replace('/', '--')}" / "snapshots" / revision
    else:
        return None
    return folder if folder.is_dir() else None


def _find_hub_cache(environment: Mapping[str, str]) -> Path:
    """Return where huggingface_hub keeps repositories, by its own variables."""
    if found := environment.get("HF_HUB_CACHE"):
        return Path(found)
    return Path(environment.get("HF_HOME") or "~/.cache/huggingface").expanduser() / "hub"


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _make_tokens(documents: Mapping[str, Mapping[str, Any]], template: str) -> SpecialTokens:
    """Keep what is special, and what the chat template writes: some tokenizers mark `<think>` as ordinary. Other added
    tokens are runs of blanks and tags of HTML, which answers may hold."""
    template += "".join(_iter_templates(found.get("chat_template") for found in documents.values()))
    tokens: set[str] = set()
    sources = []
    for name, document in documents.items():
        mine = {text for text, special in _iter_added(document) if _is_markup(text) and (special or text in template)}
        if mine:
            sources.append(name)
        tokens |= mine
    return SpecialTokens(tuple(sorted(tokens)), ", ".join(sources))


def _iter_templates(found: Iterable[Any]) -> Iterator[str]:
    for template in found:  # one text, or a list of named ones
        if isinstance(template, str):
            yield template
        elif isinstance(template, list):
            yield from (
                one["template"] for one in template if isinstance(one, dict) and isinstance(one.get("template"), str)
            )


def _iter_added(document: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the added tokens of a document, and whether they are special."""
    decoder, added = document.get("added_tokens_decoder"), document.get("added_tokens")
    entries: list[Any] = [
        *(decoder.values() if isinstance(decoder, dict) else ()),
        *(added if isinstance(added, list) else ()),
    ]
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("content"), str):
            yield entry["content"], entry.get("special") is True
    for name, value in document.items():
        if name.endswith("_token") or name in ("additional_special_tokens", "extra_special_tokens"):
            yield from ((text, True) for text in _iter_texts(value))


def _iter_texts(value: Any) -> Iterator[str]:
    """Yield the tokens of one entry: a text, an object with ``content``, or several of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and "content" in value:
        yield from _iter_texts(value["content"])
    elif isinstance(value, dict | Sequence):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _iter_texts(one)


def _is_markup(text: str) -> bool:
    return len(text) >= _SHORTEST and text == text.strip() and not text.replace(" ", "").isalnum()
