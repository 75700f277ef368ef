"""One row in a report's index: what is filtered, searched and drawn, without its texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gavel.envs.types import Check, Outcome

UNGRADED, SKIPPED = "ungraded", "skipped"
"""What stands for the label of a row that has none."""
PREVIEW = 160
"""Characters of a text in the index."""
_FACTS = ("language", "simulator", "persona", "rule")
"""Details that rows are sliced by, besides their metadata."""


@dataclass(frozen=True, slots=True)
class CallEntry:
    """A model call: ``how`` is ``made``, ``cache`` or ``shared``."""

    service: str
    role: str
    how: str
    latency_s: float
    prompt_tokens: int
    completion_tokens: int
    retries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """A row: ``label`` is the outcome's, or ``ungraded`` or ``skipped``; ``place`` its file and byte offset."""

    number: int
    version: int
    task_id: str
    task_digest: str
    rollout_index: int
    attempt: int
    status: str
    label: str
    kind: str
    reason: str
    reward: float | None
    seconds: float
    started: float
    asked: str
    said: str
    slices: Mapping[str, str]
    outcome: Outcome | None
    calls: tuple[CallEntry, ...]
    place: tuple[str, int]

    @property
    def graded(self) -> bool:
        """Whether the row has a grade."""
        return self.outcome is not None

    @property
    def checks(self) -> tuple[Check, ...]:
        """The outcome's checks."""
        return self.outcome.checks if self.outcome is not None else ()


def make_entry(number: int, version: int, row: Mapping[str, Any], place: tuple[str, int]) -> ReportEntry:
    """Return the entry of a stored row."""
    outcome, failure = row["outcome"], row["outcome"]["failure"]
    graded = failure is None
    label = outcome["label"] if graded else SKIPPED if row["status"] == "invalid_task" else UNGRADED
    asked, said = _make_previews(row["transcript"]["messages"])
    return ReportEntry(
        number,
        version,
        row["task_id"],
        row["task_digest"],
        row["rollout_index"],
        row["attempt"],
        row["status"],
        label,
        kind="" if graded else str(failure["kind"]),
        reason="" if graded else str(failure["reason"]),
        reward=row["reward"]["value"] if row["reward"] is not None else None,
        seconds=row["timing"]["total_s"],
        started=row["timing"]["started"],
        asked=asked,
        said=said,
        slices=dict(_iter_slices(row)),
        outcome=make_outcome(outcome) if graded else None,
        calls=tuple(_make_call(receipt) for receipt in row["receipts"]),
        place=place,
    )


def make_outcome(raw: Mapping[str, Any]) -> Outcome:
    """Make an outcome again without the strict decoding of every field, which a report of many rows would wait for."""
    checks = tuple(
        Check(raw["name"], raw["passed"], raw["score"], raw["detail"], tuple(raw["receipts"])) for raw in raw["checks"]
    )
    return Outcome(raw["label"], checks, raw["details"])


def _make_previews(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """Return the first words of what was asked and of the last reply."""
    asked = next((message["content"] for message in messages if message["role"] == "user"), "")
    said = next((message["content"] for message in reversed(messages) if message["reply"] is not None), "")
    return _shorten_text(asked), _shorten_text(said)


def _shorten_text(text: str) -> str:
    words = " ".join(text[: 4 * PREVIEW].split())
    return words if len(words) <= PREVIEW else words[: PREVIEW - 1] + "…"


def _iter_slices(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in row["metadata"].items():
        if isinstance(value, str | int | float | bool) and len(str(value)) <= 60:
            yield name, str(value)
    details = row["outcome"]["details"] or {}
    for name in _FACTS:
        if isinstance(details.get(name), str | int | bool):
            yield name, str(details[name])


def _make_call(receipt: Mapping[str, Any]) -> CallEntry:
    usage = receipt["usage"] or {}
    how = "cache" if receipt["cache_hit"] else "shared" if receipt["shared"] else "made"
    retries = tuple(attempt["outcome"] for attempt in receipt["attempts"] if attempt["outcome"] != "ok")
    return CallEntry(
        receipt["service"],
        receipt["role"],
        how,
        receipt["latency_s"],
        int(usage.get("prompt_tokens", 0)),
        int(usage.get("completion_tokens", 0)),
        retries,
    )
