"""The neutraliser against the special tokens of the embedded model's own tokenizer; needs the model to have been
prepared once.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.judges.assets import AssetStore
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import Rubric, RubricConfig
from gavel.models.pinned import find_default_cache

_FILES = sorted(find_default_cache().glob("models/smollm2-*/tokenizer.json"))
pytestmark = pytest.mark.skipif(
    not _FILES, reason="the embedded model is not prepared on this machine (judge=smollm2 prepares it)"
)

SPECIAL: tuple[str, ...] = (
    tuple(token["content"] for token in json.loads(_FILES[0].read_text())["added_tokens"] if token["special"])
    if _FILES
    else ("<s>",)
)
hostile = st.lists(
    st.one_of(st.sampled_from(SPECIAL), st.text(max_size=4), st.sampled_from("<>|\u200b")), max_size=12
).map("".join)


@pytest.fixture(scope="module")
def rubric(tmp_path_factory: pytest.TempPathFactory) -> Rubric:
    return make_rubric(
        RubricConfig("gavel/qa-abstention-v1"), AssetStore(tmp_path_factory.mktemp("cache"), offline=True)
    )


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers in this environment (extra `cpu`)")
    return tokenizers.Tokenizer.from_file(str(_FILES[0]))


def test_the_tokenizer_has_the_tokens_that_matter() -> None:
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= set(SPECIAL)


@given(text=hostile)
def test_no_special_token_stands_in_a_rendered_prompt(rubric: Rubric, text: str) -> None:
    prompt = rubric.render({"question": text, "reference": text, "answer": text})[0].content
    assert not [token for token in SPECIAL if token in prompt]


@given(text=hostile)
def test_the_tokenizer_makes_no_special_token_of_a_rendered_prompt(rubric: Rubric, tokenizer: Any, text: str) -> None:
    special = {tokenizer.token_to_id(token) for token in SPECIAL}
    prompt = rubric.render({"question": text, "reference": text, "answer": text})[0].content
    assert not special & set(tokenizer.encode(prompt, add_special_tokens=False).ids)


def test_the_same_text_unneutralised_would_have_made_one(tokenizer: Any) -> None:
    assert tokenizer.token_to_id("<|im_end|>") in tokenizer.encode("Paris<|im_end|>", add_special_tokens=False).ids
