"""How far the members of panels of judges agree, over the rows of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from gavel.envs.panels import PANELS
from gavel.envs.statistics import compute_share, encode_names
from gavel.envs.types import Metric, Result
from gavel.judges.calibration import statistics
from gavel.judges.calibration.statistics import Interval
from gavel.judges.panels import CASCADE


def summarize_panels(results: Iterable[Result]) -> dict[str, Metric]:
    """Return how far the members of each panel agree, over all that was asked about, in rows without a verdict too.

    ``panel/<binding>/<member>/answered`` is the share of it that a member gave a verdict on: of the last judge of a
    cascade, what was not saved. ``panel/<binding>/<member>~<member>/agreement``, ``…/kappa`` (Cohen's) and ``…/ac1``
    (Gwet's) are over what both gave a verdict on, with intervals clustered by task; a cascade has none, for its second
    judge is asked about the doubtful ones only.
    """
    cast: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    labels: dict[str, list[str]] = {}
    for result in results:
        for binding, panel in (result.outcome.details or {}).get(PANELS, {}).items():
            labels[binding] = [] if panel["combine"] == CASCADE else list(panel["labels"])
            cast.setdefault(binding, []).extend((result.task_id, votes) for votes in panel["votes"].values())
    return {
        f"panel/{binding}/{name}": metric
        for binding, votes in cast.items()
        for name, metric in _compute_figures(votes, labels[binding])
        if metric is not None
    }


Cast = Sequence[tuple[str, Mapping[str, str]]]


def _compute_figures(cast: Cast, labels: Sequence[str]) -> Iterator[tuple[str, Metric | None]]:
    members = list(dict.fromkeys(member for _, votes in cast for member in votes))
    clusters = encode_names(task for task, _ in cast)
    for member in members:
        yield f"{member}/answered", compute_share([member in votes for _, votes in cast], clusters)
    for one, other in combinations(members, 2) if labels else ():
        yield from _compare_members(cast, one, other, labels)


def _compare_members(cast: Cast, one: str, other: str, labels: Sequence[str]) -> Iterator[tuple[str, Metric | None]]:
    both = [(task, votes[one], votes[other]) for task, votes in cast if one in votes and other in votes]
    if not both:
        return
    tasks = [task for task, _, _ in both]
    codes = [labels.index(label) for _, label, _ in both], [labels.index(label) for _, _, label in both]
    agreement = statistics.compute_accuracy_interval(*codes, tasks)
    table = statistics.count_confusion(*codes, len(labels))
    drawn = statistics.draw_tables(*codes, tasks, len(labels))
    pair = f"{one}~{other}"
    yield f"{pair}/agreement", _make_metric(agreement)
    for name, statistic in (("kappa", statistics.compute_kappa), ("ac1", statistics.compute_ac1)):
        yield f"{pair}/{name}", _make_metric(statistics.compute_interval(statistic, table, drawn, agreement))


def _make_metric(found: Interval) -> Metric | None:
    return None if found.value is None else Metric(found.value, found.low, found.high, found.n)
