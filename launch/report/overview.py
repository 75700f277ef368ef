"""What the first page of a report shows: counts, figures, and the numbers behind each picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from gavel.envs import statistics
from gavel.envs.registry import content_note
from gavel.envs.types import Metric, RewardError
from gavel.envs.vera_mh.rating import RATINGS
from gavel.launch.child_run import named
from gavel.launch.report.entry import SKIPPED, UNGRADED, Call, Entry
from gavel.launch.report.rewards import NamedReward, rewards_of
from gavel.launch.report.source import RunSource
from gavel.models.codec import record
from gavel.models.failures import KINDS, FailureKind

BINS = 20
MOST_SLICES = 24
"""A slice with more values than this is no slice but a text."""
LATENCY_EDGES = tuple(round(10 ** (power / 4), 4) for power in range(-12, 9))
"""Edges of the latency histogram, 1 ms to 100 s, four a decade."""

_HEADLINES: Mapping[str, str] = {"vera_mh": "vera_mh/vera_score"}
"""The figure that a benchmark is known by, where it is not a share of labels."""


@record
class Share:
    """A share of rows with its 95 % interval, clustered by task."""

    name: str
    count: int
    metric: Metric


@record
class Slice:
    """The labels of the rows of one slice."""

    value: str
    rows: int
    labels: tuple[Share, ...]


@record
class CheckCount:
    """How often a check passed: ``metric`` over the rows in which it could be made."""

    name: str
    passed: int
    failed: int
    unknown: int
    metric: Metric | None


@record
class FailureCount:
    """How many rows a kind of failure left without a grade; ``again`` says whether a resumed run tries them once more."""

    kind: str
    count: int
    first: str
    again: bool


@record
class ServiceCount:
    """The calls of one service in one role; ``latency`` counts network calls between ``LATENCY_EDGES``, the last bin is open."""

    service: str
    role: str
    made: int
    cache: int
    shared: int
    prompt_tokens: int
    completion_tokens: int
    percentiles: Mapping[str, float]
    latency: tuple[int, ...]
    retries: Mapping[str, int]


@record
class RewardCount:
    """One reward policy over all graded rows; ``metric`` is None where it could reward none; ``refused`` counts those it could not."""

    name: str
    options: str
    own: bool
    metric: Metric | None
    refused: int


@record
class Histogram:
    """Rewards of graded rows: ``counts`` by label, each of ``BINS`` bins or fewer between ``edges``."""

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]


@record
class Ratings:
    """VERA-MH: ``matrix`` counts each rating by dimension; ``questions`` the answers to each, in the order first asked; ``flows`` how
    often one question followed another."""

    ratings: tuple[str, ...]
    matrix: Mapping[str, tuple[int, ...]]
    questions: Mapping[str, Mapping[str, int]]
    dimensions: Mapping[str, str]
    flows: tuple[tuple[str, str, int], ...]


@record
class Overview:
    """The first page; see the classes above. ``metrics`` are the environment's own as of the last finished session."""

    name: str
    env: str
    facts: Mapping[str, str]
    note: str
    content_note: str
    rows: Mapping[str, int]
    reward: Metric | None
    labels: tuple[Share, ...]
    slices: Mapping[str, tuple[Slice, ...]]
    histogram: Histogram | None
    rewards: tuple[RewardCount, ...]
    failures: tuple[FailureCount, ...]
    services: tuple[ServiceCount, ...]
    without_judge: int
    checks: tuple[CheckCount, ...]
    ratings: Ratings | None
    metrics: Mapping[str, Any]
    headline: str | None
    stale: bool


def overview(source: RunSource) -> Overview:
    """Return the first page's content over every row read so far."""
    graded = [entry for entry in source.entries if entry.graded]
    missing = [entry for entry in source.entries if not entry.graded]
    stored, stale = _metrics(source)
    note, sensitive = notes_of(source)
    policies = rewards_of(source.env, source.manifest.reward)
    metrics, headline = stored.get("metrics", {}), _HEADLINES.get(source.env)
    own = next((policy for policy in policies if policy.own), None)
    return Overview(
        name=source.path.resolve().name, env=source.env, facts=_facts(source),
        note=note, content_note=sensitive,
        rows=_rows(source), reward=_mean([(entry, entry.reward) for entry in graded if entry.reward is not None], own),
        labels=_labels(graded), slices=_sliced(graded), histogram=_histogram(graded),
        rewards=tuple(_rewarded(policy, graded) for policy in policies),
        failures=_failures(missing), services=_services(entry.calls for entry in source.entries),
        without_judge=sum(all(call.role != "judge" for call in entry.calls) for entry in graded),
        checks=_checks(graded), ratings=_ratings(graded),
        metrics=metrics, headline=headline if headline in metrics else None, stale=stale,
    )  # fmt: skip


