"""The three things a client can ask of an environment, for one item each: a request in, an answer out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from gavel.envs.interfaces.http.counters import Tally
from gavel.envs.interfaces.http.gate import HttpProblem
from gavel.envs.interfaces.http.records import (
    GradeAnswer,
    Graded,
    Invalid,
    MessagesRequest,
    Observed,
    OpenAnswer,
    Opened,
    OpenRequest,
    Problem,
    ReplyRequest,
    SaidRequest,
    StepAnswer,
    TextRequest,
    Ungraded,
    problem_of,
)
from gavel.envs.interfaces.served import ServedEnvironment, TranscriptError
from gavel.envs.types import Finish, Observe, Result, Task, TaskError, Timing, Transcript
from gavel.models.codec import decode
from gavel.models.errors import InputError, shorten
from gavel.models.failures import KINDS

T = TypeVar("T")

_WANTED_WHOLE = "a valid integer"
"""What ``decode`` allows where it found a number that is no integer to it."""


@dataclass(frozen=True, slots=True)
class Work:
    """One environment at work for clients, and what it did."""

    served: ServedEnvironment
    tally: Tally = field(default_factory=Tally)

    async def open(self, item: Any) -> OpenAnswer:
        """Begin an episode.

        Raises:
            HttpProblem: the item is no request.
        """
        request = _read(OpenRequest, item)
        task = self._task(request.task)
        if isinstance(task, Invalid):
            return task
        started, begun = time.time(), time.perf_counter()
        opening = await self.served.open(task)
        if isinstance(opening, Finish):
            ended = _ended(self._result(task, Transcript(task.messages), opening, started, begun), opening)
            assert not isinstance(ended, Graded)  # nothing was said that could be graded
            return ended
        self.tally.opened += 1
        return Opened("opened", task.task_id, opening.messages, opening.receipts, opening.over)

    async def step(self, item: Any) -> StepAnswer:
        """Say what follows the newest reply.

        Raises:
            HttpProblem: the item is no request.
        """
        read = self._read(item)
        if isinstance(read, Invalid):
            return read
        task, transcript = read
        started, begun = time.time(), time.perf_counter()
        said = await self.served.step(task, transcript)
        if isinstance(said, Observe):
            self.tally.observed += 1
            return Observed("observed", task.task_id, said.messages, said.receipts)
        return _ended(self._result(task, transcript, said, started, begun), said)

    async def grade(self, item: Any) -> GradeAnswer:
        """Grade what was said.

        Raises:
            HttpProblem: the item is no request.
        """
        read = self._read(item)
        if isinstance(read, Invalid):
            return read
        result = await self.served.grade(*read)
        self.tally.add(result)
        return _ended(result, None)

    def _task(self, raw: Mapping[str, Any]) -> Task | Invalid:
        try:
            return self.served.read_task(raw)
        except TaskError as failed:
            result = self.served.invalid(failed, raw)
            self.tally.add(result)
            assert result.outcome.failure is not None
            return Invalid("invalid", result.task_id, result.outcome.failure, problem_of(failed))

    def _read(self, item: Any) -> tuple[Task, Transcript] | Invalid:
        request = _said(item)
        task = self._task(request.task)
        if isinstance(task, Invalid):
            return task
        try:
            return task, self.served.transcript(task, request.messages if isinstance(request, MessagesRequest) else request.reply)
        except TranscriptError as failed:
            raise HttpProblem(422, problem_of(failed)) from None

    def _result(self, task: Task, transcript: Transcript, finish: Finish, started: float, begun: float) -> Result:
        seconds = time.perf_counter() - begun
        result = self.served.result(task, transcript, finish, Timing(started, 0.0, seconds, seconds))
        self.tally.add(result)
        return result


def _said(item: Any) -> SaidRequest:
    """Read a request of any form; the fields tell which was meant."""
    if isinstance(item, dict):
        if "messages" in item:
            return _read(MessagesRequest, item)
        if isinstance(item.get("reply"), dict):
            return _read(ReplyRequest, item)
    return _read(TextRequest, item)


def _read(cls: type[T], item: Any) -> T:
    if not isinstance(item, dict):
        raise HttpProblem(422, Problem("this is no request", "", shorten(item), "an object with `task`"))
    try:
        try:
            return decode(cls, item, error=InputError)
        except InputError as failed:
            if failed.allowed != _WANTED_WHOLE:
                raise
            return decode(cls, {name: part if name == "task" else _whole(part) for name, part in item.items()}, error=InputError)
    except InputError as failed:
        raise HttpProblem(422, problem_of(failed)) from None
    except orjson.JSONEncodeError as failed:  # nested more deeply than can be written again
        raise HttpProblem(422, Problem(f"this is nested too deeply: {failed}")) from None


def _whole(value: Any) -> Any:
    """Return a value with 3.0 as 3: JSON has one kind of number, and some languages write every number like this."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(part) for name, part in value.items()}
    return [_whole(part) for part in value] if isinstance(value, list) else value


def _ended(result: Result, finish: Finish | None) -> Graded | Ungraded | Invalid:
    """Return the answer for an end; ``finish`` None: nothing was said by the environment."""
    if result.status == "invalid_task":
        assert result.outcome.failure is not None
        return Invalid("invalid", result.task_id, result.outcome.failure, Problem(result.outcome.failure.reason))
    if result.reward is None:
        return _ungraded(result, finish)
    return Graded(
        "graded", result.task_id, result.task_digest, result.reward, result.outcome, finish.messages if finish else (), result.receipts,
        result.timing, result.digests,
    )  # fmt: skip


def _ungraded(result: Result, finish: Finish | None) -> Ungraded:
    failure = result.outcome.failure
    assert failure is not None
    return Ungraded(
        "ungraded", result.task_id, result.task_digest, failure, KINDS[failure.kind].retried_on_resume, result.outcome,
        finish.messages if finish else (), result.receipts, result.timing, result.digests,
    )  # fmt: skip
