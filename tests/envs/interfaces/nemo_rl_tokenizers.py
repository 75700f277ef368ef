"""Tokenizers of released models, where this machine has them: their vocabularies and templates are not ours to ship.

``GAVEL_TOKENIZERS`` names a folder with ``chatml``, ``llama3`` and ``qwen3``, each with the tokenizer's files of a
checkpoint of that family (``tokenizer.json``, ``tokenizer_config.json``, ``chat_template.jinja``). The embedded model's
own is of the ChatML family.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gavel.models.pinned import find_default_cache

FAMILIES = ("chatml", "llama3", "qwen3")


def released(family: str) -> Any:
    """The tokenizer of a released model; skips where there is none."""
    transformers = pytest.importorskip("transformers", reason="no transformers in this environment")
    named = Path(os.environ["GAVEL_TOKENIZERS"], family) if "GAVEL_TOKENIZERS" in os.environ else None
    embedded = sorted(find_default_cache().glob("models/smollm2-*")) if family == "chatml" else []
    found = next(
        (folder for folder in (named, *embedded) if folder is not None and (folder / "tokenizer.json").is_file()), None
    )
    if found is None:
        pytest.skip(f"GAVEL_TOKENIZERS names no folder with {family}/tokenizer.json, a tokenizer of that family")
    return transformers.AutoTokenizer.from_pretrained(str(found))