def notes_of(source: RunSource) -> tuple[str, str]:
    """Return what every figure of the run must be shown with, and what its texts must not be shown without; empty for none."""
    tables = _metrics(source)[0].get("tables") or {}
    return str(tables.get("note", "")), content_note(source.manifest.identity.env) or ""


def _rows(source: RunSource) -> dict[str, int]:
    known = Counter(entry.label if entry.label in (UNGRADED, SKIPPED) else "graded" for entry in source.entries)
    attempted = known["graded"] + known[UNGRADED]
    return {
        "planned": source.planned, "graded": known["graded"], "ungraded": known[UNGRADED], "skipped": known[SKIPPED],
        "missing": max(source.planned - attempted, 0),
    }  # fmt: skip


def _metrics(source: RunSource) -> tuple[Mapping[str, Any], bool]:
    """Return what the last finished session wrote, and whether rows came after it."""
    file, results = source.path / "metrics.json", source.path / "results.jsonl"
    try:
        stored = orjson.loads(file.read_bytes())
        stale = results.exists() and results.stat().st_mtime > file.stat().st_mtime
    except (OSError, orjson.JSONDecodeError):
        return {}, False
    return (stored, stale) if isinstance(stored, dict) else ({}, False)


def _facts(source: RunSource) -> dict[str, str]:
    manifest = source.manifest
    identity = manifest.identity
    facts = {
        "environment": source.env,
        "policy": str(identity.policy.get("model") or ""),
        **{f"judge ({name})": str(binding.get("judge") or "") for name, binding in identity.bindings.items()},
        "reward": named(manifest.reward),
    }
    if source.config is not None:
        facts |= {f"rubric {name}": rubric.profile for name, rubric in source.config.rubrics.items()}
        facts["sampling"] = _sampling(identity.policy.get("sampling"))
        facts["rollouts per task"] = str(source.config.rollouts_per_task)
    if manifest.ablation:
        facts["ablation"] = manifest.ablation
    if manifest.parent:
        facts[f"{manifest.kind} of"] = str(manifest.parent.get("run", ""))
    facts["made by"] = f"gavel {manifest.gavel}"
    return {name: value for name, value in facts.items() if value}


def _sampling(sampling: object) -> str:
    if not isinstance(sampling, Mapping):
        return ""
    return ", ".join(f"{name} {value}" for name, value in sampling.items() if value not in (None, (), [], {}))


def _mean(pairs: Sequence[tuple[Entry, float]], policy: NamedReward | None) -> Metric | None:
    if not pairs:
        return None
    clusters = statistics.encode(entry.task_id for entry, _ in pairs)
    return statistics.mean([value for _, value in pairs], clusters, bounds=policy.bounds if policy else None)


def _labels(rows: Sequence[Entry]) -> tuple[Share, ...]:
    clusters = statistics.encode(row.task_id for row in rows)
    labels = np.array([row.label for row in rows], dtype=np.str_)
    found = []
    for name, count in Counter(row.label for row in rows).most_common():
        metric = statistics.share(labels == name, clusters)
        assert metric is not None
        found.append(Share(name, count, metric))
    return tuple(found)


