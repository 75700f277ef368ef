"""The figures of abstention QA on a set small enough to work by hand."""

import time
from dataclasses import replace

import pytest

from gavel.envs.abstention.metrics import FIGURES, remarks, summarize
from gavel.envs.types import Digests, Outcome, Result, Reward, Timing, Transcript
from gavel.models.failures import Failure, FailureKind
from gavel.models.types import Receipt

NO_TIME = Timing(0.0, 0.0, 0.0, 0.0)
JUDGE = Receipt("0" * 16, "judge", "general", "m", "sha256:0")
POLICY = replace(JUDGE, role="policy")


def row(task: str, rollout: int, domain: str, label: str, *receipts: Receipt, **details: object) -> Result:
    reward = Reward(1.0, {})
    outcome = Outcome(label, details=details)
    made = Digests("sha256:0", {})
    return Result(
        task,
        "d",
        rollout,
        1,
        "graded",
        Transcript(),
        outcome,
        reward,
        (POLICY, *receipts),
        NO_TIME,
        made,
        {"domain": domain},
    )


def ungraded(task: str, rollout: int, domain: str) -> Result:
    outcome = Outcome("", failure=Failure(FailureKind.JUDGE_FAILED, "judge", "down"))
    made = replace(
        row(task, rollout, domain, "correct"), outcome=outcome, status="judge_error", reward=None, fallback_reward=0.0
    )
    return replace(made, receipts=(POLICY, JUDGE))


RESULTS = (
    row("t1", 0, "law", "correct", rule="exact_match"),
    row("t1", 1, "law", "incorrect", JUDGE, parse="exact"),
    row("t2", 0, "law", "abstained", rule="abstention_token", abstention="explicit"),
    row("t2", 1, "law", "abstained", replace(JUDGE, cache_hit=True), parse="substring", abstention="judged"),
    row("t3", 0, "health", "truncated", rule="truncated"),
    row("t3", 1, "health", "correct", replace(JUDGE, shared=True), parse="exact"),
    ungraded("t4", 0, "health"),
    ungraded("t4", 1, "health"),
    row("t4", 1, "health", "correct", JUDGE, parse="exact"),
)

WORKED = {
    "accuracy": (3 / 7, 7),
    "attempted_accuracy": (3 / 4, 4),
    "abstention_rate": (2 / 7, 7),
    "abstention_rate_explicit": (1 / 7, 7),
    "abstention_rate_judged": (1 / 7, 7),
    "hallucination_rate": (1 / 4, 4),
    "omniscience_index": (2 / 7, 7),
    "truncated_rate": (1 / 7, 7),
    "no_answer_rate": (0.0, 7),
    "parse_exact": (3 / 4, 4),
    "parse_last_line": (0.0, 4),
    "parse_substring": (1 / 4, 4),
    "parse_default": (0.0, 4),
    "judge_calls_saved_by_rules": (3 / 7, 7),
    "judge_calls_saved_by_dedupe": (1 / 7, 7),
    "judge_calls_saved_by_cache": (1 / 7, 7),
    "pass@1": (1 / 2, 4),  # t1 1/2, t2 0, t3 1/2, t4 1
    "pass@2": (2 / 3, 3),  # t1 1, t2 0, t3 1; t4 has one graded row
    "consistency": (1 / 3, 3),  # only t2
}
LAW = {
    "accuracy": (1 / 4, 4),
    "attempted_accuracy": (1 / 2, 2),
    "omniscience_index": (0.0, 4),
    "abstention_rate": (1 / 2, 4),
    "pass@2": (1 / 2, 2),
}


@pytest.mark.parametrize(("name", "worked"), WORKED.items())
def test_every_figure_is_what_a_hand_makes_it(name: str, worked: tuple[float, int]) -> None:
    found = summarize(RESULTS).metrics[f"abstention/{name}"]
    assert found.value == pytest.approx(worked[0])
    assert found.n == worked[1]
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high


def test_the_worked_figures_are_all_there_are() -> None:
    assert set(FIGURES) <= set(WORKED)
    assert {name for name in summarize(RESULTS).metrics if "@law" not in name and "@health" not in name} == {
        f"abstention/{n}" for n in WORKED
    }


@pytest.mark.parametrize(("name", "worked"), LAW.items())
def test_every_figure_stands_by_domain_too(name: str, worked: tuple[float, int]) -> None:
    found = summarize(RESULTS).metrics[f"abstention/{name}@law"]
    assert found.value == pytest.approx(worked[0])
    assert found.n == worked[1]


def test_ungraded_rows_are_counted_apart_and_touch_no_figure() -> None:
    with_failures, without = summarize(RESULTS), summarize([result for result in RESULTS if result.status == "graded"])
    assert with_failures.metrics == without.metrics
    assert with_failures.tables["counts"] == {"graded": 7, "ungraded": {"judge_failed": 1}}, (
        "t4/1 was graded in the end"
    )
    assert without.tables["counts"] == {"graded": 7, "ungraded": {}}


def test_verdicts_that_no_judge_stated_are_remarked_upon_with_the_share_that_counts_as_correct() -> None:
    stated = [result for result in RESULTS if (result.outcome.details or {}).get("parse") != "substring"]
    assert remarks(stated) == ()
    (line,) = remarks(RESULTS)
    assert line.startswith("1 of 4 verdicts were not given by the judge"), line  # t1/1, t2/1, t3/1 and t4/1 were judged
    refusals = [row(f"r{number}", 0, "law", "correct", JUDGE, parse="substring") for number in range(3)]
    made_up = row("t5", 0, "law", "incorrect", JUDGE, parse="default")
    substring, default = remarks([*stated, *refusals, made_up])
    assert substring.startswith("3 of 7 verdicts")
    assert "3 of them (100%) count as correct" in substring
    assert default.startswith("1 of 7 verdicts")
    assert "0 of them (0%)" in default


def test_the_tables_count_labels_rules_and_parse_paths() -> None:
    tables = summarize(RESULTS).tables
    assert tables["labels"]["all"] == {"abstained": 2, "correct": 3, "incorrect": 1, "truncated": 1}
    assert tables["labels"]["law"] == {"abstained": 2, "correct": 1, "incorrect": 1}
    assert tables["rules"] == {"abstention_token": 1, "exact_match": 1, "truncated": 1}
    assert tables["parse"] == {"exact": 3, "substring": 1}
    assert tables["judge_calls"] == {"cache": 1, "dedupe": 1, "made": 2, "rule": 3}


def test_no_graded_row_gives_no_figure() -> None:
    assert summarize([]).metrics == {}
    assert summarize([ungraded("t", 0, "law")]).metrics == {}


def test_a_hundred_thousand_rows_are_summed_up_in_seconds() -> None:
    rows = [replace(RESULTS[index % 6], task_id=f"t{index // 8}", rollout_index=index % 8) for index in range(100_000)]
    start = time.perf_counter()
    summarize(rows)
    assert time.perf_counter() - start < 6.0
