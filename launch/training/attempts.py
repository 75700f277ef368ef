"""What became of each start of a run: ``attempts/<n>.json``, and beside it the config the trainer was given."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import orjson

from gavel.models.codec import dump, load, record
from gavel.models.errors import InputError
from gavel.models.files import write_whole

State = str
STATES = ("waiting for the judge", "training", "finished", "failed", "interrupted")


@record
class Attempt:
    """One start: times in Unix seconds; ``code`` the exit code of the job's process; ``reason`` why it did not finish."""

    SCHEMA: ClassVar[str] = "gavel.attempt/1"

    number: int
    state: str
    host: str
    job: str | None
    began: float
    ended: float | None = None
    code: int | None = None
    reason: str | None = None


def read_attempts(run: Path) -> list[Attempt]:
    """Return every start of a run, in order.

    Raises:
        InputError: a file is damaged.
    """
    files = sorted((path for path in (run / "attempts").glob("*.json") if path.stem.isdigit()), key=lambda path: int(path.stem))
    return [_read(path) for path in files]


def _read(path: Path) -> Attempt:
    try:
        return load(Attempt, orjson.loads(path.read_bytes()), where=str(path), error=InputError)
    except orjson.JSONDecodeError as failed:
        raise InputError("this file is damaged", where=str(path), found=str(failed), remedy="move it away") from None


class Record:
    """The running attempt, written at every change."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "attempts"
        self.folder.mkdir(parents=True, exist_ok=True)
        number = max((one.number for one in read_attempts(run)), default=0) + 1
        self.attempt = Attempt(number, STATES[0], socket.gethostname(), os.environ.get("SLURM_JOB_ID"), time.time())
        self._write()

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return self.attempt.number

    def training(self) -> None:
        """Note that the judge is there and the trainer starts."""
        self.attempt = replace(self.attempt, state="training")
        self._write()

    def ended(self, state: str, code: int, reason: str | None = None) -> None:
        """Note the end."""
        self.attempt = replace(self.attempt, state=state, code=code, reason=reason, ended=time.time())
        self._write()

    def _write(self) -> None:
        write_whole(self.folder / f"{self.number}.json", dump(self.attempt) + b"\n")
