from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.judges.rubrics.template import parse_template
from gavel.models.errors import InputError

SLOTS = {"question", "answer"}


@given(st.text(), st.text())
def test_values_stand_in_the_text_as_they_are(question: str, answer: str) -> None:
    filled = parse_template("Q={question} A={answer}.", SLOTS).fill({"question": question, "answer": answer})
    assert filled == "Q=" + question + " A=" + answer + "."


def test_a_value_that_looks_like_a_placeholder_is_not_filled_again() -> None:
    values = {"question": "{answer}", "answer": "{question} {0} {} {{x}} %s $x"}
    assert parse_template("{question}|{answer}", SLOTS).fill(values) == "{answer}|{question} {0} {} {{x}} %s $x"


def test_other_braces_of_the_template_are_text() -> None:
    assert (
        parse_template('{"a": [{question}]} {answer} {} {1}', SLOTS).fill({"question": "q", "answer": "r"})
        == '{"a": [q]} r {} {1}'
    )


def test_a_slot_may_be_used_twice() -> None:
    assert parse_template("{a}-{a}", {"a"}).fill({"a": "x"}) == "x-x"


def test_an_unknown_placeholder_is_refused_and_the_nearest_slot_named() -> None:
    with pytest.raises(InputError, match="question"):
        parse_template("{quesion} {answer}", SLOTS)


def test_a_slot_that_the_template_never_uses_is_refused() -> None:
    with pytest.raises(InputError, match="answer"):
        parse_template("{question}", SLOTS)


@pytest.mark.parametrize(
    ("values", "field"), [({"question": "q"}, "answer"), ({"question": "q", "answer": "a", "anwser": "x"}, "anwser")]
)
def test_missing_and_unknown_values_are_refused_by_name(values: dict[str, str], field: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_template("{question}{answer}", SLOTS).fill(values)
    assert caught.value.field == field
