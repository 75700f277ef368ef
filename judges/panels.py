"""Panels and cascades: judges made of judges. How the verdicts of several become one, without a call of its own.

A member that fails leaves the panel; with fewer verdicts than the quorum there is none. A grade's ``details.panel``
says how they were combined (``combine``), which labels there are (``labels``), and has each member's label by its
service for each thing that was asked about (``votes``): by the number of a criterion, or ``ONE`` for the only one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from gavel.judges.form_types import VERDICTS
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.types import Combine, Grade, JudgeFailure, JudgeQuery, Rubric
from gavel.models.codec import record
from gavel.models.failures import KINDS, FailureKind
from gavel.models.types import Receipt

ONE = ""
"""Stands for the one thing that was asked about."""
PANEL = "panel"
SAMPLE_STEP = 500_000
"""Added to a query's sample for each further sample of a cascade's first judge: draws that no rollout asks for."""
CASCADE: Final = "cascade"

_STOPPED = (FailureKind.CANCELLED, FailureKind.SHUTDOWN)
"""Kinds by which we stopped a member ourselves: the panel is then not asked to the end, and gives no verdict."""

Ask = Callable[[JudgeQuery], Awaitable[Grade]]


@record
class PanelRule:
    """How the verdicts of ``members`` (services) become one.

    Attributes:
        members: the services, in the order of the config.
        combine: as in ``BindingConfig``, or ``cascade``.
        quorum: how many of them must give a verdict.
        trusted: of a cascade, labels of the first that stand without the second.
        samples: of a cascade, how often the first is asked.
        min_precision: of a cascade, what makes a label trusted; see ``CascadeConfig``.
    """

    members: tuple[str, ...]
    combine: Combine | Literal["cascade"]
    quorum: int
    trusted: tuple[str, ...] = ()
    samples: int = 1
    min_precision: float = 0.9

    def describe(self) -> str:
        """Return the rule in words: ``panel of a, b, c (majority, quorum 2)``."""
        if self.combine == CASCADE:
            trusted = ", ".join(self.trusted) or "no label"
            more = f", {self.samples} samples" if self.samples > 1 else ""
            return f"cascade of {', then '.join(self.members)} (trusts {trusted}{more})"
        return f"panel of {', '.join(self.members)} ({self.combine}, quorum {self.quorum})"


@dataclass(frozen=True, slots=True)
class Voice:
    """A member's verdict, or why there is none."""

    member: str
    said: Grade | JudgeFailure

    @property
    def labels(self) -> Mapping[str, str]:
        """Its label for each thing that was asked about."""
        if not isinstance(self.said, Grade):
            return {}
        numbered: Mapping[str, str] | None = self.said.details.get(VERDICTS)
        return {ONE: self.said.label} if numbered is None else numbered


async def ask_panel(rule: PanelRule, rubric: Rubric, query: JudgeQuery, ask: Mapping[str, Ask]) -> Grade:
    """Ask the members and return the panel's verdict.

    Members are asked at once; of ``first`` the next only where one has no verdict, of a cascade the second only where
    the first is not trusted.

    Args:
        rule: how verdicts become one.
        rubric: what all of them judge with.
        query: the question.
        ask: puts a question to a member, by its name.

    Raises:
        JudgeFailure: too few verdicts, or they do not agree; with the receipts of all members.
    """

    async def hear(member: str, sample: int = 0) -> Voice:
        try:
            asked = replace(query, sample=query.sample + sample * SAMPLE_STEP)
            return Voice(member, await ask[member](asked))
        except JudgeFailure as failed:
            return Voice(member, failed)

    if rule.combine == "first":
        voices = []
        for member in rule.members:
            voices.append(await hear(member))
            if isinstance(voices[-1].said, Grade) or voices[-1].said.kind in _STOPPED:
                break
    elif rule.combine == CASCADE:
        first, second = rule.members
        voices = list(await asyncio.gather(*(hear(first, sample) for sample in range(rule.samples))))
        if needs_second(rule, voices):
            voices.append(await hear(second))
    else:
        voices = list(await asyncio.gather(*map(hear, rule.members)))
    said = combine_voices(rule, rubric, voices)
    if isinstance(said, JudgeFailure):
        raise said
    return said


