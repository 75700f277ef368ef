"""What the first page of a report shows: counts, figures, and the numbers behind each picture."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from gavel.envs import statistics
from gavel.envs.registry import describe_environment, find_content_note
from gavel.envs.types import Metric, RewardError
from gavel.launch.report.entry import SKIPPED, UNGRADED, ReportEntry
from gavel.launch.report.labelling.summary import describe_people
from gavel.launch.report.ratings import collect_ratings
from gavel.launch.report.records import CheckCount, FailureCount, Histogram, Overview, RewardCount, Share, Slice
from gavel.launch.report.rewards import NamedReward, list_rewards
from gavel.launch.report.services import count_services
from gavel.launch.report.source import ReportSource
from gavel.launch.report.trait_payments import collect_payments
from gavel.models.errors import GavelError
from gavel.models.failures import KINDS, FailureKind

BINS = 20
_CLOSE = 1e-9
MOST_SLICES = 24
"""A slice with more values than this is no slice but a text."""
By = Callable[[ReportEntry], str]
"""From a row to what it is clustered by."""
_HEADLINES: Mapping[str, str] = {"vera_mh": "vera_mh/vera_score"}
"""The figure that a benchmark is known by, where it is not a share of labels."""


def make_overview(source: ReportSource) -> Overview:
    """Return the first page's content over every row read so far."""
    graded = [entry for entry in source.entries if entry.graded]
    missing = [entry for entry in source.entries if not entry.graded]
    stored, stale = source.read_metrics()
    by = _choose_clusters(source)
    given = [(policy, _give_rewards(policy, graded)) for policy in list_rewards(source.env, source.reward)]
    metrics, headline = stored.get("metrics", {}), _HEADLINES.get(source.env)
    own, right = next(((policy, rewards) for policy, rewards in given if policy.own), (None, None))
    note, sensitive = read_notes(source, right)
    return Overview(
        name=source.path.resolve().name,
        env=source.env,
        facts=source.read_facts(),
        note=note,
        content_note=sensitive,
        judges=source.read_standings(),
        rows=_count_rows(source),
        reward=_compute_mean([(entry, entry.reward) for entry in graded if entry.reward is not None], own, by),
        labels=_count_labels(graded, by),
        slices=_make_slices(graded, by),
        histogram=_make_histogram(graded),
        rewards=tuple(_count_reward(policy, graded, rewards, by) for policy, rewards in given),
        traits=collect_payments(source, graded, by),
        failures=_count_failures(missing),
        services=count_services(entry.calls for entry in source.entries),
        without_judge=sum(all(call.role != "judge" for call in entry.calls) for entry in graded),
        checks=_count_checks(graded, by),
        ratings=collect_ratings(graded),
        metrics=metrics,
        headline=headline if headline in metrics else None,
        stale=stale,
        people=describe_people(source),
    )


def read_notes(source: ReportSource, rewards: Sequence[float | None] | None = None) -> tuple[str, str]:
    """Return what every figure of the run must be shown with, and what its texts must not be shown without; empty for
    none.

    ``rewards`` are what the run's own policy gives its graded rows, in order, where that is known.
    """
    tables = source.read_metrics()[0].get("tables") or {}
    graded = [entry for entry in source.entries if entry.graded]
    if rewards is None:
        own = next((policy for policy in list_rewards(source.env, source.reward) if policy.own), None)
        rewards = _give_rewards(own, graded) if own is not None else [entry.reward for entry in graded]
    notes = (str(tables.get("note", "")), _warn_of_edits(source, graded, rewards))
    return " ".join(filter(None, notes)), find_content_note(source.env_options) or ""


def _warn_of_edits(source: ReportSource, graded: Sequence[ReportEntry], rewards: Sequence[float | None]) -> str:
    """Say that stored rows were changed: lines by their digests, rewards by what the run's own policy gives."""
    wrong = sum(
        entry.reward is not None and (right is None or abs(right - entry.reward) > _CLOSE)
        for entry, right in zip(graded, rewards, strict=True)
    )
    found = [f"{count} stored {what}" for count, what in ((source.altered, "lines"), (wrong, "rewards")) if count]
    if not found:
        return ""
    return f"{' and '.join(found)} are not what was written: gavel verify {shlex.quote(str(source.path))} lists them."


def _count_rows(source: ReportSource) -> dict[str, int]:
    known = Counter(entry.label if entry.label in (UNGRADED, SKIPPED) else "graded" for entry in source.entries)
    attempted = known["graded"] + known[UNGRADED]
    return {
        "planned": source.planned,
        "graded": known["graded"],
        "ungraded": known[UNGRADED],
        "skipped": known[SKIPPED],
        "missing": max(source.planned - attempted, 0),
    }


def _choose_clusters(source: ReportSource) -> By:
    """Return what a row is clustered by."""
    try:
        field = describe_environment(source.env_options).clusters
    except GavelError:  # an environment of a plugin that is not installed here
        field = None
    return lambda entry: entry.task_id if field is None else entry.slices.get(field, entry.task_id)


