"""What the reward policies pay, and the figures, both worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.envs.instruction_following.environment_support import instruction, question, task

from gavel.envs.instruction_following.findings import Finding, list_facts, make_outcome
from gavel.envs.instruction_following.metrics import summarize
from gavel.envs.registry import make_reward
from gavel.envs.types import Digests, Outcome, Result, Reward, RewardError, Timing, Transcript
from gavel.models.failures import Failure, FailureKind
from gavel.models.types import Receipt

COMMA, TABLE, TITLE = "punctuation:no_comma", "detectable_format:title", "startend:quotation"
NAMES = ("all", "any", "mean", "min", "max", "weighted", "hard_soft")


def outcome(
    passed: Sequence[bool | None], sources: str = "", weights: Sequence[float] = (), language: str = "en"
) -> Outcome:
    """An outcome of as many items as ``passed`` has; ``sources``: u or s for each."""
    items = [
        instruction(
            COMMA,
            uid=place,
            source="user" if sources[place : place + 1] == "u" else "system",
            weight=[*weights, 1, 1, 1, 1][place],
        )
        for place in range(len(passed))
    ]
    facts = list_facts(task(items, language=language).target)
    return make_outcome(
        language,
        "stop",
        [Finding(fact, value, skipped=value is None) for fact, value in zip(facts, passed, strict=True)],
    )


def paid(name: str, found: Outcome) -> float:
    return make_reward({"name": name}).reward(found).value


@pytest.mark.parametrize(
    ("passed", "values"),
    # all, any, mean, min, max, weighted (weights 1), hard_soft (all of the system)
    [
        ([True, False, True], (0.0, 1.0, 2 / 3, 0.0, 1.0, 2 / 3, 0.0)),
        ([True, True], (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)),
        ([False, False], (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        ([True], (1.0,) * 7),
    ],
)
def test_each_policy_pays_what_it_says(passed: list[bool], values: tuple[float, ...]) -> None:
    assert [paid(name, outcome(passed)) for name in NAMES] == pytest.approx(list(values))


def test_weights_count_only_where_they_are_asked_for() -> None:
    found = outcome([True, False, True], weights=[1, 2, 5])
    assert paid("weighted", found) == pytest.approx(6 / 8)
    assert paid("mean", found) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("passed", "sources", "value"),
    [
        ([True, True, False], "suu", 0.5),
        ([False, True, True], "suu", 0.0),
        ([True, False], "uu", 0.5),
        ([True, True], "ss", 1.0),
    ],
)
def test_hard_soft_wants_every_system_item_and_averages_the_users(
    passed: list[bool], sources: str, value: float
) -> None:
    assert paid("hard_soft", outcome(passed, sources)) == value


def test_only_what_the_known_checks_decide_is_paid_where_some_were_skipped() -> None:
    failed = outcome([False, None])
    assert (paid("all", failed), paid("min", failed), paid("hard_soft", failed)) == (0.0, 0.0, 0.0)
    for name in ("any", "mean", "max", "weighted"):
        with pytest.raises(RewardError, match="skipped"):
            paid(name, failed)
    assert (paid("any", outcome([True, None])), paid("max", outcome([True, None]))) == (1.0, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_an_ungraded_outcome_or_a_foreign_label_is_not_rewarded(name: str) -> None:
    for found in (Outcome("", failure=Failure(FailureKind.JUDGE_FAILED, "judge", "down")), Outcome("correct")):
        with pytest.raises(RewardError, match="cannot reward"):
            paid(name, found)


def test_the_default_is_no_ablation_and_others_say_so() -> None:
    assert make_reward({"name": "all"}).ablation is None
    assert "mean instead of all" in str(make_reward({"name": "mean"}).ablation)
    assert {make_reward({"name": name}).bounds for name in NAMES} == {(0.0, 1.0)}


def result(task_id: str, found: Outcome, rollout: int = 0, status: str = "graded") -> Result:
    return Result(
        task_id,
        "sha256:0",
        rollout,
        1,
        status,
        Transcript(),
        found,
        Reward(0.0, {}) if status == "graded" else None,
        (),  # type: ignore[arg-type]
        Timing(0, 0, 0, 0),
        Digests("sha256:0", {}),
        {},
    )


def mixed(passed: Sequence[bool | None], *, empty: bool = False) -> Outcome:
    """A fast item of the system, a judged one of the user, a question; in German; of an ``empty`` reply no judge is
    asked.
    """
    items = [instruction(COMMA), instruction("stylistic:politeness", uid=2, source="user", politeness_degree="polite")]
    facts = list_facts(task(items, [question("Kurz?")], language="de").target)
    asked = (Receipt("call", "judge", "general", "m", "sha256:0"),)
    found = [
        Finding(fact, value, receipts=() if empty or fact.kind == "fast" else asked)
        for fact, value in zip(facts, passed, strict=True)
    ]
    return make_outcome("de", "stop", found)


def test_accuracy_is_strict_by_prompt_and_by_instruction_in_every_slice() -> None:
    summary = summarize(
        [
            result("a", outcome([True, True])),
            result("b", outcome([True, False])),
            result("c", mixed([True, False, False])),
        ]
    )
    values = {
        name.removeprefix("instruction_following/"): (metric.value, metric.n)
        for name, metric in summary.metrics.items()
    }
    assert values["prompt_accuracy"] == (pytest.approx(1 / 3), 3)
    assert values["instruction_accuracy"] == (pytest.approx(4 / 7), 7)
    assert values["prompt_accuracy@language=en"] == (0.5, 2)
    assert values["prompt_accuracy@instructions=3"] == (0.0, 1)
    assert values["instruction_accuracy@language=de"] == (pytest.approx(1 / 3), 3)
    assert values["instruction_accuracy@category=punctuation"] == (0.8, 5)
    assert values["instruction_accuracy@category=llm_judge"] == (0.0, 1)
    assert values["instruction_accuracy@source=user"] == (0.0, 1)
    assert values["instruction_accuracy@source=system"] == (pytest.approx(4 / 6), 6)
    assert values[f"instruction_accuracy@id={COMMA}"] == (0.8, 5)
    assert values["judged_share"] == (pytest.approx(2 / 7), 7)
    accuracy = summary.metrics["instruction_following/instruction_accuracy"]
    assert accuracy.low is not None
    assert accuracy.low < 4 / 7


def test_items_of_an_empty_reply_took_no_judge() -> None:
    summary = summarize([result("a", mixed([True, True, True])), result("b", mixed([False, False, False], empty=True))])
    assert summary.metrics["instruction_following/judged_share"].value == pytest.approx(2 / 6)


def test_rows_without_a_grade_are_counted_by_reason_and_in_no_figure() -> None:
    late = Failure(FailureKind.TRANSPORT_TIMEOUT, "judge", "late")
    failed = make_outcome(
        "en", "stop", [Finding(fact, None, failure=late) for fact in list_facts(task([instruction(COMMA)]).target)]
    )
    skipped = Outcome("", failure=Failure(FailureKind.LANGUAGE_UNSUPPORTED, "task", "nl"))
    summary = summarize(
        [
            result("a", outcome([True])),
            result("b", failed, status="judge_error"),
            result("c", skipped, status="invalid_task"),
        ]
    )
    assert summary.metrics["instruction_following/prompt_accuracy"].n == 1
    assert summary.tables["counts"] == {
        "graded": 1,
        "ungraded": {"transport_timeout": 1},
        "skipped": {"gavel:language_unsupported": 1},
    }


def test_several_rollouts_give_pass_at_k_and_skipped_items_are_in_no_figure() -> None:
    rows = [
        result("a", outcome([True]), 0),
        result("a", outcome([False, None]), 1),
        result("b", outcome([True]), 0),
        result("b", outcome([True]), 1),
    ]
    metrics = summarize(rows).metrics
    assert metrics["instruction_following/pass@1"].value == 0.75
    assert metrics["instruction_following/pass@2"].value == 1.0
    assert metrics["instruction_following/consistency"].value == 0.5
    assert metrics["instruction_following/instruction_accuracy"].n == 4


def test_no_rows_give_no_figures() -> None:
    assert summarize([]).metrics == {}
