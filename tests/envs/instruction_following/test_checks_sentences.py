"""Sentences of long texts: in linear time, and the same as of short ones."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.envs.instruction_following.languages import LANGUAGES
from gavel.envs.instruction_following.sentences import split_sentences

CHAINS = [
    ("zh", "好。"), ("zh", "“好。”"), ("ja", "あ。」"), ("hi", "क।"), ("ar", "ن؟"), ("ko", "가."), ("en", "«A.»"), ("en", "(A.) "),  # noqa: E501
    ("en", "… A"), ("zh", "（好。）"), ("en", "“A.” "), ("en", "a.b."), ("zh", "“好！”他说"), ("en", "“A!” Tom said "), ("en", "(A. "),  # noqa: E501
    ("de", "der 3. Xx "), ("es", "¿A? —a "),
]  # fmt: skip


@pytest.mark.parametrize(("language", "unit"), CHAINS)
def test_chains_of_sentences_take_linear_time(language: str, unit: str) -> None:
    """CPU seconds, with room for a slow machine: what is quadratic takes more than ten."""
    start = time.process_time()
    split_sentences(unit * (200_000 // len(unit)), LANGUAGES[language])
    assert time.process_time() - start < 4.0


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "It cost approx. 5 dollars, said Mr. Smith of the U.S. embassy."),
        ("de", "Am 3. Mai kam Dr. Huber mit Max."),
        ("fre", "M. Dupont est né en 44 av. J.-C. et vit encore."),
        ("zh", "“走吧！”小明说，他很高兴。"),
        ("en", "(See above.)"),
        ("ja", "「はい。」と言った。"),
        ("ko", "2024. 5. 3. 금요일에 갔다."),
        ("en", '"It is late," he said.'),
    ],
)
def test_a_long_paragraph_has_as_many_sentences_as_its_parts(language: str, sentence: str) -> None:
    blank = "" if language in ("zh", "ja") else " "
    assert len(split_sentences(sentence, LANGUAGES[language])) == 1
    found = split_sentences(blank.join([sentence] * 1_000), LANGUAGES[language])
    assert set(found) == {sentence}
    assert len(found) == 1_000


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sentence_longer_than_the_library_is_given_at_once_is_one(language: str) -> None:
    long = "word " * 3_000 + "end."
    assert split_sentences(f"{long} {long.title()}", LANGUAGES[language]) == [long, long.title()]


TEXTS = st.text(st.sampled_from("aA1. !?…。“”\"'()[]«»।؟好가क\u200b\u00a0\u2003\u3000-,éİ\u0301😀"), max_size=60)


@given(TEXTS, st.sampled_from(sorted(LANGUAGES)))
def test_sentences_are_the_text_cut_into_pieces_with_words(text: str, code: str) -> None:
    found = split_sentences(text, LANGUAGES[code])
    assert "".join("".join(found).split()) == ("".join(text.split()) if found else "")
    assert all(any(character.isalnum() for character in sentence) for sentence in found)
