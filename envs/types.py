"""The words of an environment: task, transcript, outcome, reward, result, and the contracts between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from gavel.models.codec import FieldError, compute_digest, find_non_finite, record, to_plain
from gavel.models.errors import InputError, shorten_value
from gavel.models.failures import Failure, FailureKind, ModelFailure
from gavel.models.types import Message, Receipt


class TaskError(InputError):
    """A task's row is not valid: names file, line and field. ``kind`` is what the skipped row is recorded as."""

    kind: ClassVar[FailureKind] = FailureKind.TASK_SCHEMA


class RewardError(InputError):
    """A reward policy does not fit: bad numbers, or an outcome it cannot reward."""


@record
class Task:
    """One thing to be done.

    ``verifier`` is the binding's exported name, ``<target format>/<binding>``; ``messages`` are sent as they are;
    ``target`` is the environment's own frozen dataclass (plain JSON while the environment has not parsed it).
    """

    SCHEMA: ClassVar[str] = "gavel.task/1"

    task_id: str
    env: str
    verifier: str
    messages: tuple[Message, ...]
    target: Any
    metadata: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` over everything a reply or a grade could depend on; the id and the metadata stay out."""
        return compute_digest(
            [self.env, self.verifier, [[m.role, m.content] for m in self.messages], to_plain(self.target)]
        )


@record
class Transcript:
    """Every message so far, the opening included, in order."""

    messages: tuple[Message, ...] = ()

    def __add__(self, messages: Sequence[Message]) -> Transcript:
        return Transcript((*self.messages, *messages))

    @property
    def replies(self) -> tuple[Message, ...]:
        """The policy's messages."""
        return tuple(message for message in self.messages if message.reply is not None)


@record
class Opening:
    """The messages an episode starts with, and the receipts of the calls that made them. ``over``: the episode ends
    with them, so that ``step`` comes next and the policy is never asked."""

    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...] = ()
    over: bool = False


@record
class Check:
    """One fact about a reply: ``passed`` is None where it could not be checked or was skipped; ``score`` in [0, 1];
    ``receipts`` are the call ids of the receipts in the result."""

    name: str
    passed: bool | None
    score: float
    detail: str = ""
    receipts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:  # also false for NaN
            raise ValueError(f"score of check {self.name} is {self.score}; allowed: 0 to 1")


@record
class Outcome:
    """What a transcript came to: facts with evidence, or a failure, never a number.

    With ``failure`` the outcome is ungraded: ``label`` is then empty, and what was already known stays in ``checks``.
    """

    label: str
    checks: tuple[Check, ...] = ()
    details: Mapping[str, Any] | None = None
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if (self.failure is None) == (self.label == ""):
            raise ValueError(f"an outcome has either a label or a failure; found label {self.label!r}, {self.failure}")
        if self.details and (bad := find_non_finite(self.details)) is not None:
            raise ValueError(f"details.{bad.path} of an outcome is {bad.value}; allowed: a finite number, or None")

    @property
    def graded(self) -> bool:
        """Whether there is a verdict, right or wrong."""
        return self.failure is None

    @property
    def partial(self) -> bool:
        """Whether a check could not be made or was skipped."""
        return any(check.passed is None for check in self.checks)


@record
class Observe:
    """The episode goes on with these messages."""

    messages: tuple[Message, ...]
    receipts: tuple[Receipt, ...] = ()


@record
class Finish:
    """The episode is over; ``messages`` are a simulator's last words."""

    outcome: Outcome
    messages: tuple[Message, ...] = ()
    receipts: tuple[Receipt, ...] = ()


@record
class Reward:
    """A finite number and what it is made of."""

    value: float
    components: Mapping[str, float]

    def __post_init__(self) -> None:
        for name, number in (("value", self.value), *self.components.items()):
            if not math.isfinite(number):
                raise RewardError("a reward must be finite", field=name, found=shorten_value(number))


Status = Literal["graded", "judge_error", "invalid_task"]


@record
class Timing:
    """When an attempt ran: ``started`` in Unix seconds, the others in seconds."""

    started: float
    policy_s: float
    step_s: float
    total_s: float


@record
class Digests:
    """What a result depends on, each ``sha256:<hex>``."""

    config: str
    rubrics: Mapping[str, str]


@record
class Result:
    """One attempt at one (task, rollout): a graded row, an ungraded one (``judge_error``), or a skipped task
    (``invalid_task``).

    ``reward`` is set exactly on graded rows. ``fallback_reward`` is 0.0 on ungraded rows and never averaged into
    anything.
    """

    SCHEMA: ClassVar[str] = "gavel.result/1"

    task_id: str
    task_digest: str
    rollout_index: int
    attempt: int
    status: Status
    transcript: Transcript
    outcome: Outcome
    reward: Reward | None
    receipts: tuple[Receipt, ...]
    timing: Timing
    digests: Digests
    metadata: Mapping[str, Any]
    fallback_reward: float | None = None

    def __post_init__(self) -> None:
        if (self.reward is not None) != (self.status == "graded") or self.outcome.graded != (self.status == "graded"):
            raise ValueError(
                f"status {self.status} does not fit reward {self.reward} and failure {self.outcome.failure}"
            )
        if self.fallback_reward not in (None, 0.0):
            raise ValueError(f"the fallback reward is always 0.0, found {self.fallback_reward}")


@record
class Metric:
    """A figure with its interval over ``n`` rows (95 % unless said otherwise); ``low`` and ``high`` are None where
    there is none.
    """

    value: float
    low: float | None
    high: float | None
    n: int


@record
class Summary:
    """Metrics by name (``abstention/accuracy``, ``abstention/accuracy@law``), and tables as plain JSON."""

    metrics: Mapping[str, Metric]
    tables: Mapping[str, Any]

    def __post_init__(self) -> None:
        figures = {name: (metric.value, metric.low, metric.high) for name, metric in self.metrics.items()}
        for part, content in (("metrics", figures), ("tables", self.tables)):
            if (bad := find_non_finite(content)) is not None:
                raise ValueError(f"{part}.{bad.path} of a summary is {bad.value}; allowed: a finite number, or None")


class ServiceNeeded(Exception):
    """A transcript is only to be graded, and the environment would call this service, which does not judge: the episode
    is not over.
    """


def _always_ask(task: Task) -> bool:  # noqa: ARG001
    return True


def _ask_once(task: Task, binding: str) -> int:  # noqa: ARG001
    return 1


@record
class EnvironmentInfo:
    """What an environment needs and allows; every field has a default, so that a one-reply environment says nothing.

    Attributes:
        policy_turns: the most replies of the policy in one episode; None: not declared, and then nothing can train on
            it, for an episode that is cut is never graded.
        speaks_first: the environment makes the first words of the user itself, so that a task may hold none.
        keeps_filtered: what a provider's filter left of a reply is the policy's reply, and graded; False: it is a
            failure of the provider.
        clusters: the field of metadata or details whose value rows share that are alike (a persona, whoever plays it):
            intervals are clustered by it; None: by task.
        binding: the binding of judge and rubric that tasks are read for, None if a task's ``verifier`` alone says it.
        also_binds: further bindings that grade every task.
        called_services: the services that the environment calls itself, besides its judge.
        spare_services: services that may be declared and not used, because a profile declares them for it.
        asks_judge: whether grading this task may ask a judge.
        count_questions: how many questions one grading of this task asks the judge of a binding.
    """

    policy_turns: int | None = None
    speaks_first: bool = False
    keeps_filtered: bool = True
    clusters: str | None = None
    binding: str | None = None
    also_binds: tuple[str, ...] = ()
    called_services: tuple[str, ...] = ()
    spare_services: tuple[str, ...] = ()
    asks_judge: Callable[[Task], bool] = _always_ask
    count_questions: Callable[[Task, str], int] = _ask_once

    def __post_init__(self) -> None:
        if self.policy_turns is not None and self.policy_turns < 1:
            raise FieldError("policy_turns", self.policy_turns, "at least 1, or None")


@runtime_checkable
class HasInfo(Protocol):
    """What says what an environment needs: the environment itself, and its options where it is known before anything is
    made.
    """

    @property
    def info(self) -> EnvironmentInfo:
        """What it needs and allows."""
        ...


class Environment(HasInfo, Protocol):
    """A transition over a transcript; all state is in the task and the transcript."""

    name: str

    def parse_target(self, raw: Mapping[str, Any]) -> Any:
        """Read a task's target.

        Raises:
            TaskError: names the field.
        """
        ...

    async def open(self, task: Task) -> Opening:
        """Return the opening; called once per episode and stored in the transcript."""
        ...

    async def step(self, task: Task, transcript: Transcript) -> Observe | Finish:
        """Say what follows the policy's newest reply. A judge's or simulator's failure ends in an ungraded outcome."""
        ...

    def summarize(self, results: Sequence[Result]) -> Summary:
        """Return the environment's metrics over graded and ungraded results."""
        ...


@runtime_checkable
class Remarks(Protocol):
    """An environment that may have something to say of a run's results at its end, besides figures."""

    def remarks(self, results: Sequence[Result]) -> Sequence[str]:
        """Return the lines, each a sentence that says what may be done about it; none as a rule."""
        ...


@runtime_checkable
class Exporter(Protocol):
    """An environment that also writes its results in files of somebody else's format."""

    def exports(self, results: Sequence[Result], run: str, planned: int | None = None) -> Mapping[str, bytes]:
        """Return the files by name, of the graded ``results``; ``run`` names the run, ``planned`` counts its rows,
        graded or not.
        """
        ...


@runtime_checkable
class NamesPolicyFailures(Protocol):
    """An environment that has a kind of its own for a policy's call that failed."""

    def policy_failed(self, failed: ModelFailure) -> Failure:
        """Return what the row is recorded as."""
        ...


@runtime_checkable
class Rereads(Protocol):
    """An environment that compares a stored row with its transcript, which ``summarize`` does not get."""

    def reread(self, result: Result) -> Result:
        """Return the row as ``summarize`` is to see it."""
        ...


class RewardPolicy(Protocol):
    """A pure function from an outcome to a number; never called on an ungraded outcome.

    ``bounds`` are the least and greatest value it can give, None if there are none (intervals of means keep to them);
    ``ablation`` says how it departs from the environment's own objective, for the run to record, None if it does not.
    """

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and greatest value."""
        ...

    @property
    def ablation(self) -> str | None:
        """How this departs from the environment's own objective."""
        ...

    def reward(self, outcome: Outcome) -> Reward:
        """Return the reward.

        Raises:
            RewardError: the outcome lacks what this policy needs.
        """
        ...
