"""The calls of each service for the pictures of latency and savings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from gavel.launch.report.entry import CallEntry
from gavel.launch.report.records import LATENCY_EDGES, ServiceCount
from gavel.models.service import get_display_name


def count_services(rows: Iterable[Sequence[CallEntry]]) -> tuple[ServiceCount, ...]:
    """Return the calls by role and service; one list of calls for each row."""
    calls: dict[tuple[str, str], list[CallEntry]] = {}
    for row in rows:
        for call in row:
            calls.setdefault((call.role, call.service), []).append(call)
    return tuple(
        _count_service(get_display_name(service), role, found) for (role, service), found in sorted(calls.items())
    )


def _count_service(service: str, role: str, calls: Sequence[CallEntry]) -> ServiceCount:
    made = [call for call in calls if call.how == "made"]
    how = Counter(call.how for call in calls)
    latency = np.array([call.latency_s for call in made])
    counts = np.bincount(np.searchsorted(LATENCY_EDGES, latency, side="right"), minlength=len(LATENCY_EDGES) + 1)
    ranks = {f"p{rank}": round(float(np.percentile(latency, rank)), 4) for rank in (50, 90, 99)} if len(made) else {}
    return ServiceCount(
        service,
        role,
        len(made),
        how["cache"],
        how["shared"],
        sum(call.prompt_tokens for call in made),
        sum(call.completion_tokens for call in made),
        ranks,
        tuple(counts.tolist()),
        dict(Counter(kind for call in made for kind in call.retries)),
    )
