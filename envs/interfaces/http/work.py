"""The three things a client can ask of an environment, for one item each: a request in, an answer out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from gavel.envs.interfaces.http.counters import EndTally
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
    make_problem,
)
from gavel.envs.interfaces.served import ServedEnvironment, TranscriptError
from gavel.envs.types import Finish, Observe, Result, Task, TaskError, Timing, Transcript
from gavel.models.codec import decode
from gavel.models.errors import InputError, shorten_value
from gavel.models.failures import KINDS

T = TypeVar("T")

_WANTED_WHOLE = "a valid integer"
"""What ``decode`` allows where it found a number that is no integer to it."""


@dataclass(frozen=True, slots=True)
class Work:
    """One environment at work for clients, and what it did."""

    served: ServedEnvironment
    tally: EndTally = field(default_factory=EndTally)

    async def open_episode(self, item: Any) -> OpenAnswer:
        """Begin an episode.

        Raises:
            HttpProblem: the item is no request.
        """
        request = _decode_item(OpenRequest, item)
        task = self._read_task(request.task)
        if isinstance(task, Invalid):
            return task
        started, begun = time.time(), time.perf_counter()
        opening = await self.served.open_episode(task)
        if isinstance(opening, Finish):
            ended = _make_end_answer(
                self._make_result(task, Transcript(task.messages), opening, started, begun), opening
            )
            assert not isinstance(ended, Graded)  # nothing was said that could be graded
            return ended
        self.tally.opened += 1
        return Opened("opened", task.task_id, opening.messages, opening.receipts, opening.over)

    async def step_episode(self, item: Any) -> StepAnswer:
        """Say what follows the newest reply.

        Raises:
            HttpProblem: the item is no request.
        """
        read = self._read_request(item)
        if isinstance(read, Invalid):
            return read
        task, transcript = read
        started, begun = time.time(), time.perf_counter()
        said = await self.served.step_episode(task, transcript)
        if isinstance(said, Observe):
            self.tally.observed += 1
            return Observed("observed", task.task_id, said.messages, said.receipts)
        return _make_end_answer(self._make_result(task, transcript, said, started, begun), said)

    async def grade_episode(self, item: Any) -> GradeAnswer:
        """Grade what was said.

        Raises:
            HttpProblem: the item is no request.
        """
        read = self._read_request(item)
        if isinstance(read, Invalid):
            return read
        result = await self.served.grade_episode(*read)
        self.tally.add(result)
        return _make_end_answer(result, None)

    def _read_task(self, raw: Mapping[str, Any]) -> Task | Invalid:
        try:
            return self.served.read_task(raw)
        except TaskError as failed:
            result = self.served.make_invalid_result(failed, raw)
            self.tally.add(result)
            assert result.outcome.failure is not None
            return Invalid("invalid", result.task_id, result.outcome.failure, make_problem(failed))

    def _read_request(self, item: Any) -> tuple[Task, Transcript] | Invalid:
        request = _read_said(item)
        task = self._read_task(request.task)
        if isinstance(task, Invalid):
            return task
        try:
            return task, self.served.make_transcript(
                task, request.messages if isinstance(request, MessagesRequest) else request.reply
            )
        except TranscriptError as failed:
            raise HttpProblem(422, make_problem(failed)) from None

    def _make_result(self, task: Task, transcript: Transcript, finish: Finish, started: float, begun: float) -> Result:
        seconds = time.perf_counter() - begun
        result = self.served.make_result(task, transcript, finish, Timing(started, 0.0, seconds, seconds))
        self.tally.add(result)
        return result


def _read_said(item: Any) -> SaidRequest:
    """Read a request of any form; the fields tell which was meant."""
    if isinstance(item, dict):
        if "messages" in item:
            return _decode_item(MessagesRequest, item)
        if isinstance(item.get("reply"), dict):
            return _decode_item(ReplyRequest, item)
    return _decode_item(TextRequest, item)


def _decode_item(cls: type[T], item: Any) -> T:
    if not isinstance(item, dict):
        raise HttpProblem(422, Problem("this is no request", "", shorten_value(item), "an object with `task`"))
    try:
        try:
            return decode(cls, item, error=InputError)
        except InputError as failed:
            if failed.allowed != _WANTED_WHOLE:
                raise
            return decode(
                cls,
                {name: part if name == "task" else _to_whole(part) for name, part in item.items()},
                error=InputError,
            )
    except InputError as failed:
        raise HttpProblem(422, make_problem(failed)) from None
    except orjson.JSONEncodeError as failed:  # nested more deeply than can be written again
        raise HttpProblem(422, Problem(f"this is nested too deeply: {failed}")) from None


def _to_whole(value: Any) -> Any:
    """Return a value with 3.0 as 3: JSON has one kind of number, and some languages write every number like this."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, dict):
        return {name: _to_whole(part) for name, part in value.items()}
    return [_to_whole(part) for part in value] if isinstance(value, list) else value


def _make_end_answer(result: Result, finish: Finish | None) -> Graded | Ungraded | Invalid:
    """Return the answer for an end; ``finish`` None: nothing was said by the environment."""
    if result.status == "invalid_task":
        assert result.outcome.failure is not None
        return Invalid("invalid", result.task_id, result.outcome.failure, Problem(result.outcome.failure.reason))
    if result.reward is None:
        return _make_ungraded(result, finish)
    return Graded(
        "graded",
        result.task_id,
        result.task_digest,
        result.reward,
        result.outcome,
        finish.messages if finish else (),
        result.receipts,
        result.timing,
        result.digests,
    )


def _make_ungraded(result: Result, finish: Finish | None) -> Ungraded:
    failure = result.outcome.failure
    assert failure is not None
    return Ungraded(
        "ungraded",
        result.task_id,
        result.task_digest,
        failure,
        KINDS[failure.kind].retried_on_resume,
        result.outcome,
        finish.messages if finish else (),
        result.receipts,
        result.timing,
        result.digests,
    )
