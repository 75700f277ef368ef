"""Probe of a bound judge: known answers, attacks, identity, overflow, determinism, throughput; qualified or not, and
why.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gavel.judges.bindings import Binding
from gavel.judges.pairs.mirror import SWAPPED
from gavel.judges.pairs.rules import TIE
from gavel.judges.panels import replay_panel
from gavel.judges.probing.attacks import list_attacks
from gavel.judges.probing.identity import IdentityCheck, ServerFacts, check_identity
from gavel.judges.probing.reader_checks import check_reader
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.rubrics.table import PROFILES
from gavel.judges.types import Control, Grade, Judge, JudgeFailure, JudgeQuery, Rubric
from gavel.models.codec import record
from gavel.models.errors import shorten_value
from gavel.models.failures import FailureKind
from gavel.models.types import Receipt

REPEATS = 3
"""Calls per control for determinism and throughput."""

CheckKind = Literal["control", "attack", "environment", "reader"]
"""``environment``: from a policy's text through the whole environment to its reward; ``reader``: replies that only
quote a verdict.
"""


@record
class CheckRow:
    """One known answer and what came: ``got`` is a label, or a failure kind where ``graded`` is False."""

    kind: CheckKind
    name: str
    expected: tuple[str, ...]
    got: str
    passed: bool
    graded: bool = True
    detail: str = ""
    flags: tuple[str, ...] = ()


@record
class Overflow:
    """An overlong candidate must be refused as ``gavel:context_overflow``; ``passed`` is None where the context is not
    known.
    """

    passed: bool | None
    got: str
    tokens: int


@record
class Determinism:
    """``flip_rate``: share of repeated calls whose label is not the most frequent one of its question; ``calls``
    made.
    """

    flip_rate: float
    calls: int


@record
class PositionFlips:
    """``rate``: the share of pairs of texts, both orders graded, in which the judge named one place twice; ``pairs`` of
    controls that were asked in both orders.
    """

    rate: float
    pairs: int


@record
class Throughput:
    """Calls and tokens (prompt and reply) per second at ``concurrency``; prompts repeat, so a prefix cache helps."""

    calls_per_s: float
    tokens_per_s: float | None
    concurrency: int


@record
class ProbeReport:
    """What a probe of one binding found."""

    binding: str
    rows: tuple[CheckRow, ...]
    identity: IdentityCheck | None
    overflow: Overflow | None
    determinism: Determinism | None
    throughput: Throughput | None
    server: ServerFacts | None = None
    positions: PositionFlips | None = None

    @property
    def graded(self) -> int:
        """How many controls and attacks the judge gave a verdict on; an environment's rules may decide without it."""
        return sum(row.graded for row in self.rows if row.kind in ("control", "attack"))

    @property
    def failed(self) -> tuple[str, ...]:
        """What keeps the judge from qualifying, in the order of the report; empty if nothing does."""
        rows = [
            f"{row.kind} {row.name}: expected {' or '.join(row.expected)}, got {row.got}"
            for row in self.rows
            if not row.passed
        ]
        identity = [f"identity: {problem}" for problem in self.identity.problems] if self.identity else []
        overflow = []
        if self.overflow is not None and self.overflow.passed is False:
            what = f"overflow: an answer of {self.overflow.tokens} tokens"
            overflow.append(f"{what}: expected {FailureKind.CONTEXT_OVERFLOW}, got {self.overflow.got}")
        return (*identity, *rows, *overflow)

    @property
    def qualified(self) -> bool:
        """Whether every check that was made passed."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class _Asked:
    control: Control
    grade: Grade | None
    failure: JudgeFailure | None

    @property
    def got(self) -> str:
        return self.grade.label if self.grade else str(self.failure.kind) if self.failure else ""

    @property
    def said(self) -> Grade | JudgeFailure:
        said = self.grade or self.failure
        assert said is not None
        return said

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        return self.grade.receipts if self.grade else self.failure.receipts if self.failure else ()


@dataclass(frozen=True, slots=True)
class KnownAnswers:
    """What came back on a rubric's controls and on the attacks, in their order."""

    controls: Sequence[_Asked]
    attacks: Sequence[_Asked]

    def make_rows(self) -> tuple[CheckRow, ...]:
        """Return a row for each."""
        return (
            *(_make_row("control", answer) for answer in self.controls),
            *(_make_row("attack", answer) for answer in self.attacks),
        )


