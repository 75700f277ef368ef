"""The words of judging: query, grade, failure, rubric, binding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from gavel.judges.form_types import ANY_TARGET as ANY_TARGET
from gavel.judges.form_types import Control as Control
from gavel.judges.form_types import RubricForm
from gavel.models.codec import FieldError, record
from gavel.models.failures import ModelFailure
from gavel.models.types import Message, Receipt, ResponseFormat, Sampling


@record
class JudgeQuery:
    """One question to a judge: ``slots`` fill the bound rubric's template, ``prefix_key`` names the shared prefix (the
    question, a conversation), ``sample`` says which of several independent verdicts is wanted, ``retries`` how often it
    is asked anew where the reply cannot be read."""

    binding: str
    slots: Mapping[str, str]
    prefix_key: str = ""
    sample: int = 0
    retries: int = 1


@record
class Grade:
    """A judge's verdict: ``label`` from the rubric's closed set, ``score`` in [0, 1] where the rubric has one,
    ``parse`` how the reply was read (``exact``, …), ``raw`` the reply itself."""

    label: str
    score: float | None
    reasoning: str
    parse: str
    raw: str
    details: Mapping[str, Any]
    receipts: tuple[Receipt, ...]


@record
class RubricConfig:
    """A rubric as configured: ``profile`` names what grades (``nvidia/qa-abstention-v1``), or ``file`` holds it, a path
    until it is read; its profile is then the name that the file gives. The others are its sampling, None = the
    profile's own default."""

    profile: str = ""
    max_response_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    file: str | RubricForm | None = None


Combine = Literal["majority", "unanimous", "mean", "first"]
"""How the verdicts of several judges become one."""


@record
class CascadeConfig:
    """Two judges of which the second is asked only where the first is not to be trusted.

    Attributes:
        trusted: labels of the first judge that stand without the second one's.
        min_precision: what the share of right verdicts among those with a label must reach, by the lower end of its
            interval, for the label to be trusted; in [0, 1]. `gavel calibrate` chooses by it, certificates are held
            against it.
        samples: how often the first judge is asked; where its labels differ, so is the second.
    """

    trusted: tuple[str, ...] = ()
    min_precision: float = 0.9
    samples: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= 10:
            raise FieldError("samples", self.samples, "1 to 10")
        if not 0.0 <= self.min_precision <= 1.0:
            raise FieldError("min_precision", self.min_precision, "0 to 1")


@record
class BindingConfig:
    """A binding as configured: the service that judges, or several, and the rubric they judge with.

    Attributes:
        judge: a service's name; a list is a panel, or with ``cascade`` the cheap judge and the strong one.
        rubric: the rubric's name.
        combine: how the panel's verdicts become one; None: ``majority``.
        quorum: how many members must give a verdict; None: more than half, of ``unanimous`` all.
        cascade: asks the second judge only where it must.
    """

    judge: str | tuple[str, ...]
    rubric: str
    combine: Combine | None = None
    quorum: int | None = None
    cascade: CascadeConfig | None = None

    @property
    def judges(self) -> tuple[str, ...]:
        """The services that judge."""
        return (self.judge,) if isinstance(self.judge, str) else self.judge


@record
class Judging:
    """The bindings by name."""

    bindings: Mapping[str, BindingConfig]


class JudgeFailure(ModelFailure):
    """The judge gave no verdict; never a grade. Carries kind, reason, receipts and the raw text; of a panel also what
    its members said (``panel``), as ``Grade.details`` has it.
    """

    panel: Mapping[str, Any] | None = None


class Unparseable(Exception):
    """A reply off the rubric's contract; the judge asks anew as often as the query allows, then fails with
    ``judge_unparseable``.
    """


@record
class Verdict:
    """What ``Rubric.parse`` reads from a reply's text."""

    label: str
    parse: str
    score: float | None = None
    reasoning: str = ""
    details: Mapping[str, Any] | None = None


class Rubric(Protocol):
    """How a text is graded; frozen.

    ``digest`` covers the text, the response format, sampling and the parser's version.
    """

    @property
    def profile(self) -> str:
        """The name it is configured by."""
        ...

    @property
    def targets(self) -> tuple[str, ...]:
        """The target formats it can grade, e.g. ``nemo_abstention_v1``; ``*`` is any."""
        ...

    @property
    def slots(self) -> tuple[str, ...]:
        """The names ``render`` needs a text for."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The closed set of labels a verdict can have."""
        ...

    @property
    def sampling(self) -> Sampling:
        """What its replies are drawn with."""
        ...

    @property
    def response_format(self) -> ResponseFormat | None:
        """The closed form asked of the server, if any."""
        ...

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of what decides its verdicts."""
        ...

    @property
    def controls(self) -> tuple[Control, ...]:
        """Questions with known answers."""
        ...

    def render(self, slots: Mapping[str, str]) -> tuple[Message, ...]:
        """Fill the template in one pass; values are never scanned again.

        Raises:
            InputError: a slot is missing or unknown.
        """
        ...

    def parse(self, text: str) -> Verdict:
        """Read a complete reply.

        Raises:
            Unparseable: the reply is off the contract.
        """
        ...

    def flags(self, slots: Mapping[str, str]) -> tuple[str, ...]:
        """Name what is hostile in the texts to be judged (``chat_template_token``, ``control_character``, …)."""
        ...


def is_target_taken(rubric: Rubric, target: str) -> bool:
    """Tell whether a rubric grades tasks with this target format."""
    return target in rubric.targets or ANY_TARGET in rubric.targets


@runtime_checkable
class TokenGuarding(Protocol):
    """A rubric that can neutralise the special tokens of the judge that is asked; ``digest`` does not change, since
    they go with the model, which is part of a binding's identity."""

    @property
    def guards_tokens(self) -> bool:
        """Whether it does; a ported rubric sends exact bytes."""
        ...

    def guard_tokens(self, tokens: tuple[str, ...]) -> Rubric:
        """Return the rubric for a judge with these special tokens."""
        ...


class Judge(Protocol):
    """Grades queries with the rubrics bound to their names."""

    async def grade(self, query: JudgeQuery) -> Grade:
        """Return the verdict on one query.

        Raises:
            JudgeFailure: no verdict; says kind and reason and keeps the receipts.
        """
        ...

    def rubric(self, binding: str) -> Rubric:
        """Return the rubric a binding grades with.

        Raises:
            ConfigError: there is no such binding.
        """
        ...


@record
class StoredAnswer:
    """An answered judge question in a run's journal, enough to grade again without a call and to show the prompt again;
    ``receipts`` are of every call made for it. ``unread``: the reply was not whole, so that no verdict may be read from
    it."""

    key: str
    binding: str
    slots: Mapping[str, str]
    rubric_digest: str
    raw: str
    receipts: tuple[Receipt, ...]
    unread: bool = False


class AnswerLog(Protocol):
    """Where answered judge questions of one row are kept, so that a replay does not ask them again."""

    def find(self, key: str) -> StoredAnswer | None:
        """Return the answer kept under ``key``."""
        ...

    def keep(self, answer: StoredAnswer) -> None:
        """Store an answer before anything else is done with it."""
        ...
