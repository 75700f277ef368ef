"""The content of a report's first page: counts, figures, and the numbers behind each picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.types import Metric
from gavel.launch.assembly.qualification import Standing
from gavel.models.codec import record

LATENCY_EDGES = tuple(round(10 ** (power / 4), 4) for power in range(-12, 9))
"""Edges of the latency histogram, 1 ms to 100 s, four a decade."""


@record
class Share:
    """A share of rows with its 95 % interval, clustered by task or by what the environment names."""

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
    """How many rows a kind of failure left without a grade; ``again`` says whether a resumed run tries them once
    more.
    """

    kind: str
    count: int
    first: str
    again: bool


@record
class ServiceCount:
    """The calls of one service in one role; ``latency`` counts network calls between ``LATENCY_EDGES``, the last bin is
    open.
    """

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
    """One reward policy over all graded rows; ``metric`` is None where it could reward none; ``refused`` counts those
    it could not.
    """

    name: str
    options: str
    own: bool
    metric: Metric | None
    refused: int


@record
class TraitPayment:
    """A trait of the replies (``gavel.envs.traits``): its mean over rows, and ``paid``, how much the reward changes
    with one unit of it.
    """

    name: str
    what: str
    mean: float
    paid: Metric


@record
class Histogram:
    """Rewards of graded rows: ``counts`` by label, each of ``BINS`` bins or fewer between ``edges``."""

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]


@record
class Ratings:
    """VERA-MH: ``matrix`` counts each rating by dimension; ``questions`` the answers to each, in the order first asked;
    ``flows`` how often one question followed another."""

    ratings: tuple[str, ...]
    matrix: Mapping[str, tuple[int, ...]]
    questions: Mapping[str, Mapping[str, int]]
    dimensions: Mapping[str, str]
    flows: tuple[tuple[str, str, int], ...]


@record
class Overview:
    """The first page; see the classes above. ``metrics`` are the environment's own as of the last finished
    session, ``people`` what those who labelled questions of the judge came to.
    """

    name: str
    env: str
    facts: Mapping[str, str]
    note: str
    content_note: str
    judges: tuple[Standing, ...]
    rows: Mapping[str, int]
    reward: Metric | None
    labels: tuple[Share, ...]
    slices: Mapping[str, tuple[Slice, ...]]
    histogram: Histogram | None
    rewards: tuple[RewardCount, ...]
    traits: tuple[TraitPayment, ...]
    failures: tuple[FailureCount, ...]
    services: tuple[ServiceCount, ...]
    without_judge: int
    checks: tuple[CheckCount, ...]
    ratings: Ratings | None
    metrics: Mapping[str, Any]
    headline: str | None
    stale: bool
    people: tuple[str, ...] = ()
