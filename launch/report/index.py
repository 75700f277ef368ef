"""The index of rows as a page reads it: columns with codes, so that 100,000 rows are small and quick to filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gavel.launch.report.entry import PREVIEW, ReportEntry
from gavel.models.codec import record

_MARKS = {True: "1", False: "0", None: "-"}
SHORT_FROM = 20_000
"""Above this many rows the previews are shorter, so that the index stays small."""


@record
class Coded:
    """A column of names: ``codes`` are places in ``names``, -1 for none."""

    names: tuple[str, ...]
    codes: tuple[int, ...]


@record
class ReportIndex:
    """Rows by column, all of one length. ``marks`` has one of ``1`` (passed), ``0``, ``-`` (not checked) for each check
    of ``checks``' name, which joins the checks' names by a line feed."""

    number: tuple[int, ...]
    task: tuple[str, ...]
    rollout: tuple[int, ...]
    attempt: tuple[int, ...]
    label: Coded
    kind: Coded
    reward: tuple[float | None, ...]
    seconds: tuple[float, ...]
    tokens: tuple[int, ...]
    checks: Coded
    marks: tuple[str, ...]
    asked: tuple[str, ...]
    said: tuple[str, ...]
    slices: dict[str, Coded]


def make_index(entries: Sequence[ReportEntry], slices: Iterable[str], *, texts: bool) -> ReportIndex:
    """Return the index of these rows.

    Args:
        entries: the rows, in the order in which they are shown.
        slices: the names of the slices that become columns.
        texts: whether the first words of prompt and reply go in; False for sensitive environments.
    """
    limit = 0 if not texts else PREVIEW if len(entries) <= SHORT_FROM else PREVIEW // 2
    return ReportIndex(
        number=tuple(entry.number for entry in entries),
        task=tuple(entry.task_id for entry in entries),
        rollout=tuple(entry.rollout_index for entry in entries),
        attempt=tuple(entry.attempt for entry in entries),
        label=_encode_values(entries, lambda entry: entry.label),
        kind=_encode_values(entries, lambda entry: entry.kind),
        reward=tuple(None if entry.reward is None else round(entry.reward, 6) for entry in entries),
        seconds=tuple(round(entry.seconds, 3) for entry in entries),
        tokens=tuple(sum(call.completion_tokens for call in entry.calls if call.role == "policy") for entry in entries),
        checks=_encode_values(entries, lambda entry: "\n".join(check.name for check in entry.checks)),
        marks=tuple("".join(_MARKS[check.passed] for check in entry.checks) for entry in entries),
        asked=tuple(entry.asked[:limit] for entry in entries),
        said=tuple((entry.said or entry.reason if texts else entry.reason)[: limit or PREVIEW] for entry in entries),
        slices={name: _encode_values(entries, _pick_slice(name)) for name in slices},
    )


def _pick_slice(name: str) -> Callable[[ReportEntry], str]:
    return lambda entry: entry.slices.get(name, "")


def _encode_values(entries: Sequence[ReportEntry], value_of: Callable[[ReportEntry], str]) -> Coded:
    names: dict[str, int] = {}
    codes = []
    for entry in entries:
        value = value_of(entry)
        codes.append(names.setdefault(value, len(names)) if value else -1)
    return Coded(tuple(names), tuple(codes))


def sort_failures_first(entries: Iterable[ReportEntry]) -> list[ReportEntry]:
    """Return the rows in the order of their worth to a reader: without a grade, then the least rewarded, else as they
    came.
    """
    return sorted(entries, key=_rank_entry)


def _rank_entry(entry: ReportEntry) -> tuple[Any, ...]:
    return (entry.graded, entry.reward if entry.reward is not None else 0.0, entry.number)
