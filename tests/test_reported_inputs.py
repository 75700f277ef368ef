"""Inputs that failed in use, read by the code that reads them; whole runs of them stand beside their verbs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from gavel.envs.abstention.extraction import extract_answer
from gavel.judges.rubrics import gavel_abstention as rubric_gavel_abstention
from gavel.judges.rubrics import gavel_instruction_following as rubric_gavel_instruction_following
from gavel.judges.types import Unparseable
from gavel.models.calls.error_words import read_meaning
from gavel.models.calls.served_names import is_same_model
from gavel.models.types import Reply

REPORTS = Path(__file__).parents[2] / "shared" / "data" / "reports"
pytestmark = pytest.mark.skipif(not REPORTS.is_dir(), reason="the reports are not here (../shared/data/reports)")


def reported(name: str, number: str) -> dict[str, Any]:
    rows = map(orjson.loads, (REPORTS / f"{name}.jsonl").read_bytes().splitlines())
    return next(row for row in rows if row["id"] == number)


def read(parse: Any, text: str) -> str:
    """The label that a rubric reads, ``unparseable`` where it finds no verdict or several."""
    try:
        return str(parse(text).label)
    except Unparseable:
        return "unparseable"


@pytest.mark.parametrize("number", ["if-quoted-object", "if-quoted-marker", "if-prefilled-think"])
def test_a_verdict_that_a_judge_only_repeats_or_thinks_of_is_not_its_own(number: str) -> None:
    assert read(rubric_gavel_instruction_following.parse, reported("judging", number)["input"]) in ("no", "unparseable")


@pytest.mark.parametrize("number", ["fenced-json-strict", "inline-think-strict"])
def test_a_fence_around_a_verdict_and_thinking_before_it_are_taken_off(number: str) -> None:
    assert read(rubric_gavel_abstention.parse, reported("judging", number)["input"]) == "correct"


@pytest.mark.parametrize(
    ("requested", "served", "same"),
    [
        ("claude-sonnet-4-0", "claude-sonnet-4-20250514", True),
        ("claude-sonnet-4", "claude-sonnet-4-5-20250929", False),
        ("anthropic/claude-opus-4.5", "anthropic/claude-4.5-opus-20251124", True),
        ("my-judge", "gpt-4o-2024-08-06", False),  # judge.served_as accepts it
    ],
)
def test_a_dated_name_is_the_model_s_own_and_another_version_is_not(requested: str, served: str, same: bool) -> None:
    assert is_same_model(requested, served) is same


def test_thinking_in_brackets_is_no_answer_and_a_tag_within_a_box_is() -> None:
    assert (
        extract_answer(Reply("[THINK]maybe \\boxed{Mombasa}[/THINK] I do not know.", "stop", "p")).answer
        == "I do not know."
    )
    assert extract_answer(Reply("\\boxed{<think>}", "stop", "p", reasoning="it is a tag")).answer == "<think>"


@pytest.mark.parametrize(("number", "meaning"), [("ctx-sglang", "overflow"), ("litellm-budget", "account")])
def test_a_refusal_is_read_by_its_words(number: str, meaning: str) -> None:
    status, _, message = reported("judging", number)["input"].partition(" ")
    assert read_meaning(int(status), message) == meaning


@pytest.mark.parametrize("number", ["redos-tag", "redos-mark"])
def test_a_hostile_reply_is_neutralised_in_a_time_that_grows_with_it(number: str) -> None:
    neutraliser = rubric_gavel_abstention.NEUTRALISER
    text = {"redos-tag": "x <" + "\n" * 100_000 + "x", "redos-mark": "a\u200e" * 15_000}[number]
    assert reported("security", number)["where"].startswith("judges/neutralise.py")
    begun = time.process_time()
    neutraliser.clean_text(text)
    assert time.process_time() - begun < 5  # 210 s before


def test_special_tokens_of_current_models_do_not_reach_a_judge() -> None:
    for text in reported("security", "tokens-not-neutralised")["texts"]:
        cleaned = rubric_gavel_abstention.NEUTRALISER.clean_text(text)
        assert cleaned != text, text
        assert rubric_gavel_abstention.NEUTRALISER.clean_text(cleaned) == cleaned
