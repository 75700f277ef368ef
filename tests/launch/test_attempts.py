"""Starts of a run: which of them go on, and when enough is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.ledgers import write_ledger

from gavel.launch.training.attempts import (
    LOSSES,
    NEXT,
    Record,
    TrainingAttempt,
    find_furthest_step,
    read_attempts,
    tell_stuck,
)
from gavel.models.errors import InputError


def start(state: str, before: int = 0, *, trained: bool = True, job: str | None = "7") -> TrainingAttempt:
    return TrainingAttempt(1, state, "h", job, 0.0, 1.0, 130, "told to end", trained, before)


@pytest.mark.parametrize(
    ("attempts", "furthest", "stuck"),
    [
        ([start("interrupted")] * 2, 0, False),
        ([start("interrupted")] * 3, 0, True),
        ([start("training")] * 3, 0, True),  # killed without a word, by a node that was lost
        (
            [start("interrupted", 0), start("interrupted", 0), start("interrupted", 5)],
            5,
            False,
        ),  # the second one made 5 steps
        (
            [start("interrupted", 0), *[start("interrupted", 5)] * 3],
            5,
            True,
        ),  # between two checkpoints, again and again
        ([start("interrupted", 5)] * 3, 6, False),
        ([start("interrupted", trained=False)] * 9, 0, False),  # it only waited for its judge
        ([start("lost its judge")] * (LOSSES - 1), 0, False),
        ([start("lost its judge")] * LOSSES, 0, True),
        ([start("interrupted"), *[start("lost its judge")] * 3, start("interrupted")], 0, False),
        ([start("interrupted"), *[start("lost its judge")] * 3, *[start("interrupted")] * 2], 0, True),
        (
            [*[start("interrupted")] * 2, start("failed"), start("interrupted")],
            0,
            False,
        ),  # begun again by somebody who knew
        (
            [start("interrupted", job=None)] * 5,
            0,
            False,
        ),  # here somebody pressed Ctrl-C: nothing begins again by itself
    ],
)
def test_a_run_is_stuck_after_three_trainings_in_a_row_without_a_new_step(
    attempts: list[TrainingAttempt], furthest: int, *, stuck: bool
) -> None:
    assert (tell_stuck(attempts, furthest) is not None) == stuck


def test_the_start_that_is_one_too_many_has_failed_and_says_so_to_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    codes, told = [], []
    for _ in range(3):
        record = Record(tmp_path)
        assert not (tmp_path / NEXT).exists(), "one that is killed has said nothing"
        record.record_training()
        codes.append(record.record_end("interrupted", 130, "told to end"))
        told.append((tmp_path / NEXT).read_text().strip())
    assert codes == [130, 130, 4]
    assert told == ["again", "again", "over"]
    assert [attempt.state for attempt in read_attempts(tmp_path)] == ["interrupted", "interrupted", "failed"]
    assert "no new step in 3 starts (after step 0); the last one: told to end" in str(
        read_attempts(tmp_path)[-1].reason
    )


def test_three_starts_that_were_killed_forbid_a_fourth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for _ in range(3):
        record = Record(tmp_path)
        assert record.find_stuck() is None
        record.record_training()
    assert "no new step in 3 starts" in str(Record(tmp_path).find_stuck())


def test_the_furthest_step_is_the_newest_of_any_start(tmp_path: Path) -> None:
    assert find_furthest_step(tmp_path) == 0
    write_ledger(tmp_path, {step: {"a": [1.0]} for step in (1, 2, 3)}, start="first")
    write_ledger(tmp_path, {2: {"a": [1.0]}}, start="second")
    assert find_furthest_step(tmp_path) == 3
    (tmp_path / "checkpoints" / "step_9").mkdir(parents=True)
    assert find_furthest_step(tmp_path) == 9


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "null", "{", '{"schema": "gavel.attempt/1"}', '{"schema": "gavel.attempt/9"}']
)
def test_a_damaged_file_of_a_start_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / "\N{SUPERSCRIPT TWO}.json").write_text("none of ours")
    assert read_attempts(tmp_path) == []
    (tmp_path / "attempts" / "1.json").write_text(text)
    with pytest.raises(InputError, match=r"1\.json"):
        read_attempts(tmp_path)