GradeControl = Callable[[Control], Awaitable[Grade]]


async def run_controls(
    kind: CheckKind, controls: Sequence[Control], grade: GradeControl, *, concurrency: int = 16
) -> tuple[CheckRow, ...]:
    """Put known answers to anything that grades, and compare labels; a failure is a row that did not pass."""
    asked = await _ask_all(controls, grade, concurrency)
    return tuple(_make_row(kind, answer) for answer in asked)


async def probe_answers(
    binding: Binding,
    judge: Judge,
    *,
    server: ServerFacts | None = None,
    concurrency: int = 16,
    repeats: int = REPEATS,
    fingerprint: str | None = None,
) -> tuple[ProbeReport, KnownAnswers]:
    """Probe one binding, and return its answers too: of a panel, the whole is read off those of its members.

    Args:
        binding: what is probed.
        judge: grades with it; made ``fresh``, so that nothing is answered from a cache.
        server: what the judge's server says of itself (``identity.inspect_server``), if it could be asked.
        concurrency: calls in flight.
        repeats: calls per control for determinism and throughput; below 2 neither is measured.
        fingerprint: of an earlier certificate of this binding, to notice another model under the same name.
    """
    grade = make_grader(binding, judge)
    controls = await _ask_all(binding.rubric.controls, grade, concurrency)
    attacks = await _ask_all(list_attacks(binding.rubric), grade, concurrency)
    receipts = [receipt for answer in (*controls, *attacks) for receipt in answer.receipts]
    identity = None
    if binding.judge is not None:
        identity = check_identity(
            binding.judge,
            server or ServerFacts(),
            receipts,
            [_count_prompt_tokens(answer) for answer in controls],
            fingerprint,
        )
    overflow = await _check_overflow(binding, grade, server)
    determinism, throughput = await _repeat_controls(controls, grade, concurrency, repeats)
    known = KnownAnswers(controls, attacks)
    rows = (*known.make_rows(), *read_quotations(binding.rubric))
    positions = _measure_positions(rows)
    return ProbeReport(binding.name, rows, identity, overflow, determinism, throughput, server, positions), known


def report_panel(panel: Binding, members: Sequence[KnownAnswers]) -> ProbeReport:
    """Return the report of a panel, from what each member answered, in their order; nobody is asked again."""
    rule = panel.rule
    assert rule is not None, "a binding with members has a rule"

    def join_answers(answers: Sequence[_Asked]) -> _Asked:
        said = {name: [one.said] for name, one in zip(rule.members, answers, strict=True)}
        found = replay_panel(rule, panel.rubric, said)
        grade, failure = (found, None) if isinstance(found, Grade) else (None, found)
        return _Asked(answers[0].control, grade, failure)

    joined = KnownAnswers(
        [join_answers(answers) for answers in zip(*(one.controls for one in members), strict=True)],
        [join_answers(answers) for answers in zip(*(one.attacks for one in members), strict=True)],
    )
    rows = joined.make_rows()
    return ProbeReport(panel.name, rows, None, None, None, None, positions=_measure_positions(rows))


def _measure_positions(rows: Sequence[CheckRow]) -> PositionFlips | None:
    """Return how often the place decided; None for a rubric that compares nothing."""
    got = {row.name: row.got for row in rows if row.kind == "control" and row.graded}
    both = [(label, got[name + SWAPPED]) for name, label in got.items() if name + SWAPPED in got]
    if not both:
        return None
    return PositionFlips(sum(one == other and one != TIE for one, other in both) / len(both), len(both))


