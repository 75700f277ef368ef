"""What stands in the bodies of requests and answers: the service decodes and encodes these, the OpenAPI document is
made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gavel.envs.types import Digests, Outcome, Reward, Timing
from gavel.models.codec import record
from gavel.models.errors import InputError
from gavel.models.failures import Failure
from gavel.models.types import Message, Receipt, Reply


@record
class OpenRequest:
    """Begin an episode: ``task`` is a row of ours (``schema`` is ``gavel.task/1``), or one of a source of this
    environment.
    """

    task: Mapping[str, Any]


@record
class TextRequest:
    """One reply to a task, by its text; it counts as finished with ``stop``."""

    task: Mapping[str, Any]
    reply: str


@record
class ReplyRequest:
    """One reply to a task, with how it ended: a reply that was cut at a limit of tokens has the ``finish_reason``
    ``length``.
    """

    task: Mapping[str, Any]
    reply: Reply


@record
class MessagesRequest:
    """Everything that was said, the task's own messages first. An assistant's message after these that has no ``reply``
    counts as finished with ``stop``."""

    task: Mapping[str, Any]
    messages: tuple[Message, ...]


@record
class Problem:
    """What is wrong with a request or a task: which field, what was found, what is allowed, how to mend it. Texts,
    empty where there is nothing to say."""

    problem: str
    field: str = ""
    found: str = ""
    allowed: str = ""
    fix: str = ""


@record
class Opened:
    """The messages an episode starts with.

    ``over``: it ends with them, and is stepped or graded without asking the policy.
    """

    status: Literal["opened"]
    task_id: str
    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...]
    over: bool


@record
class Observed:
    """The episode goes on: append these messages and let the policy reply."""

    status: Literal["observed"]
    task_id: str
    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...]


@record
class Graded:
    """A verdict, right or wrong. ``messages``: a simulator's last words, to be appended; ``receipts``: of every model
    call that informed the outcome."""

    status: Literal["graded"]
    task_id: str
    task_digest: str
    reward: Reward
    outcome: Outcome
    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...]
    timing: Timing
    digests: Digests


@record
class Ungraded:
    """No verdict: a judge, a simulator or the service itself failed. There is no reward, and none may be made up.
    ``retry``: whether asking again may help."""

    status: Literal["ungraded"]
    task_id: str
    task_digest: str
    failure: Failure
    retry: bool
    outcome: Outcome
    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...]
    timing: Timing
    digests: Digests


@record
class Invalid:
    """The task cannot be used: leave it out."""

    status: Literal["invalid"]
    task_id: str
    failure: Failure
    error: Problem


@record
class Refused:
    """The request, or one item of a batch, cannot be read or was not done."""

    status: Literal["error"]
    error: Problem


SaidRequest = TextRequest | ReplyRequest | MessagesRequest
OpenAnswer = Opened | Ungraded | Invalid
StepAnswer = Observed | Graded | Ungraded | Invalid
GradeAnswer = Graded | Ungraded | Invalid


@record
class Counts:
    """What one environment did since the start; ``ungraded`` by kind of failure."""

    opened: int
    observed: int
    graded: int
    ungraded: Mapping[str, int]
    invalid: int
    mean_seconds: float


@record
class ServiceLoad:
    """A model that this process calls: calls in flight, and calls that wait for admission."""

    in_flight: int
    waiting: int
    problem: str = ""


@record
class Health:
    """How the service fares. ``refused``: answers by status that were no success; ``uptime_s`` in seconds."""

    status: Literal["ok", "draining"]
    uptime_s: float
    in_flight: int
    max_in_flight: int
    environments: Mapping[str, Counts]
    services: Mapping[str, ServiceLoad]
    refused: Mapping[str, int]


def make_problem(failed: InputError) -> Problem:
    """Return an error for users as it stands in an answer."""
    place = ": ".join(part for part in (failed.where, failed.field) if part)
    return Problem(failed.problem, place, failed.found, failed.allowed, str(failed.remedy))
