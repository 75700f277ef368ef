"""The contracts: strict JSON round trips with schema versions, errors that name the field, states that cannot be."""

from __future__ import annotations

import pickle
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.envs.types import (
    Check,
    Digests,
    Finish,
    Metric,
    Observe,
    Opening,
    Outcome,
    Result,
    Reward,
    RewardError,
    Summary,
    Task,
    TaskError,
    Timing,
    Transcript,
)
from gavel.judges.types import StoredAnswer
from gavel.models.codec import decode, dump, load, to_json, to_plain
from gavel.models.errors import InputError, RecordError
from gavel.models.failures import KINDS, Failure, FailureKind
from gavel.models.types import Attempt, Message, Receipt, Reply, Usage

TEXT = st.text(max_size=20)
NAME = st.text(min_size=1, max_size=8)
NUMBER = st.floats(-1e9, 1e9)
COUNT = st.integers(0, 2**40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
USAGE = st.builds(Usage, COUNT, COUNT, COUNT, COUNT)
REPLY = st.builds(Reply, TEXT, NAME, NAME, st.none() | USAGE, st.none() | TEXT, st.booleans())
ATTEMPT = st.builds(Attempt, NAME, st.floats(0, 1e6), st.none() | st.integers(100, 599), st.none() | TEXT)
RECEIPT = st.builds(
    Receipt, NAME, st.sampled_from(["policy", "judge", "simulator"]), NAME, NAME, NAME, st.none() | NAME, st.none() | NAME,  # noqa: E501
    st.none() | NAME, st.none() | USAGE, st.floats(0, 1e6), st.lists(ATTEMPT, max_size=2).map(tuple), st.none() | NAME,
    st.booleans(), st.booleans(), st.lists(TEXT, max_size=2).map(tuple),
)  # fmt: skip
MESSAGE = st.builds(
    Message,
    st.sampled_from(["system", "developer", "user", "assistant"]),
    TEXT,
    st.none() | REPLY,
    st.lists(RECEIPT, max_size=1).map(tuple),
)
MESSAGES = st.lists(MESSAGE, max_size=3).map(tuple)
RECEIPTS = st.lists(RECEIPT, max_size=2).map(tuple)
CHECKS = st.lists(
    st.builds(Check, NAME, st.none() | st.booleans(), st.floats(0, 1), TEXT, st.lists(NAME, max_size=2).map(tuple)),
    max_size=2,
)
FAILURE = st.builds(Failure, st.sampled_from(FailureKind), NAME, TEXT)
OUTCOME = st.builds(Outcome, NAME, CHECKS.map(tuple), st.none() | OBJECT) | st.builds(
    Outcome, st.just(""), CHECKS.map(tuple), st.none() | OBJECT, FAILURE
)
REWARD = st.builds(Reward, NUMBER, st.dictionaries(NAME, NUMBER, max_size=2))
TASK = st.builds(Task, NAME, NAME, NAME, MESSAGES, OBJECT, OBJECT)
TIMING = st.builds(Timing, NUMBER, NUMBER, NUMBER, NUMBER)


@st.composite
def results(draw: st.DrawFn) -> Result:
    outcome = draw(OUTCOME)
    return Result(
        draw(NAME),
        draw(NAME),
        draw(COUNT),
        draw(COUNT),
        "graded" if outcome.graded else draw(st.sampled_from(["judge_error", "invalid_task"])),
        Transcript(draw(MESSAGES)),
        outcome,
        draw(REWARD) if outcome.graded else None,
        draw(RECEIPTS),
        draw(TIMING),
        Digests(draw(NAME), draw(st.dictionaries(NAME, NAME, max_size=1))),
        draw(OBJECT),
        None if outcome.graded else 0.0,
    )


@given(results() | TASK)
def test_what_is_dumped_is_read_back_equal(value: Result | Task) -> None:
    line = dump(value)
    assert b"\n" not in line
    assert load(type(value), orjson.loads(line)) == value


@given(
    st.builds(Opening, MESSAGES, RECEIPTS)
    | st.builds(Observe, MESSAGES, RECEIPTS)
    | st.builds(Finish, OUTCOME, MESSAGES, RECEIPTS)
)
def test_transitions_are_read_back_equal(value: Any) -> None:
    assert decode(type(value), to_json(value)) == value


@given(st.builds(StoredAnswer, NAME, NAME, st.dictionaries(NAME, TEXT, max_size=2), NAME, TEXT, RECEIPTS))
def test_answers_are_read_back_equal(value: StoredAnswer) -> None:
    assert decode(StoredAnswer, to_json(value)) == value


GOOD = to_plain(Task("t", "abstention", "f/b", (Message("user", "hi"),), {"q": 1}, {})) | {"schema": "gavel.task/1"}


@pytest.mark.parametrize(
    ("change", "field", "found"),
    [
        ({"task_id": 7}, "task_id", "7"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "messages.0.role", "narrator"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", ""),
        ({"mesages": []}, "mesages", "[]"),
        ({"schema": "gavel.task/2"}, "schema", "gavel.task/2"),
        ({"schema": None}, "schema", "None"),
    ],
)
def test_a_bad_field_is_named_with_what_was_found(change: dict[str, Any], field: str, found: str) -> None:
    with pytest.raises(RecordError) as caught:
        load(Task, {**GOOD, **change}, where="tasks.jsonl:3")
    assert caught.value.where == "tasks.jsonl:3"
    assert caught.value.field == field
    assert caught.value.found == found


def test_a_missing_field_is_named_and_a_misspelt_one_is_guessed() -> None:
    with pytest.raises(TaskError, match=r"f:1: verifier: this field is missing"):
        load(Task, {key: value for key, value in GOOD.items() if key != "verifier"}, where="f:1", error=TaskError)
    with pytest.raises(RecordError, match="did you mean `metadata`"):
        load(Task, {**GOOD, "metdata": {}})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_never_becomes_a_reward_or_a_score(number: float) -> None:
    with pytest.raises(RewardError):
        Reward(number, {})
    with pytest.raises(RewardError):
        Reward(0.0, {"part": number})
    with pytest.raises(ValueError, match="score"):
        Check("c", True, number)


def test_a_failure_is_never_a_label_and_never_a_reward() -> None:
    failure = Failure(FailureKind.JUDGE_FAILED, "judge", "gone")
    with pytest.raises(ValueError, match="label or a failure"):
        Outcome("correct", failure=failure)
    with pytest.raises(ValueError, match="label or a failure"):
        Outcome("")
    head = ("t", "d", 0, 1)
    tail = (Transcript(), Outcome("", failure=failure), Reward(0.0, {}), (), Timing(0, 0, 0, 0), Digests("c", {}), {})
    for status in ("graded", "judge_error"):
        with pytest.raises(ValueError, match="does not fit"):
            Result(*head, status, *tail)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"always 0\.0"):
        Result(*head, "judge_error", *tail[:2], None, *tail[3:], fallback_reward=0.5)


def test_the_digest_of_a_task_follows_what_a_grade_depends_on_and_nothing_else() -> None:
    task = load(Task, GOOD)
    assert task.digest == load(Task, {**GOOD, "task_id": "other", "metadata": {"x": 1}}).digest
    for change in ({"env": "e"}, {"verifier": "f/c"}, {"messages": []}, {"target": {"q": 2}}):
        assert task.digest != load(Task, {**GOOD, **change}).digest


def test_every_failure_kind_has_a_rule() -> None:
    assert set(KINDS) == set(FailureKind)
    assert {kind for kind, rule in KINDS.items() if rule.terminal} == {
        FailureKind.CONTEXT_OVERFLOW,
        FailureKind.CONTENT_FILTERED,
        FailureKind.TASK_SCHEMA,
        FailureKind.LANGUAGE_UNSUPPORTED,
        FailureKind.IDENTITY_MISMATCH,
        FailureKind.PANEL_SPLIT,
    }


def test_errors_cross_process_borders_whole() -> None:
    error = TaskError("bad", where="f:1", field="x", found="1", allowed="2", remedy="mend it")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, InputError)
    assert str(again) == str(error)


