"""Calibration: a bound judge grades labelled answers, and its agreement with the labels is measured."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gavel.judges.bindings import Binding
from gavel.judges.calibration import statistics
from gavel.judges.calibration.cascades import Verdicts, measure_cascade
from gavel.judges.calibration.labelled import LabelledItem, LabelledSet
from gavel.judges.calibration.report import CalibrationReport, SliceRow
from gavel.judges.calibration.statistics import DRAWS, Interval
from gavel.judges.panels import CASCADE, SAMPLE_STEP, replay_panel
from gavel.judges.types import Grade, Judge, JudgeFailure, JudgeQuery


@dataclass(frozen=True, slots=True)
class Swap:
    """A rubric of two texts: the slots that change places, and the label each label becomes when they do."""

    first: str
    second: str
    mirror: Mapping[str, str]


async def calibrate_judge(
    binding: Binding,
    judge: Judge,
    labelled: LabelledSet,
    *,
    concurrency: int = 16,
    repeats: int = 1,
    swap: Swap | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> CalibrationReport:
    """Grade every item and measure the agreement.

    Args:
        binding: what is calibrated.
        judge: grades with it; made ``fresh``, so that nothing is answered from a cache.
        labelled: the labelled answers.
        concurrency: calls in flight.
        repeats: verdicts per item; the first counts for agreement, all of them for the flip rate.
        swap: for a rubric of two texts, how to change their order.
        draws: bootstrap draws.
        seed: of the bootstrap.
    """
    rounds = [
        await _grade_all(binding, judge, [item.slots for item in labelled.items], concurrency)
        for _ in range(max(1, repeats))
    ]
    swapped = None
    if swap is not None:
        turned = [
            {**item.slots, swap.first: item.slots[swap.second], swap.second: item.slots[swap.first]}
            for item in labelled.items
        ]
        swapped = _compute_swap_rate(rounds[0], await _grade_all(binding, judge, turned, concurrency), swap)
    return make_report(binding, labelled, rounds, swap_rate=swapped, draws=draws, seed=seed)


async def calibrate_panel(
    panel: Binding,
    judge: Judge,
    labelled: LabelledSet,
    *,
    concurrency: int = 16,
    repeats: int = 1,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[CalibrationReport, ...]:
    """Let each member of a panel grade every item; return the members' reports and, from the same verdicts, the
    panel's.

    A cascade that trusts no label yet is measured with those that one half of the items says it may trust.

    Args:
        panel: a binding with members.
        judge: grades with each of them; made ``fresh``.
        labelled: the labelled answers.
        concurrency: calls in flight.
        repeats: verdicts per item of each member.
        draws: bootstrap draws.
        seed: of the bootstrap.
    """
    rule, slots = panel.rule, [item.slots for item in labelled.items]
    assert rule is not None, "a binding with members has a rule"
    samples = {member.service: 1 for member in panel.members} | {rule.members[0]: rule.samples}
    rounds: list[dict[str, list[Verdicts]]] = [
        {
            member.service: [
                await _grade_all(member, judge, slots, concurrency, sample * SAMPLE_STEP)
                for sample in range(samples[member.service])
            ]
            for member in panel.members
        }
        for _ in range(max(1, repeats))
    ]
    cascade = None
    if rule.combine == CASCADE:
        cascade = measure_cascade(rule, panel.rubric, labelled, rounds[0])
        rule = replace(rule, trusted=cascade.trusted)
    joined = [
        [
            replay_panel(rule, panel.rubric, {name: [one[place] for one in drawn] for name, drawn in said.items()})
            for place in range(len(slots))
        ]
        for said in rounds
    ]
    own = [
        make_report(member, labelled, [said[member.service][0] for said in rounds], draws=draws, seed=seed)
        for member in panel.members
    ]
    whole = make_report(panel, labelled, joined, draws=draws, seed=seed)
    return (*own, replace(whole, cascade=cascade))


async def _grade_all(
    binding: Binding, judge: Judge, slots: Sequence[Mapping[str, str]], concurrency: int, sample: int = 0
) -> Verdicts:
    gate = asyncio.Semaphore(concurrency)
    first = binding.rubric.slots[0]

    async def grade_one(texts: Mapping[str, str]) -> Grade | JudgeFailure:
        async with gate:
            try:
                return await judge.grade(JudgeQuery(binding.name, texts, prefix_key=texts[first], sample=sample))
            except JudgeFailure as failed:
                return failed

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(grade_one(texts)) for texts in slots]
    return [task.result() for task in tasks]


def make_report(
    binding: Binding,
    labelled: LabelledSet,
    rounds: Sequence[Verdicts],
    *,
    swap_rate: float | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> CalibrationReport:
    """Make the report from verdicts that are there: ``rounds`` holds one list per repetition, each in the items'
    order.
    """
    labels, first = binding.rubric.labels, rounds[0]
    graded = [
        (item, verdict) for item, verdict in zip(labelled.items, first, strict=True) if isinstance(verdict, Grade)
    ]
    table = _make_table(graded, labels)
    accuracy, kappa, alpha = _compute_figures(graded, labels, draws, seed)
    return CalibrationReport(
        binding=binding.name,
        data_digest=labelled.digest,
        items=len(labelled.items),
        reviewed_share=labelled.reviewed_share,
        labels=labels,
        confusion=tuple(tuple(int(count) for count in row) for row in table),
        accuracy=accuracy,
        kappa=kappa,
        alpha=alpha,
        slices=_compute_slices(graded, labels, draws, seed),
        parses=Counter(verdict.parse for _, verdict in graded),
        ungraded=Counter(str(verdict.kind) for verdict in first if isinstance(verdict, JudgeFailure)),
        flip_rate=_compute_flip_rate(rounds),
        swap_rate=swap_rate,
        draws=draws,
        seed=seed,
    )


Graded = Sequence[tuple[LabelledItem, Grade]]


def _encode_labels(graded: Graded, labels: tuple[str, ...]) -> tuple[list[int], list[int]]:
    return [labels.index(item.label) for item, _ in graded], [labels.index(verdict.label) for _, verdict in graded]


def _make_table(graded: Graded, labels: tuple[str, ...]) -> statistics.Tables:
    return statistics.count_confusion(*_encode_labels(graded, labels), len(labels))


def _compute_figures(
    graded: Graded, labels: tuple[str, ...], draws: int, seed: int
) -> tuple[Interval, Interval, Interval]:
    """Return accuracy, kappa and alpha."""
    nothing = Interval(None, None, None, len(graded))
    codes, clusters = _encode_labels(graded, labels), [item.cluster for item, _ in graded]
    accuracy = statistics.compute_accuracy_interval(*codes, clusters)
    if not graded:
        return accuracy, nothing, nothing
    table = _make_table(graded, labels)
    drawn = statistics.draw_tables(*codes, clusters, len(labels), draws=draws, seed=seed)
    return (
        accuracy,
        statistics.compute_interval(statistics.compute_kappa, table, drawn, accuracy),
        statistics.compute_interval(statistics.compute_alpha, table, drawn, accuracy),
    )


def _compute_slices(graded: Graded, labels: tuple[str, ...], draws: int, seed: int) -> tuple[SliceRow, ...]:
    groups: dict[tuple[str, str], list[tuple[LabelledItem, Grade]]] = {}
    for item, verdict in graded:
        for field, value in item.slices.items():
            groups.setdefault((field, value), []).append((item, verdict))
    rows = []
    for (field, value), members in sorted(groups.items()):
        accuracy, kappa, _ = _compute_figures(members, labels, draws, seed)
        if len({item.label for item, _ in members}) < 2:  # chance is then as good as any judge: kappa says nothing
            kappa = Interval(None, None, None, len(members))
        rows.append(SliceRow(field, value, accuracy, kappa))
    return tuple(rows)


def _compute_flip_rate(rounds: Sequence[Verdicts]) -> float | None:
    """Share of verdicts that are not their item's most frequent one; ungraded ones do not count."""
    if len(rounds) < 2:
        return None
    total = flips = 0
    for verdicts in zip(*rounds, strict=True):
        labels = Counter(verdict.label for verdict in verdicts if isinstance(verdict, Grade))
        if labels:
            total += labels.total()
            flips += labels.total() - max(labels.values())
    return flips / total if total else None


def _compute_swap_rate(straight: Verdicts, turned: Verdicts, swap: Swap) -> float | None:
    pairs = [
        (before.label, after.label)
        for before, after in zip(straight, turned, strict=True)
        if isinstance(before, Grade) and isinstance(after, Grade)
    ]
    return sum(swap.mirror.get(before, before) != after for before, after in pairs) / len(pairs) if pairs else None