def read_quotations(rubric: Rubric) -> Iterator[CheckRow]:
    """Yield a row for each quoted verdict that a rubric's reader takes for the judge's own; nothing for the profiles of
    ours, whose tests say what they read."""
    if rubric.profile in PROFILES:
        return
    for name, label, reply in check_reader(rubric):
        yield CheckRow(
            "reader",
            name,
            ("no verdict of a quoted text",),
            label,
            passed=False,
            detail=f"reply: {shorten_value(reply)}",
        )


def make_grader(binding: Binding, judge: Judge) -> GradeControl:
    """Return the function that puts a known answer to a bound judge."""

    async def grade_control(control: Control) -> Grade:
        return await judge.grade(
            JudgeQuery(binding.name, control.slots, prefix_key=control.slots.get("question", control.name))
        )

    return grade_control


async def _ask_all(controls: Sequence[Control], grade: GradeControl, concurrency: int) -> list[_Asked]:
    gate = asyncio.Semaphore(concurrency)

    async def ask_one(control: Control) -> _Asked:
        async with gate:
            try:
                return _Asked(control, await grade(control), None)
            except JudgeFailure as failed:
                return _Asked(control, None, failed)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask_one(control)) for control in controls]
    return [task.result() for task in tasks]


def _make_row(kind: CheckKind, asked: _Asked) -> CheckRow:
    expected, grade = asked.control.expected, asked.grade
    passed = grade is not None and grade.label in expected
    if asked.failure is not None:
        detail = (
            f"{asked.failure.reason}; reply: {shorten_value(asked.failure.raw)}"
            if asked.failure.raw
            else asked.failure.reason
        )
    else:
        detail = f"reply: {shorten_value(grade.raw)}" if grade is not None else ""
    flags = tuple(grade.details.get("flags", ())) if grade is not None else ()
    return CheckRow(kind, asked.control.name, expected, asked.got, passed, grade is not None, detail, flags)


def _count_prompt_tokens(asked: _Asked) -> int | None:
    usage = asked.receipts[0].usage if asked.receipts else None
    return usage.prompt_tokens if usage else None


async def _check_overflow(binding: Binding, grade: GradeControl, server: ServerFacts | None) -> Overflow | None:
    """Ask with an answer longer than the context: it must be refused by name, never cut and graded."""
    controls, judged = binding.rubric.controls, _find_judged_slot(binding.rubric)
    configured = binding.judge.max_context_length if binding.judge else None
    limit = configured or (server.max_model_len if server else None)
    if not controls or judged not in controls[0].slots:
        return None
    if limit is None:
        return Overflow(None, "not checked: the context length is not known", 0)
    words = limit + 256  # each word is at least one token
    long = replace(controls[0], slots={**controls[0].slots, judged: "word " * words})
    (asked,) = await _ask_all([long], grade, 1)
    return Overflow(asked.got == FailureKind.CONTEXT_OVERFLOW, asked.got, words)


def _find_judged_slot(rubric: Rubric) -> str:
    return rubric.judged if isinstance(rubric, PromptRubric) and rubric.form is not None else "answer"


async def _repeat_controls(
    first: Sequence[_Asked], grade: GradeControl, concurrency: int, repeats: int
) -> tuple[Determinism | None, Throughput | None]:
    controls = [asked.control for asked in first if asked.grade is not None]
    if repeats < 2 or not controls:
        return None, None
    began = time.monotonic()
    again = await _ask_all(controls * (repeats - 1), grade, concurrency)
    took = max(time.monotonic() - began, 1e-9)
    usages = [receipt.usage for asked in again for receipt in asked.receipts]
    tokens = None if None in usages else sum(usage.prompt_tokens + usage.completion_tokens for usage in usages if usage)
    throughput = Throughput(len(again) / took, tokens / took if tokens is not None else None, concurrency)
    return _measure_determinism([*(asked for asked in first if asked.grade), *again]), throughput


def _measure_determinism(asked: Sequence[_Asked]) -> Determinism:
    by_name: dict[str, Counter[str]] = {}
    for answer in asked:
        by_name.setdefault(answer.control.name, Counter())[answer.got] += 1
    flips = sum(sum(labels.values()) - max(labels.values()) for labels in by_name.values())
    return Determinism(flips / len(asked), len(asked))