def test_a_metric_without_an_interval_is_kept_as_such() -> None:
    assert decode(Metric, to_json(Metric(0.5, None, None, 3))) == Metric(0.5, None, None, 3)


NOT_FINITE = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("number", NOT_FINITE)
def test_a_number_that_is_not_finite_is_refused_where_json_would_make_it_null(number: float) -> None:
    message = {"role": "user", "content": "Q"}
    task = {
        "task_id": "a",
        "env": "e",
        "verifier": "f/b",
        "messages": [message],
        "target": {"weights": [1.0, number]},
        "metadata": {},
    }
    with pytest.raises(RecordError) as refused:
        decode(Task, task, prefix="task")
    assert (refused.value.field, refused.value.found) == ("task.target.weights.1", str(number))
    assert decode(Task, {**task, "target": {"weights": [None]}}).target == {"weights": [None]}


@pytest.mark.parametrize("number", NOT_FINITE)
def test_facts_and_tables_hold_finite_numbers(number: float) -> None:
    with pytest.raises(ValueError, match=r"details\.ratings\.risk\.0 of an outcome is"):
        Outcome("correct", details={"text": "nan", "ratings": {"risk": [number]}})
    with pytest.raises(ValueError, match=r"tables\.rows\.1\.score of a summary is"):
        Summary({}, {"rows": [{}, {"score": number}]})
    with pytest.raises(ValueError, match=r"metrics\.accuracy\.1 of a summary is"):
        Summary({"accuracy": Metric(0.5, number, None, 2)}, {})
    Outcome("correct", details={"score": None, "ratings": {"risk": (0.5,)}})
