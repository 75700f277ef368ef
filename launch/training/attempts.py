"""What became of each start of a run: ``attempts/<n>.json``, and beside it the config the trainer was given.

A run that was interrupted, or lost its judge, goes on with its next start, by itself where Slurm may requeue it. It
does not go on without end: after ``STARTS`` trainings in a row without a new step, or ``LOSSES`` judges lost in a row
without one, it has failed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import orjson

from gavel.launch.training.progress import find_newest_checkpoint, read_steps
from gavel.models.codec import dump, load, record
from gavel.models.errors import InputError, shorten_value
from gavel.models.files import write_whole

State = str
WAITING, TRAINING, FINISHED, FAILED, INTERRUPTED, LOST = (
    "waiting for the judge", "training", "finished", "failed", "interrupted", "lost its judge",
)  # fmt: skip
STARTS, LOSSES = 3, 10
NEXT = "next"
"""The file by which a start tells the script of its job whether there is more to do: ``again`` or ``over``."""
AGAIN, STUCK = 75, 4
"""Exit codes: of a start after which there is more to do (``EX_TEMPFAIL``), and of one that is one too many."""


@record
class TrainingAttempt:
    """One start: times in Unix seconds; ``code`` the exit code of the job's process; ``reason`` why it did not finish;
    ``trained`` whether the trainer was started; ``before`` the furthest step of the run before it."""

    SCHEMA: ClassVar[str] = "gavel.attempt/1"

    number: int
    state: str
    host: str
    job: str | None
    began: float
    ended: float | None = None
    code: int | None = None
    reason: str | None = None
    trained: bool = False
    before: int = 0


def read_attempts(run: Path) -> list[TrainingAttempt]:
    """Return every start of a run, in order.

    Raises:
        InputError: a file is damaged.
    """
    files = sorted(
        (path for path in (run / "attempts").glob("*.json") if path.stem.isdecimal()), key=lambda path: int(path.stem)
    )
    return [_read_attempt(path) for path in files]


def _read_attempt(path: Path) -> TrainingAttempt:
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as failed:
        raise InputError("this file is damaged", where=str(path), found=str(failed), remedy="move it away") from None
    if not isinstance(value, dict):
        raise InputError(
            "this file is damaged",
            where=str(path),
            found=shorten_value(value),
            allowed="a mapping",
            remedy="move it away",
        )
    return load(TrainingAttempt, value, where=str(path), error=InputError)


def is_finished(run: Path) -> bool:
    """Whether the newest start of a run, if there is any, took it to its end."""
    return [attempt.state for attempt in read_attempts(run)][-1:] == [FINISHED]


def find_furthest_step(run: Path) -> int:
    """Return the newest training step that any start of a run has done, 0 for none."""
    return max(max(read_steps(run), default=0), find_newest_checkpoint(run / "checkpoints") or 0)


def tell_stuck(attempts: Sequence[TrainingAttempt], furthest: int) -> str | None:
    """Say why a run must not begin again by itself; None if it may.

    Only starts of Slurm's jobs count, for nothing else begins by itself, and none that only waited. One that failed was
    begun again by somebody who knew. ``furthest`` is the newest step of the run.
    """
    trained = lost = 0
    for attempt in reversed(attempts):
        if attempt.state in (FINISHED, FAILED) or attempt.before < furthest:
            break
        lost += attempt.state == LOST
        trained += attempt.trained and attempt.state != LOST and attempt.job is not None
    reasons = [one.reason for one in attempts if one.reason]
    last = f"; the last one: {reasons[-1].splitlines()[0]}" if reasons else ""
    if trained >= STARTS:
        return f"no new step in {trained} starts (after step {furthest}){last}"
    if lost >= LOSSES:
        return f"its judge was lost in {lost} starts without a new step (after step {furthest}){last}"
    return None


class Record:
    """The running attempt, written at every change."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "attempts"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run, self._earlier = run, read_attempts(run)
        number = max((one.number for one in self._earlier), default=0) + 1
        self.attempt = TrainingAttempt(
            number,
            WAITING,
            socket.gethostname(),
            os.environ.get("SLURM_JOB_ID"),
            time.time(),
            before=find_furthest_step(run),
        )
        self._write_attempt()
        (run / NEXT).unlink(missing_ok=True)  # a start that is killed has said nothing

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return self.attempt.number

    @property
    def goes_on(self) -> bool:
        """Whether the next start goes on with what this one left."""
        return self.attempt.state not in (FINISHED, FAILED)

    def record_training(self) -> None:
        """Note that the judge is there and the trainer starts."""
        self.attempt = replace(self.attempt, state=TRAINING, trained=True)
        self._write_attempt()

    def find_stuck(self) -> str | None:
        """Say why the starts before this one forbid it; None if they do not."""
        return tell_stuck(self._earlier, self.attempt.before)

    def record_end(self, state: str, code: int, reason: str | None = None) -> int:
        """Note the end; return the exit code: that of a failure where a start that could be gone on with is one too
        many.
        """
        self.attempt = replace(self.attempt, state=state, code=code, reason=reason, ended=time.time())
        if state in (INTERRUPTED, LOST):
            stuck = tell_stuck([*self._earlier, self.attempt], find_furthest_step(self._run))
            if stuck is not None:
                self.attempt = replace(self.attempt, state=FAILED, code=STUCK, reason=stuck)
        self._write_attempt()
        write_whole(self._run / NEXT, b"over\n" if self.attempt.state in (FINISHED, FAILED) else b"again\n")
        return self.attempt.code if self.attempt.code is not None else code

    def _write_attempt(self) -> None:
        write_whole(self.folder / f"{self.number}.json", dump(self.attempt) + b"\n")
