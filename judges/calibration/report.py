"""What a calibration found."""

from __future__ import annotations

from collections.abc import Mapping

from gavel.judges.calibration.statistics import Interval
from gavel.models.codec import record

CAUTION = (
    "these labels say how this judge agrees on this data; a shipped set calibrates nobody's judge on "
    "anybody else's data"
)


@record
class SliceRow:
    """One slice (``domain``, ``law``): its items that were judged, and their agreement; no kappa where they have one
    label.
    """

    field: str
    value: str
    accuracy: Interval
    kappa: Interval


@record
class CascadeReport:
    """What a cascade saves and costs: its trusted labels were chosen on one half of the labelled items and measured on
    the other, so that neither half flatters the choice.

    Attributes:
        trusted: labels of the first judge that stand alone.
        min_precision: what a label's precision had to reach, by the lower end of its interval.
        precisions: of the first judge, by its label, on the items it was chosen on.
        chosen_on: items of that half.
        measured_on: items of the other.
        saved: share of items for which the second judge is not asked.
        agreement: with the second judge alone, over the items on which both have a verdict.
        accuracy: of the cascade, against the labels.
        second_accuracy: of the second judge alone.
    """

    trusted: tuple[str, ...]
    min_precision: float
    precisions: Mapping[str, Interval]
    chosen_on: int
    measured_on: int
    saved: Interval
    agreement: Interval
    accuracy: Interval
    second_accuracy: Interval


@record
class CalibrationReport:
    """Agreement of one binding with labelled answers.

    ``confusion`` counts items by true label (row) and judged label (column), in the order of ``labels``. ``ungraded``
    counts items without a verdict by failure kind; they are in no other figure. ``flip_rate`` is the share of repeated
    verdicts that are not the most frequent one of their item (None: not repeated); ``swap_rate`` the share of two-text
    items whose verdict does not follow their order (None: one-text rubric). ``cascade`` is there for a cascade only.
    """

    binding: str
    data_digest: str
    items: int
    reviewed_share: float
    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    accuracy: Interval
    kappa: Interval
    alpha: Interval
    slices: tuple[SliceRow, ...]
    parses: Mapping[str, int]
    ungraded: Mapping[str, int]
    flip_rate: float | None
    swap_rate: float | None
    draws: int
    seed: int
    caution: str = CAUTION
    cascade: CascadeReport | None = None

    @property
    def graded(self) -> int:
        """How many items have a verdict."""
        return sum(map(sum, self.confusion))
