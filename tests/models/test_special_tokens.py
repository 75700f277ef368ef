"""The special tokens of a tokenizer are read from its files, or asked of its server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fault_server import FaultServer

from gavel.models.calls.client import ChatClient
from gavel.models.calls.special_tokens import find_tokenizer_folder, read_special_tokens
from gavel.models.service import Service
from gavel.models.types import NO_TOKENS

DECODER = {
    "1": {"content": "<turn:a>", "special": True},
    "2": {"content": "<tool-use>", "special": False},
    "3": {"content": "<b>", "special": False},
    "4": {"content": "    ", "special": False},
}
CONFIG = {
    "added_tokens_decoder": DECODER,
    "chat_template": "{{ '<tool-use>' }} <b",
    "eos_token": {"content": "<turn:end>"},
    "pad_token": "!",
}
FILES: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("tokenizer_config.json", CONFIG, ("<tool-use>", "<turn:a>", "<turn:end>")),
    ("tokenizer.json", {"added_tokens": [{"content": "~~go~~", "special": True}, {"content": "<i>", "special": False}]}, ("~~go~~",)),  # noqa: E501
    ("special_tokens_map.json", {"bos_token": "<^s^>", "additional_special_tokens": ["<^a^>", {"content": "<^b^>"}]},
     ("<^a^>", "<^b^>", "<^s^>")),
    ("special_tokens_map.json", {"pad_token": "\n", "unk_token": "unk", "eos_token": None}, ()),
)  # fmt: skip


@pytest.mark.parametrize(("name", "document", "tokens"), FILES)
def test_special_tokens_and_those_of_the_template_are_read_and_ordinary_text_is_not(
    tmp_path: Path, name: str, document: Any, tokens: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(json.dumps(document))
    found = read_special_tokens(tmp_path)
    assert found.tokens == tokens
    assert found.source == (name if tokens else "")


def test_a_template_in_a_file_of_its_own_counts(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [{"content": "<deep-think>", "special": False}]})
    )
    assert read_special_tokens(tmp_path) == NO_TOKENS
    (tmp_path / "chat_template.jinja").write_text("{{ x }}<deep-think>")
    assert read_special_tokens(tmp_path).tokens == ("<deep-think>",)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[" * 100_000, "\ud800", '{"added_tokens": 3, "added_tokens_decoder": [1]}']
)
def test_files_that_cannot_be_read_give_no_tokens(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(text, "utf-8", "surrogatepass")
    assert read_special_tokens(tmp_path) == NO_TOKENS
    assert read_special_tokens(tmp_path / "nowhere") == NO_TOKENS


def test_the_folder_is_the_models_own_or_its_snapshot_or_that_of_another_tokenizer(tmp_path: Path) -> None:
    here = Service(mode="managed", model=str(tmp_path))
    hub = tmp_path / "models--org--m" / "snapshots" / ("a" * 40)
    hub.mkdir(parents=True)
    pinned = Service(mode="external", model="org/m", revision="a" * 40)
    assert find_tokenizer_folder(here, {}) == tmp_path
    assert find_tokenizer_folder(pinned, {"HF_HUB_CACHE": str(tmp_path)}) == hub
    assert find_tokenizer_folder(pinned, {"HF_HOME": str(tmp_path)}) is None
    assert (
        find_tokenizer_folder(Service(mode="managed", model="org/x", engine_args={"tokenizer": str(tmp_path)}), {})
        == tmp_path
    )


async def test_a_server_that_tells_is_asked_once_and_one_that_does_not_gives_none() -> None:
    async with FaultServer(tokenizer=CONFIG) as server, FaultServer() as silent:
        for each, wanted in ((server, ("<tool-use>", "<turn:a>", "<turn:end>")), (silent, ())):
            service = Service(mode="external", model="fake", base_url=each.base_url)
            async with ChatClient("general", service) as client:
                assert (await client.read_special_tokens()).tokens == wanted
                assert (await client.read_special_tokens()).tokens == wanted
            assert each.paths["/tokenizer_info"] == 1


async def test_a_server_that_was_away_is_asked_again() -> None:
    async with (
        FaultServer(tokenizer=CONFIG) as server,
        ChatClient("general", Service(mode="external", model="fake", base_url=server.base_url)) as client,
    ):
        await server.stop()
        assert await client.read_special_tokens() == NO_TOKENS
        await server.start()
        assert (await client.read_special_tokens()).source == "/tokenizer_info"