def _compute_mean(pairs: Sequence[tuple[ReportEntry, float]], policy: NamedReward | None, by: By) -> Metric | None:
    if not pairs:
        return None
    clusters = statistics.encode_names(by(entry) for entry, _ in pairs)
    return statistics.compute_mean([value for _, value in pairs], clusters, bounds=policy.bounds if policy else None)


def _count_labels(rows: Sequence[ReportEntry], by: By) -> tuple[Share, ...]:
    clusters = statistics.encode_names(by(row) for row in rows)
    labels = np.array([row.label for row in rows], dtype=np.str_)
    found = []
    for name, count in Counter(row.label for row in rows).most_common():
        metric = statistics.compute_share(labels == name, clusters)
        assert metric is not None
        found.append(Share(name, count, metric))
    return tuple(found)


def slice_names(entries: Iterable[ReportEntry]) -> list[str]:
    """Return the names of metadata and details whose values group the rows: 2 to ``MOST_SLICES`` of them, each of 2
    rows or more.
    """
    values: dict[str, set[str]] = {}
    rows: Counter[str] = Counter()
    for entry in entries:
        rows.update(entry.slices.keys())
        for name, value in entry.slices.items():
            seen = values.setdefault(name, set())
            if len(seen) <= MOST_SLICES:
                seen.add(value)
    return [name for name, seen in values.items() if 2 <= len(seen) <= min(MOST_SLICES, rows[name] // 2)]


def _make_slices(rows: Sequence[ReportEntry], by: By) -> dict[str, tuple[Slice, ...]]:
    found = {}
    for name in slice_names(rows):
        parts: dict[str, list[ReportEntry]] = {}
        for row in rows:
            if name in row.slices:
                parts.setdefault(row.slices[name], []).append(row)
        found[name] = tuple(Slice(value, len(parts[value]), _count_labels(parts[value], by)) for value in sorted(parts))
    return found


def _make_histogram(rows: Sequence[ReportEntry]) -> Histogram | None:
    """Return the histogram of rewards; few distinct values get a bin each."""
    values = np.array([row.reward for row in rows if row.reward is not None], dtype=np.float64)
    if not len(values):
        return None
    distinct = np.unique(values)
    if len(distinct) <= BINS:
        edges = distinct
        places = {row.number: int(np.searchsorted(distinct, row.reward)) for row in rows if row.reward is not None}
        size = len(distinct)
    else:
        edges = np.linspace(distinct[0], distinct[-1], BINS + 1)
        cut = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, BINS - 1)
        places = dict(zip((row.number for row in rows if row.reward is not None), cut.tolist(), strict=True))
        size = BINS
    counts: dict[str, list[int]] = {}
    for row in rows:
        if row.number in places:
            counts.setdefault(row.label, [0] * size)[places[row.number]] += 1
    return Histogram(tuple(edges.tolist()), {label: tuple(bins) for label, bins in sorted(counts.items())})


def _give_rewards(policy: NamedReward, rows: Sequence[ReportEntry]) -> list[float | None]:
    """Return what a policy gives each graded row, None where it refuses."""
    given: list[float | None] = []
    for row in rows:
        assert row.outcome is not None
        try:
            given.append(policy.policy.reward(row.outcome).value)
        except RewardError:
            given.append(None)
    return given


def _count_reward(
    policy: NamedReward, rows: Sequence[ReportEntry], given: Sequence[float | None], by: By
) -> RewardCount:
    pairs = [(row, reward) for row, reward in zip(rows, given, strict=True) if reward is not None]
    return RewardCount(
        policy.name, policy.options, policy.own, _compute_mean(pairs, policy, by), len(rows) - len(pairs)
    )


def _count_failures(rows: Sequence[ReportEntry]) -> tuple[FailureCount, ...]:
    first: dict[str, str] = {}
    for row in rows:
        first.setdefault(row.kind, row.reason)
    counts = Counter(row.kind for row in rows)
    return tuple(FailureCount(kind, count, first[kind], _is_retried(kind)) for kind, count in counts.most_common())


def _is_retried(kind: str) -> bool:
    return kind in set(FailureKind) and KINDS[FailureKind(kind)].retried_on_resume


def _count_checks(rows: Sequence[ReportEntry], by: By) -> tuple[CheckCount, ...]:
    """Return the checks, the most often failed ones first."""
    found: dict[str, list[tuple[str, bool | None]]] = {}
    for row in rows:
        for check in row.checks:
            found.setdefault(check.name, []).append((by(row), check.passed))
    counts = []
    for name, checks in found.items():
        known = [(task, passed) for task, passed in checks if passed is not None]
        passed = sum(bool(passed) for _, passed in known)
        metric = (
            statistics.compute_share(
                [bool(passed) for _, passed in known], statistics.encode_names(task for task, _ in known)
            )
            if known
            else None
        )
        counts.append(CheckCount(name, passed, len(known) - passed, len(checks) - len(known), metric))
    return tuple(sorted(counts, key=lambda count: (count.metric.value if count.metric else 2.0, count.name)))
