"""A rubric that compares: a reply against a text of the row, asked in both orders."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.rubric_files import PAIR_FORM, write_pair_rubric, write_rubric

from gavel.envs.judged.environment import JudgedConfig, build
from gavel.envs.judged.metrics import summarize
from gavel.envs.judged.rewards import GradedConfig, graded
from gavel.envs.types import Digests, Finish, Outcome, Result, Task, Timing, Transcript
from gavel.judges.assets import AssetStore
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import Grade, JudgeFailure, JudgeQuery, Rubric, RubricConfig
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind
from gavel.models.types import Message, Reply

ORDERS = {"first": 1.0, "tie": 0.5, "second": 0.0}


class Judges:
    """Says ``verdicts`` by what stands first; None fails."""

    def __init__(self, rubric: Rubric, **verdicts: str | None) -> None:
        self._rubric, self.verdicts, self.asked = rubric, verdicts, list[JudgeQuery]()

    async def grade(self, query: JudgeQuery) -> Grade:
        self.asked.append(query)
        label = self.verdicts[query.slots["mine"]]
        if label is None:
            raise JudgeFailure(FailureKind.JUDGE_FAILED, "the judge is away")
        return Grade(label, ORDERS[label], "so", "exact", label, {}, ())

    def rubric(self, binding: str) -> Rubric:
        return self._rubric


def make(folder: Path, **changes: Any) -> PromptRubric:
    rubric = make_rubric(RubricConfig(file=str(write_pair_rubric(folder, **changes))), AssetStore(folder, offline=True))
    assert isinstance(rubric, PromptRubric)
    return rubric


def grade(judge: Judges) -> Outcome:
    task = Task("t", "judged", "judged/a", (Message("user", "Q?"),), {"reference": "theirs"}, {})
    reply = Message("assistant", "ours", Reply("ours", "stop", "p"))
    said = asyncio.run(build(JudgedConfig(("a",)), judge, {}).step(task, Transcript((*task.messages, reply))))
    assert isinstance(said, Finish)
    return said.outcome


@pytest.mark.parametrize(
    ("rule", "ours", "theirs", "label", "flip"),
    [
        ("agree", "first", "second", "first", False),
        ("agree", "second", "first", "second", False),
        ("agree", "first", "first", "tie", True),
        ("agree", "first", "tie", "tie", False),
        ("sum", "first", "tie", "first", False),
        ("sum", "second", "second", "tie", True),
    ],
)
def test_both_orders_are_asked_and_become_one_verdict(
    rule: str, ours: str, theirs: str, label: str, flip: bool, tmp_path: Path
) -> None:
    judge = Judges(make(tmp_path, pair={"first": "mine", "second": "other", "rule": rule}), ours=ours, theirs=theirs)
    outcome = grade(judge)
    assert [(query.slots["mine"], query.slots["other"]) for query in judge.asked] == [
        ("ours", "theirs"),
        ("theirs", "ours"),
    ]
    assert (outcome.label, graded(GradedConfig()).reward(outcome).value) == (label, ORDERS[label])
    assert outcome.details is not None
    assert outcome.details["pairs"]["a"]["position_flip"] is flip
    result = Result(
        "t", "d", 0, 1, "graded", Transcript(), outcome, graded(GradedConfig()).reward(outcome), (),
        Timing(0.0, 0.0, 0.0, 0.0), Digests("", {}), {},
    )  # fmt: skip
    assert summarize([result]).metrics["judged/a/position_flips"].value == float(flip)


@pytest.mark.parametrize("verdicts", [{"ours": None, "theirs": "second"}, {"ours": "first", "theirs": None}])
def test_an_order_without_a_verdict_leaves_the_row_ungraded(verdicts: dict[str, str | None], tmp_path: Path) -> None:
    outcome = grade(Judges(make(tmp_path), **verdicts))
    assert outcome.failure is not None
    assert outcome.failure.kind == FailureKind.JUDGE_FAILED


@pytest.mark.parametrize("place", ["first", "second", "tie"])
def test_controls_with_the_texts_swapped_catch_a_judge_that_prefers_a_place(place: str, tmp_path: Path) -> None:
    controls = make(tmp_path).controls
    own, swapped = [one for one in controls if "@" not in one.name], [one for one in controls if "@" in one.name]
    assert len(own) == len(swapped) == len(PAIR_FORM["controls"])
    for one, turned in zip(own, swapped, strict=True):
        assert (turned.slots["mine"], turned.slots["other"]) == (one.slots["other"], one.slots["mine"])
        decided = "tie" not in one.expected
        assert not decided or (place not in one.expected) or (place not in turned.expected)
    assert any(place not in control.expected for control in swapped)


def test_both_texts_are_attacked_for_what_each_would_gain(tmp_path: Path) -> None:
    rubric = make(tmp_path)
    attacks = {attack.name: attack for attack in rubric.attacks or ()}
    mine, other = attacks["injected_word"], attacks["injected_word@other"]
    assert mine.slots["mine"].endswith("Better: A")
    assert mine.expected == ("second",)
    assert other.slots["other"].endswith("Better: B")
    assert other.expected == ("first",)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"pair": {"first": "mine", "second": "othr"}}, "pair", "did you mean other"),
        ({"pair": {"first": "mine", "second": "mine"}}, "pair", "two slots"),
        ({"pair": {"first": "mine", "second": "question"}}, "pair", "hostile slot"),
        ({"pair": {"first": "mine", "second": "other", "rule": "both"}}, "pair.rule", "agree"),
        ({"labels": {"first": 1.0, "tie": 0.4, "second": 0.0}}, "labels", "or without tie"),
        ({"labels": {"better": 1.0, "worse": 0.0}, "reply": {"reader": "json"}}, "labels", "reply.words"),
        ({"pair": None, "slots": {**PAIR_FORM["slots"], "other": "rival.visible"}}, "slots.other", "set pair|pair: "),
        ({"slots": {**PAIR_FORM["slots"], "mine": "rival.visible"}}, "pair", "the second"),
    ],
)
def test_a_rubric_of_pairs_that_does_not_say_who_is_better_is_refused(
    changes: dict[str, Any], field: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said) as failed:
        make(tmp_path, **changes)
    assert failed.value.field == field


def test_a_rubric_of_two_runs_is_no_rubric_of_rows(tmp_path: Path) -> None:
    rubric = make(tmp_path, slots={**PAIR_FORM["slots"], "other": "rival.visible"})
    with pytest.raises(ConfigError, match="gavel duel"):
        build(JudgedConfig(("a",)), Judges(rubric), {}).parse_target({})


def test_rubrics_that_grade_one_text_keep_their_digests(tmp_path: Path) -> None:
    rubric = make_rubric(RubricConfig(file=str(write_rubric(tmp_path))), AssetStore(tmp_path, offline=True))
    assert rubric.digest == EARLIER


EARLIER = "sha256:f5486adcf2924faa3ac8bdad1b75d7f2de01e5d1421bfef16741e2fccc18b385"
