"""A run as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from gavel.envs.types import Metric
from gavel.launch.comparing.cells import escape_cell
from gavel.launch.report.entry import ReportEntry
from gavel.launch.report.overview import make_overview, slice_names
from gavel.launch.report.records import Overview
from gavel.launch.report.source import RunSource
from gavel.models.errors import make_visible

COLUMNS = (
    "task_id", "rollout_index", "attempt", "status", "label", "reward", "failure_kind", "failure_reason",
    "checks_passed", "checks_failed", "seconds", "policy_tokens", "judge_calls",
)  # fmt: skip
RANKS = ("p50", "p90", "p99")


def format_csv(source: RunSource) -> bytes:
    """Return one line for each row of a run, ``COLUMNS`` and its slices; texts that a spreadsheet would compute get an
    apostrophe.

    Where scores come with a note (no certification), each line carries it.
    """
    slices = slice_names(source.entries)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    note = make_overview(source).note
    notes = {"note": note} if note else {}
    writer.writerow([*COLUMNS, *(f"slice_{name}" for name in slices), *notes])
    for entry in source.entries:
        writer.writerow(
            [
                _format_cell(value)
                for value in (*_list_values(entry), *(entry.slices.get(name, "") for name in slices), *notes.values())
            ]
        )
    return text.getvalue().encode()


def _list_values(entry: ReportEntry) -> tuple[Any, ...]:
    passed = [check.passed for check in entry.checks]
    return (
        entry.task_id,
        entry.rollout_index,
        entry.attempt,
        entry.status,
        entry.label if entry.graded else "",
        entry.reward,
        entry.kind,
        entry.reason,
        passed.count(True),
        passed.count(False),
        round(entry.seconds, 3),
        sum(call.completion_tokens for call in entry.calls if call.role == "policy"),
        sum(call.role == "judge" and call.how == "made" for call in entry.calls),
    )


def _format_cell(value: object) -> object:
    if value is None:
        return ""
    return escape_cell(value) if isinstance(value, str) else value


def format_markdown(source: RunSource) -> bytes:
    """Return what a run came to, as tables."""
    found = make_overview(source)
    lines = [f"# {_escape_text(found.name)}", ""]
    lines += [f"> {_escape_text(note)}\n" for note in (found.note, *(judge.line for judge in found.judges)) if note]
    lines += _format_table(("what", "value"), found.facts.items())
    lines += _format_table(("rows", "count"), found.rows.items())
    lines += ["## Reward and labels", "", *_format_table(("what", "value", "low", "high", "n"), _list_figures(found))]
    lines += _format_rewards(found) + _format_rest(found)
    return ("\n".join(lines).rstrip() + "\n").encode()


def _list_figures(found: Overview) -> Iterable[tuple[object, ...]]:
    if found.reward is not None:
        yield ("mean reward", *_format_metric(found.reward))
    for share in found.labels:
        yield (share.name, *_format_metric(share.metric))


def _format_rewards(found: Overview) -> list[str]:
    rows = [
        (
            reward.name + (" (this run)" if reward.own else ""),
            *(_format_metric(reward.metric) if reward.metric else ("-",) * 4),
        )
        for reward in found.rewards
    ]
    return (
        [
            "## The same outcomes under each reward policy",
            "",
            *_format_table(("policy", "mean", "low", "high", "n"), rows),
        ]
        if rows
        else []
    )


def _format_rest(found: Overview) -> list[str]:
    lines: list[str] = []
    for title, head, rows in _list_tables(found):
        lines += [f"## {title}", "", *_format_table(head, rows)] if rows else []
    return lines


def _list_tables(found: Overview) -> Iterable[tuple[str, Sequence[str], list[tuple[object, ...]]]]:
    """Yield title, head and rows of each table; one without rows is left out."""
    yield (
        "Rows without a grade",
        ("kind", "rows", "again on resume", "the first reason"),
        [(one.kind, one.count, "yes" if one.again else "no", one.first) for one in found.failures],
    )
    yield (
        "Checks",
        ("check", "passed", "failed", "not checked", "share", "low", "high"),
        [
            (
                one.name,
                one.passed,
                one.failed,
                one.unknown,
                *(_format_metric(one.metric)[:3] if one.metric else ("-",) * 3),
            )
            for one in found.checks
        ],
    )
    if found.ratings is not None:
        yield (
            "Ratings by dimension",
            ("dimension", *found.ratings.ratings),
            [(name, *row) for name, row in found.ratings.matrix.items()],
        )
    yield (
        "Calls",
        ("role", "service", "calls", "cache", "shared", *RANKS),
        [
            (
                one.role,
                one.service,
                one.made,
                one.cache,
                one.shared,
                *(_format_seconds(one.percentiles.get(rank)) for rank in RANKS),
            )
            for one in found.services
        ],
    )
    yield (
        "Figures",
        ("figure", "value", "low", "high", "n"),
        [
            (name, *(_format_number(metric.get(part)) for part in ("value", "low", "high")), metric.get("n"))
            for name, metric in found.metrics.items()
        ],
    )


def _format_seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


def _format_metric(metric: Metric) -> tuple[str, str, str, str]:
    return _format_number(metric.value), _format_number(metric.low), _format_number(metric.high), str(metric.n)


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _format_table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> list[str]:
    lines = [[_escape_text(str(cell)) for cell in row] for row in rows]
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines)] + [""]


def _escape_text(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    text = " ".join(make_visible(text).split())
    for character in "\\&<>`*_[]|":
        text = text.replace(
            character,
            f"\\{character}" if character not in "<>&" else {"<": "&lt;", ">": "&gt;", "&": "&amp;"}[character],
        )
    return text
