"""A rubric as data: what its files say, before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from gavel.judges.pairs.rules import PairRule
from gavel.models.codec import FieldError, record

ReaderKind = Literal["json", "last_line", "choice", "score"]
ANY_TARGET = "*"
"""The target format of a rubric that grades any."""
ENDS = ("low", "high")
"""What the labels of a score are called: the halves of its range."""


FIELD_SOURCE_TARGET = "target."
"""Begins the source of a slot whose text is a field of the task's target."""
RIVAL = "rival.visible"
"""The source of the slot with the reply of another run, in `gavel duel`."""
POLICY_SOURCES = ("reply.visible", "reply.text", "reply.all", "reply.answer", "transcript.visible", RIVAL)
"""Sources of a slot with words of the policy: the last reply without its thinking, with it, all replies, the answer
that an environment finds in the reply, everything that was said, and the reply it is compared with."""
ABSENT = "(none)"
"""What stands in a slot whose text is absent."""


@record
class Control:
    """A known answer: with ``slots`` the judge must give one of ``expected`` labels."""

    name: str
    slots: Mapping[str, str]
    expected: tuple[str, ...]


@record
class ReplyForm:
    """How a judge's reply is read.

    Attributes:
        reader: ``json`` (an object whose member ``verdict`` is a label), ``choice`` (one word and nothing else),
            ``last_line`` (a last line that is a label, after any text) or ``score`` (an object whose member ``verdict``
            is a number).
        verdict: the member with the verdict, and the word that may stand before it in a line.
        reasoning: the member with the judge's reasons, before the verdict; empty: none is asked for.
        words: what the judge writes for each label, where that is not the label itself: word -> label.
    """

    reader: ReaderKind
    verdict: str = "verdict"
    reasoning: str = ""
    words: Mapping[str, str] = field(default_factory=dict)


@record
class FormSampling:
    """What replies are drawn with; None is not sent."""

    temperature: float | None = 0.0
    top_p: float | None = None
    max_response_tokens: int | None = 512
    reasoning_effort: str | None = None


FENCE = "fence"
"""The placeholder for a line of backticks that is longer than any in a hostile slot."""
NUMBER, VERDICTS = "number", "verdicts"
"""Members of a reply about several criteria."""
CRITERION = "criterion"
"""The source of the slot with the criteria that are asked about."""


@record
class CriteriaForm:
    """A rubric that is asked about the task's own criteria: ``batch`` of them in one question, each by its number."""

    batch: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 100:
            raise FieldError("batch", self.batch, "1 to 100")


@record
class PairForm:
    """A rubric that says which of two texts is better; it is asked in both orders.

    Attributes:
        first: the slot whose text is graded.
        second: the slot with the text that it is compared with.
        rule: how the verdicts of the two orders become one.
    """

    first: str
    second: str
    rule: PairRule = "agree"

    def swap_slots(self, slots: Mapping[str, str]) -> dict[str, str]:
        """Return the slots with the two texts in each other's place."""
        return {**slots, self.first: slots[self.second], self.second: slots[self.first]}


@record
class RubricForm:
    """A rubric as it was read from its files.

    Attributes:
        name: its profile's name, ``owner/name``.
        slots: where the text of each slot comes from, such as ``task.last_user``, ``target.reference?`` (``?``: may be
            absent) and ``reply.visible``.
        prompt: the template; ``{slot}`` stands for a slot, ``{fence}`` for a line of backticks around hostile text.
        reply: how the verdict is read.
        labels: each label with its score in [0, 1]; of a ``score`` its range, ``low`` and ``high``.
        hostile: the slots whose text is under judgement.
        controls: known answers.
        sampling: what replies are drawn with.
        targets: the target formats it grades; ``*`` is any.
        attacks: for attacks whose right label is not the general one (an empty reply that is ``harmless``): name ->
            labels.
        criteria: the rubric asks about each of the task's ``target.criteria``; None: it asks once.
        pair: the rubric compares the texts of two slots; None: it grades one.
        neutralise: False sends exact bytes, as a rubric that is ported must.
        path: where it was read; in no digest.
        files: the digest of each file it was read from.
    """

    name: str
    slots: Mapping[str, str]
    prompt: str
    reply: ReplyForm
    labels: Mapping[str, float]
    hostile: tuple[str, ...]
    controls: tuple[Control, ...]
    sampling: FormSampling = FormSampling()
    targets: tuple[str, ...] = (ANY_TARGET,)
    attacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    criteria: CriteriaForm | None = None
    pair: PairForm | None = None
    neutralise: bool = True
    path: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, str]:
        """Each slot's source, without the mark of one that may be absent."""
        return {slot: source.removesuffix("?") for slot, source in self.slots.items()}

    @property
    def placeholders(self) -> frozenset[str]:
        """What the prompt may name: its slots, and the fence where it has one."""
        return frozenset(self.slots) | ({FENCE} if f"{{{FENCE}}}" in self.prompt else set())

    @property
    def numbered(self) -> bool:
        """Whether several criteria are asked about at once, so that each verdict bears a number."""
        return self.criteria is not None and self.criteria.batch > 1

    @property
    def optional(self) -> frozenset[str]:
        """The slots whose text may be absent."""
        return frozenset(slot for slot, source in self.slots.items() if source.endswith("?"))

    @property
    def words(self) -> dict[str, str]:
        """What the judge writes: word -> label; empty for a score."""
        if self.reply.reader == "score":
            return {}
        return dict(self.reply.words) or {label: label for label in self.labels}

    @property
    def scores(self) -> dict[str, float]:
        """Each label with its score in [0, 1]."""
        return dict.fromkeys(ENDS, 0.0) | {"high": 1.0} if self.reply.reader == "score" else dict(self.labels)