def replay_panel(
    rule: PanelRule, rubric: Rubric, said: Mapping[str, Sequence[Grade | JudgeFailure]]
) -> Grade | JudgeFailure:
    """Return what the panel comes to if its members say this; nobody is asked.

    Args:
        rule: how verdicts become one.
        rubric: what all of them judge with.
        said: by member its verdict; of a cascade's first judge one for each sample.
    """
    voices = [Voice(member, one) for member in rule.members for one in said[member]]
    if rule.combine == CASCADE and not needs_second(rule, first := voices[: len(said[rule.members[0]])]):
        voices = first
    return combine_voices(rule, rubric, voices)


def needs_second(rule: PanelRule, voices: Sequence[Voice]) -> bool:
    """Tell whether a cascade's second judge is asked: the first has no verdict, one that is not trusted, or two."""
    if any(isinstance(voice.said, JudgeFailure) and voice.said.kind in _STOPPED for voice in voices):
        return False
    labels = [voice.labels for voice in voices]
    return any(not one or one != labels[0] or not set(one.values()) <= set(rule.trusted) for one in labels)


def combine_voices(rule: PanelRule, rubric: Rubric, voices: Sequence[Voice]) -> Grade | JudgeFailure:
    """Return what the voices come to, or why they come to nothing; with the receipts of all of them."""
    receipts = tuple(receipt for voice in voices for receipt in voice.said.receipts)
    failures = [voice.said for voice in voices if isinstance(voice.said, JudgeFailure)]
    stopped = next((failed for failed in failures if failed.kind in _STOPPED), None)
    if stopped is not None:
        return JudgeFailure(stopped.kind, stopped.reason, receipts, stopped.raw)
    known = _choose_counted(rule, voices)
    chosen: dict[str, str] = {}
    for item in dict.fromkeys(item for voice in known for item in voice.labels):
        votes = [(voice, voice.labels[item]) for voice in known if item in voice.labels]
        if len(votes) >= rule.quorum and (label := _choose_label(rule, rubric, votes)) is not None:
            chosen[item] = label
    if chosen:
        return _make_panel_grade(rule, rubric, voices, known, chosen, receipts)
    kind, reason = _explain_none(rule, known, voices)
    raw = _join_said([(voice.member, voice.said.raw or "") for voice in voices])
    failed = JudgeFailure(kind, reason, receipts, raw)
    failed.panel = describe_votes(rule, rubric, voices)
    return failed


def _choose_counted(rule: PanelRule, voices: Sequence[Voice]) -> list[Voice]:
    """Return the voices that count: of a cascade the last one that was asked, of ``first`` the first, else all."""
    if rule.combine == CASCADE:
        voices = voices[-1:]
    known = [voice for voice in voices if isinstance(voice.said, Grade)]
    return known[:1] if rule.combine == "first" else known


def _choose_label(rule: PanelRule, rubric: Rubric, votes: Sequence[tuple[Voice, str]]) -> str | None:
    counts = Counter(label for _, label in votes)
    if rule.combine == "mean":
        scores = read_label_scores(rubric)
        mean = _compute_mean(rubric, votes)
        order = {label: place for place, label in enumerate(rubric.labels)}
        return min(scores, key=lambda label: (abs(scores[label] - mean), -scores[label], -counts[label], order[label]))
    label, most = counts.most_common(1)[0]
    needed = len(votes) if rule.combine == "unanimous" else len(votes) // 2 + 1
    return label if most >= needed else None


def _compute_mean(rubric: Rubric, votes: Sequence[tuple[Voice, str]]) -> float:
    scores = read_label_scores(rubric)
    found = [_read_score(voice, label, scores) for voice, label in votes]
    return sum(score or 0.0 for score in found) / len(found)


