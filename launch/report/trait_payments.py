"""What the reward of a run goes with besides being right: length, boxes, markup and the other traits of its replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gavel.envs.traits import TRAITS
from gavel.launch.comparing.ledgers import LedgerSample, measure_row
from gavel.launch.comparing.trait_changes import compute_payment
from gavel.launch.report.entry import ReportEntry
from gavel.launch.report.records import TraitPayment
from gavel.launch.report.source import ReportSource

MOST_ROWS = 500
"""Graded rows whose replies are measured, evenly over the run: the page is made anew while a run grows."""


def collect_payments(
    source: ReportSource, graded: Sequence[ReportEntry], by: Callable[[ReportEntry], str]
) -> tuple[TraitPayment, ...]:
    """Return each trait that varies, in the order of ``TRAITS``; nothing where too few rows have a reply."""
    chosen = graded[:: max(1, -(-len(graded) // MOST_ROWS))]
    samples = [
        LedgerSample(
            0, (entry.task_id, entry.task_digest), entry.rollout_index, entry.reward, cluster=by(entry), traits=traits
        )
        for entry in chosen
        if entry.reward is not None and (traits := measure_row(source.read_row(entry.place)))
    ]
    found = []
    for place, trait in enumerate(TRAITS.values()):
        paid = compute_payment(samples, place)
        if paid is not None and paid.low is not None:
            mean = sum(sample.traits[place] for sample in samples) / len(samples)
            found.append(TraitPayment(trait.name, trait.grew, mean, paid))
    return tuple(found)
