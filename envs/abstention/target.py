"""What an abstention task is graded against: one reference, several of which any is right, or none because no answer is
right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gavel.envs.types import TaskError
from gavel.models.codec import decode, record
from gavel.models.errors import shorten_value

SEVERAL = (
    'several accepted answers: "answer": ["…", "…"], or "answer": "…" with "aliases": ["…"]; '
    'no answer is right (abstaining is): "answerable": false and no answer; docs/prepare.md'
)
"""How a row says what its ``answer`` alone cannot."""
_HOW = (
    'one answer: "reference": "…"; several of which any is right: "references": ["…", "…"]; no answer is right: '
    '"answerable": false'
)


@record
class AbstentionTarget:
    """The question as asked and the reference answer; neither is blank."""

    question: str
    reference: str

    @property
    def references(self) -> tuple[str, ...]:
        """The accepted answers."""
        return (self.reference,)


@record
class AnyOfTarget:
    """A question with two or more accepted answers, none of them blank: an answer that is any of them is right."""

    question: str
    references: tuple[str, ...]


@record
class NoAnswerTarget:
    """A question that has no right answer: to abstain is right, and whatever is answered is wrong."""

    question: str
    answerable: Literal[False]

    @property
    def references(self) -> tuple[str, ...]:
        """The accepted answers: none."""
        return ()


Target = AbstentionTarget | AnyOfTarget | NoAnswerTarget
_FORMS: tuple[type[Target], ...] = (AbstentionTarget, AnyOfTarget, NoAnswerTarget)


def make_target(question: str, references: tuple[str, ...]) -> Target:
    """Return the target of a question with these accepted answers; one that stands twice counts once, none means that
    none is right.
    """
    different = tuple(dict.fromkeys(references))
    if not different:
        return NoAnswerTarget(question, answerable=False)
    return AbstentionTarget(question, different[0]) if len(different) == 1 else AnyOfTarget(question, different)


def parse_target(raw: Mapping[str, Any]) -> Target:
    """Read ``{question, reference}``, ``{question, references}`` or ``{question, answerable: false}``.

    Raises:
        TaskError: names the field (``target.question``).
    """
    if isinstance(raw, _FORMS):
        return raw
    return _check_texts(decode(_choose_form(raw), raw, prefix="target", error=TaskError))


def _choose_form(raw: Mapping[str, Any]) -> type[Target]:
    given = [name for name in ("reference", "references", "answerable") if name in raw]
    if len(given) != 1 or isinstance(raw.get("reference", ""), list | None):
        found = (
            ", ".join(f"{name}: {shorten_value(raw[name])}" for name in given)
            or f"the fields {', '.join(sorted(map(str, raw))) or '(none)'}"
        )
        raise TaskError(
            "a target says in one way what is right",
            field=f"target.{(given or ['reference'])[0]}",
            found=found,
            allowed="one of reference, references, answerable",
            remedy=_HOW,
        )
    return {"reference": AbstentionTarget, "references": AnyOfTarget, "answerable": NoAnswerTarget}[given[0]]


def _check_texts(target: Target) -> Target:
    several = isinstance(target, AnyOfTarget)
    if several and not target.references:
        raise TaskError(
            "this list is empty", field="target.references", found="[]", allowed="at least one answer", remedy=_HOW
        )
    texts = {"question": target.question}
    texts |= {f"references.{place}" if several else "reference": text for place, text in enumerate(target.references)}
    for field, text in texts.items():
        if not text.strip():
            raise TaskError(
                "this text is blank", field=f"target.{field}", allowed="a text with at least one visible character"
            )
    return make_target(target.question, target.references)