def _read_score(voice: Voice, label: str, scores: Mapping[str, float]) -> float | None:
    if isinstance(voice.said, Grade) and VERDICTS not in voice.said.details:
        return voice.said.score
    return scores.get(label)


def read_label_scores(rubric: Rubric) -> Mapping[str, float]:
    """Return the score of each label; empty for a rubric whose labels have none."""
    return rubric.form.scores if isinstance(rubric, PromptRubric) and rubric.form is not None else {}


def _make_panel_grade(
    rule: PanelRule,
    rubric: Rubric,
    voices: Sequence[Voice],
    known: Sequence[Voice],
    chosen: Mapping[str, str],
    receipts: tuple[Receipt, ...],
) -> Grade:
    item, label = next(iter(chosen.items()))
    agreeing = [voice for voice in known if rule.combine == "mean" or voice.labels.get(item) == label]
    scores = [_read_score(voice, label, read_label_scores(rubric)) for voice in agreeing]
    score = None if any(one is None for one in scores) else sum(one or 0.0 for one in scores) / len(scores)
    grades = [(voice.member, voice.said) for voice in voices if isinstance(voice.said, Grade)]
    flags = tuple(dict.fromkeys(flag for _, said in grades for flag in said.details.get("flags", ())))
    details: dict[str, Any] = {
        "parse": rule.combine,
        "calls": len(receipts),
        PANEL: describe_votes(rule, rubric, voices),
    }
    details |= {"flags": flags} if flags else {}
    if item != ONE:
        details |= {VERDICTS: dict(chosen), "reasons": {one: _join_reasons(known, one) for one in chosen}}
    reasons = [(voice.member, voice.said.reasoning) for voice in agreeing if isinstance(voice.said, Grade)]
    return Grade(
        label,
        score,
        _join_said(reasons),
        rule.combine,
        _join_said([(member, said.raw) for member, said in grades]),
        details,
        receipts,
    )


def _join_reasons(known: Sequence[Voice], item: str) -> str:
    said = [(voice.member, voice.said) for voice in known]
    return _join_said(
        [(member, one.details.get("reasons", {}).get(item, "")) for member, one in said if isinstance(one, Grade)]
    )


def _join_said(said: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{member}: {text}" for member, text in said if text)


def describe_votes(rule: PanelRule, rubric: Rubric, voices: Sequence[Voice]) -> dict[str, Any]:
    """Return what the members said, as a grade's ``details.panel``; of several samples of one member the first."""
    votes: dict[str, dict[str, str]] = {}
    for voice in voices:
        for item, label in voice.labels.items():
            votes.setdefault(item, {}).setdefault(voice.member, label)
    return {"combine": rule.combine, "labels": list(rubric.labels), "votes": votes}


def _explain_none(rule: PanelRule, known: Sequence[Voice], voices: Sequence[Voice]) -> tuple[FailureKind, str]:
    """Return why there is no verdict: the members differ, or too few have one. The kind is then that of a member which
    may yet give one, of a cascade that of its last judge.
    """
    if len(known) >= rule.quorum:
        said = "; ".join(f"{voice.member}: {', '.join(voice.labels.values())}" for voice in known)
        return FailureKind.PANEL_SPLIT, f"the members of the panel ({rule.combine}) do not agree: {said}"
    failed = [(voice.member, voice.said) for voice in voices if isinstance(voice.said, JudgeFailure)]
    kinds = [said.kind for _, said in failed]
    why = "; ".join(f"{member}: {said}" for member, said in failed)
    if rule.combine == CASCADE:
        return kinds[-1], f"the last judge of the cascade gave no verdict: {why}"
    kind = next((one for one in kinds if not KINDS[one].terminal), kinds[0])
    return kind, f"{len(known)} of {len(rule.members)} judges gave a verdict, {rule.quorum} must: {why}"
