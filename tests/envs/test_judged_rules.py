"""Instructions that programs check beside a rubric: what rows may ask, and what their checks are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.envs.test_judged import Judges, grade
from tests.support.rubric_files import write_rubric

from gavel.envs.judged.environment import JudgedConfig, JudgedEnvironment, build
from gavel.envs.judged.metrics import summarize
from gavel.envs.judged.rewards import GradedConfig, graded
from gavel.envs.judged.rules import RuleChecks, read_rules
from gavel.envs.judged.source import PlainRows
from gavel.envs.play import EpisodePlayer
from gavel.envs.types import Digests, Task, TaskError, Timing, Transcript
from gavel.judges.assets import AssetStore
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import Rubric, RubricConfig
from gavel.models.errors import ConfigError

ROW: dict[str, Any] = {
    "id": "1",
    "prompt": "Praise tea.",
    "instructions": [
        {"instruction_id": "change_case:lowercase"},
        {"instruction_id": "length_constraints:number_words", "relation": "at least", "num_words": 5, "weight": 3},
    ],
}


@pytest.fixture
def rubric(tmp_path: Path) -> Rubric:
    return make_rubric(RubricConfig(file=str(write_rubric(tmp_path))), AssetStore(tmp_path, offline=True))


def make_environment(rubric: Rubric) -> tuple[JudgedEnvironment, Task]:
    made = build(JudgedConfig(("a",), instructions=True), Judges(rubric, a="good"), {})
    task = PlainRows().adapt(ROW, "a")
    made.parse_target(task.target)
    return made, task


def test_each_instruction_is_a_check_and_counts_beside_the_rubric(
    rubric: Rubric, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, task = make_environment(rubric)
    outcome = grade(made, task, "<think>One. Two.</think>tea is fine.")
    assert [(check.name, check.passed) for check in outcome.checks] == [
        ("a", True),
        ("instructions/i1", True),
        ("instructions/i2", False),
    ]
    assert (outcome.label, outcome.details["scores"]) == ("failed", {"a": 1.0, "instructions": 0.25})  # type: ignore[index]
    assert graded(GradedConfig()).reward(outcome).value == 0.625
    other = GradedConfig(weights={"a": 0}, points={"i2": 0}, tags={"change_case": 2})
    assert graded(other).reward(outcome).value == 1.0
    player = EpisodePlayer(made, graded(GradedConfig()), Digests("", {}))
    from gavel.envs.types import Finish

    result = player.make_result(
        task, Transcript(task.messages), Finish(outcome), Timing(0, 0, 0, 0), rollout_index=0, attempt=1
    )
    figures = summarize([result]).metrics
    assert figures["judged/instructions"].value == 0.25
    assert figures["judged/instructions/met:change_case"].value == 1.0
    cut = grade(made, task, "tea", "length")
    assert [(check.name, check.passed) for check in cut.checks] == [("a", False), ("instructions", False)]
    assert graded(GradedConfig()).reward(cut).value == 0.0

    async def lose(self: RuleChecks, target: Any, text: str) -> Any:
        found = await check(self, target, text)
        return (found[0], type(found[1])(found[1].name, None, 0.0, "the check failed: bug"))

    check = RuleChecks.check_reply
    monkeypatch.setattr(RuleChecks, "check_reply", lose)
    failed = grade(made, task, "tea is fine.")
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.stage) == ("verifier_error", "verifier")
    assert failed.checks[0].passed is True, "what the judge said is kept"


@pytest.mark.parametrize(
    ("instructions", "field"),
    [
        (None, "target.instructions"),
        ([], "target.instructions"),
        (["be brief"], "target.instructions"),
        ([{"instruction_id": "no:such"}], "target.instructions.0.instruction_id"),
        ([{"instruction_id": "length_constraints:number_words"}], "target.instructions.0.relation"),
        ([{"instruction_id": "change_case:lowercase", "source": "system"}], "target.instructions.0.source"),
        (
            [{"instruction_id": "change_case:lowercase", "is_misalignment_check": True}],
            "target.instructions.0.is_misalignment_check",
        ),
        ([{"instruction_id": "change_case:lowercase", "uid": "x"}] * 2, "target.instructions.1.uid"),
        ([{"instruction_id": "change_case:lowercase", "weight": 0}], "target.instructions"),
        (
            [{"instruction_id": "stylistic:tone_formality", "tone_level": "formal"}],
            "target.instructions.0.instruction_id",
        ),
    ],
)
def test_instructions_that_cannot_be_checked_are_refused_by_field(instructions: Any, field: str) -> None:
    with pytest.raises(TaskError) as refused:
        read_rules({"instructions": instructions})
    assert refused.value.field == field


def test_a_text_of_that_name_stays_what_it_is_and_a_rubric_of_that_name_is_refused(rubric: Rubric) -> None:
    task = PlainRows().adapt({"id": "1", "prompt": "p", "instructions": "Be brief."}, "a")
    assert (task.target, task.metadata["instructions"]) == ({}, "Be brief.")
    with pytest.raises(ConfigError, match="one name"):
        build(JudgedConfig(("instructions",), instructions=True), Judges(rubric, instructions="good"), {})
    made, _ = make_environment(rubric)
    with pytest.raises(TaskError, match="these are no instructions"):
        made.parse_target({})