def slice_names(entries: Iterable[Entry]) -> list[str]:
    """Return the names of metadata and details whose values group the rows: 2 to ``MOST_SLICES`` of them, each of 2 rows or more."""
    values: dict[str, set[str]] = {}
    rows: Counter[str] = Counter()
    for entry in entries:
        rows.update(entry.slices.keys())
        for name, value in entry.slices.items():
            seen = values.setdefault(name, set())
            if len(seen) <= MOST_SLICES:
                seen.add(value)
    return [name for name, seen in values.items() if 2 <= len(seen) <= min(MOST_SLICES, rows[name] // 2)]


def _sliced(rows: Sequence[Entry]) -> dict[str, tuple[Slice, ...]]:
    found = {}
    for name in slice_names(rows):
        parts: dict[str, list[Entry]] = {}
        for row in rows:
            if name in row.slices:
                parts.setdefault(row.slices[name], []).append(row)
        found[name] = tuple(Slice(value, len(parts[value]), _labels(parts[value])) for value in sorted(parts))
    return found


def _histogram(rows: Sequence[Entry]) -> Histogram | None:
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


def _rewarded(policy: NamedReward, rows: Sequence[Entry]) -> RewardCount:
    pairs, refused = [], 0
    for row in rows:
        assert row.outcome is not None
        try:
            pairs.append((row, policy.policy.reward(row.outcome).value))
        except RewardError:
            refused += 1
    return RewardCount(policy.name, policy.options, policy.own, _mean(pairs, policy), refused)


def _failures(rows: Sequence[Entry]) -> tuple[FailureCount, ...]:
    first: dict[str, str] = {}
    for row in rows:
        first.setdefault(row.kind, row.reason)
    counts = Counter(row.kind for row in rows)
    return tuple(FailureCount(kind, count, first[kind], _again(kind)) for kind, count in counts.most_common())


def _again(kind: str) -> bool:
    return kind in set(FailureKind) and KINDS[FailureKind(kind)].retried_on_resume


def _services(rows: Iterable[Sequence[Call]]) -> tuple[ServiceCount, ...]:
    calls: dict[tuple[str, str], list[Call]] = {}
    for row in rows:
        for call in row:
            calls.setdefault((call.role, call.service), []).append(call)
    return tuple(_service(service, role, found) for (role, service), found in sorted(calls.items()))


def _service(service: str, role: str, calls: Sequence[Call]) -> ServiceCount:
    made = [call for call in calls if call.how == "made"]
    how = Counter(call.how for call in calls)
    latency = np.array([call.latency_s for call in made])
    counts = np.bincount(np.searchsorted(LATENCY_EDGES, latency, side="right"), minlength=len(LATENCY_EDGES) + 1)
    ranks = {f"p{rank}": round(float(np.percentile(latency, rank)), 4) for rank in (50, 90, 99)} if len(made) else {}
    return ServiceCount(
        service, role, len(made), how["cache"], how["shared"],
        sum(call.prompt_tokens for call in made), sum(call.completion_tokens for call in made),
        ranks, tuple(counts.tolist()), dict(Counter(kind for call in made for kind in call.retries)),
    )  # fmt: skip


def _checks(rows: Sequence[Entry]) -> tuple[CheckCount, ...]:
    """Return the checks, the most often failed ones first."""
    found: dict[str, list[tuple[str, bool | None]]] = {}
    for row in rows:
        for check in row.checks:
            found.setdefault(check.name, []).append((row.task_id, check.passed))
    counts = []
    for name, checks in found.items():
        known = [(task, passed) for task, passed in checks if passed is not None]
        passed = sum(bool(passed) for _, passed in known)
        metric = (
            statistics.share([bool(passed) for _, passed in known], statistics.encode(task for task, _ in known)) if known else None
        )
        counts.append(CheckCount(name, passed, len(known) - passed, len(checks) - len(known), metric))
    return tuple(sorted(counts, key=lambda count: (count.metric.value if count.metric else 2.0, count.name)))


def _ratings(rows: Sequence[Entry]) -> Ratings | None:
    matrix: dict[str, Counter[str]] = {}
    questions: dict[str, Counter[str]] = {}
    dimensions: dict[str, str] = {}
    flows: Counter[tuple[str, str]] = Counter()
    for row in rows:
        details = (row.outcome.details if row.outcome else None) or {}
        for dimension, rating in (details.get("ratings") or {}).items():
            matrix.setdefault(dimension, Counter())[rating] += 1
        steps = [step for step in details.get("answers") or () if step.get("asked")]
        for step in steps:
            questions.setdefault(step["question_id"], Counter())[step["answer"]] += 1
            dimensions.setdefault(step["question_id"], step["dimension"])
        flows.update((one["question_id"], other["question_id"]) for one, other in pairwise(steps))
    if not matrix:
        return None
    return Ratings(
        RATINGS, {name: tuple(counts[rating] for rating in RATINGS) for name, counts in matrix.items()},
        {name: dict(counts.most_common()) for name, counts in sorted(questions.items(), key=lambda item: _natural(item[0]))},
        dimensions, tuple((one, other, count) for (one, other), count in flows.most_common()),
    )  # fmt: skip


def _natural(name: str) -> tuple[int, str]:
    digits = "".join(character for character in name if character.isdigit())
    return int(digits or 0), name
