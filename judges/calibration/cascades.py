"""What a cascade of judges may trust, saves and gets wrong: chosen on one half of labelled items, measured on the
other.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from gavel.judges.calibration.labelled import LabelledItem, LabelledSet
from gavel.judges.calibration.report import CascadeReport
from gavel.judges.calibration.statistics import Interval, compute_accuracy_interval
from gavel.judges.panels import PanelRule, Voice, needs_second, replay_panel
from gavel.judges.types import Grade, JudgeFailure, Rubric
from gavel.models.codec import compute_digest

Verdicts = list[Grade | JudgeFailure]


def measure_cascade(
    rule: PanelRule, rubric: Rubric, labelled: LabelledSet, said: Mapping[str, Sequence[Verdicts]]
) -> CascadeReport:
    """Choose the trusted labels on one half of the items, unless the rule has some, and measure them on the other.

    A label is trusted if the lower end of its precision's interval reaches ``rule.min_precision``.

    Args:
        rule: a cascade's.
        rubric: what both judge with.
        labelled: the labelled items.
        said: by judge its verdict on each item; of the first a list for each sample.
    """
    first, second = rule.members
    half = split_clusters([item.cluster for item in labelled.items])
    chosen_on = [place for place, item in enumerate(labelled.items) if item.cluster in half]
    rest = [place for place, item in enumerate(labelled.items) if item.cluster not in half]
    voices = [[Voice(first, drawn[place]) for drawn in said[first]] for place in range(len(labelled.items))]
    precisions = _compute_precisions(rule, rubric, labelled.items, voices, chosen_on)
    trusted = rule.trusted or tuple(
        label
        for label, precision in precisions.items()
        if precision.low is not None and precision.low >= rule.min_precision
    )
    chosen = replace(rule, trusted=trusted)
    strong = said[second][0]
    joined = {
        place: replay_panel(chosen, rubric, {first: [voice.said for voice in voices[place]], second: [strong[place]]})
        for place in rest
    }
    clusters = {place: labelled.items[place].cluster for place in rest}
    saved = {place: not needs_second(chosen, voices[place]) for place in rest}
    truth = {place: labelled.items[place].label for place in rest}
    cascade = {place: one.label for place, one in joined.items() if isinstance(one, Grade)}
    alone = {place: one.label for place in rest if isinstance(one := strong[place], Grade)}
    return CascadeReport(
        trusted=trusted,
        min_precision=rule.min_precision,
        precisions=precisions,
        chosen_on=len(chosen_on),
        measured_on=len(rest),
        saved=_compare(saved, dict.fromkeys(rest, True), clusters),
        agreement=_compare(cascade, alone, clusters),
        accuracy=_compare(cascade, truth, clusters),
        second_accuracy=_compare(alone, truth, clusters),
    )


def split_clusters(clusters: Sequence[str]) -> frozenset[str]:
    """Return one half of the clusters, whole ones, by their digests: the same for the same data in any order."""
    ordered = sorted(set(clusters), key=compute_digest)
    return frozenset(ordered[::2])


def _compute_precisions(
    rule: PanelRule, rubric: Rubric, items: Sequence[LabelledItem], voices: Sequence[Sequence[Voice]], on: Sequence[int]
) -> dict[str, Interval]:
    """Return the share of right verdicts by the first judge's label, where all its samples agree on it."""
    alone = replace(rule, trusted=rubric.labels)
    found: dict[str, list[int]] = {label: [] for label in rubric.labels}
    for place in on:
        if not needs_second(alone, voices[place]):
            found[next(iter(voices[place][0].labels.values()))].append(place)
    return {
        label: _compare(
            dict.fromkeys(places, label),
            {place: items[place].label for place in places},
            {place: items[place].cluster for place in places},
        )
        for label, places in found.items()
    }


def _compare(one: Mapping[int, Hashable], other: Mapping[int, Hashable], clusters: Mapping[int, str]) -> Interval:
    """Return the share of items on which both say the same, over those on which both say something."""
    places = [place for place in one if place in other]
    same = [int(one[place] == other[place]) for place in places]
    return compute_accuracy_interval([1] * len(places), same, [clusters[place] for place in places])
