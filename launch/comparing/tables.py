"""A comparison of training runs as terminal tables, CSV, Markdown, JSON and pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from gavel.envs.types import Metric
from gavel.launch.comparing.cells import escape_cell
from gavel.launch.comparing.curves import Value, compute_checks, reward_of
from gavel.launch.comparing.pictures import draw_runs
from gavel.launch.comparing.training import GroupDifference, RunCurve, TrainedRun, TrainingComparison
from gavel.launch.runs.files import write_whole
from gavel.models.codec import to_json

RUNS = ("run", "steps", "graded", "ungraded", "first", "low", "high", "last", "low", "high", "change", "low", "high")
DIFFERENCES = (
    "what",
    "base",
    "group",
    "base mean",
    "mean",
    "difference",
    "low",
    "high",
    "tasks",
    "over seeds",
    "low",
    "high",
    "seeds",
)
CURVES = (
    "run",
    "group",
    "seed",
    "step",
    "mean",
    "low",
    "high",
    "graded",
    "ungraded",
    "smooth",
    "smooth low",
    "smooth high",
)
_LEFT = ("run", "what", "base", "group")


def run_rows(found: TrainingComparison) -> list[tuple[str, ...]]:
    """Return the cells of the table of runs: their first steps, their last ones, and the change."""
    return [_run_row(run) for run in found.runs]


def _run_row(run: RunCurve) -> tuple[str, ...]:
    head = (run.name, str(run.steps), str(run.graded), str(sum(run.ungraded.values())))
    if run.change is None:
        return (*head, *[""] * 9)
    return (
        *head,
        *(
            cell
            for metric in (run.change.first, run.change.last, run.change.difference)
            for cell in _format_cells(metric)
        ),
    )


def make_difference_rows(found: TrainingComparison) -> list[tuple[str, ...]]:
    """Return the cells of the table of differences."""
    return [
        (
            item.what,
            item.base,
            item.other,
            _format_number(item.base_mean),
            _format_number(item.other_mean),
            *_format_cells(item.over_tasks),
            str(item.paired) if item.paired else "not paired",
            *(_format_cells(item.over_seeds) if item.over_seeds else ("", "", "")),
            str(item.over_seeds.n) if item.over_seeds else "0",
        )
        for item in found.differences
    ]


def _format_cells(metric: Metric) -> tuple[str, str, str]:
    return _format_number(metric.value), _format_number(metric.low), _format_number(metric.high)


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def make_tables(found: TrainingComparison) -> list[Table]:
    """Return the terminal tables; what its interval tells from 0 stands bold."""
    title = f"mean reward of the first and the last {found.window} steps, 95 % intervals over tasks"
    runs = _make_table(
        title, RUNS, run_rows(found), [_is_clear(run.change.difference) if run.change else False for run in found.runs]
    )
    if not found.differences:
        return [runs]
    title = f"the last {found.window} steps against {found.base}: 95 % intervals over tasks, and over seeds"
    rows, marks = make_difference_rows(found), [_is_clear(item.over_tasks) for item in found.differences]
    return [runs, _make_table(title, DIFFERENCES, rows, marks)]


def _make_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], marks: Sequence[bool]) -> Table:
    shown = Table(title=title, title_justify="left", show_edge=False)
    for column in columns:
        shown.add_column(column, justify="left" if column in _LEFT else "right")
    for cells, mark in zip(rows, marks, strict=True):
        shown.add_row(*(Text(cell) for cell in cells), style="bold" if mark else "")
    return shown


def _is_clear(metric: Metric) -> bool:
    return metric.low is not None and metric.high is not None and (metric.low > 0 or metric.high < 0)


def list_notes(found: TrainingComparison) -> list[str]:
    """Return what a reader must know besides the tables."""
    lines = [
        f"{run.name}: {sum(run.ungraded.values())} samples were not graded and are in no figure "
        f"({', '.join(f'{count} {kind}' for kind, count in run.ungraded.items())})"
        for run in found.runs
        if run.ungraded
    ]
    if len(set(found.rewards.values())) > 1 and len(found.rewards) > 1:
        how = "; ".join(f"{group}: {reward}" for group, reward in found.rewards.items())
        lines.append(
            f"the groups are rewarded differently ({how}): a difference in reward is not one in behaviour; look at "
            f"checks and labels"
        )
    lines += _explain_intervals(found.differences)
    if len(found.rewards) > 2:
        lines.append(
            "each group is compared with the first only; choosing the best of many by its interval flatters it"
        )
    return lines


def _explain_intervals(differences: Sequence[GroupDifference]) -> list[str]:
    if not differences:
        return []
    seeds = {item.over_seeds.n if item.over_seeds else 0 for item in differences}
    said = (
        "over tasks: for these trainings on other prompts, seeds averaged; over seeds: for another training "
        "(Student's t)"
    )
    few = (
        ["fewer than 2 seeds are in both groups: nothing can be said about another training"] if max(seeds) < 2 else []
    )
    return [said, *few]


def write_comparison(folder: Path, found: TrainingComparison, runs: Sequence[TrainedRun]) -> list[str]:
    """Write everything into a folder; return the files' names."""
    folder.mkdir(parents=True, exist_ok=True)
    blocks = [(RUNS, run_rows(found)), *([(DIFFERENCES, make_difference_rows(found))] if found.differences else [])]
    said = [f"- {line}" for line in list_notes(found)]
    text = [line for columns, rows in blocks for line in (*format_markdown(columns, rows), "")]
    files = {
        "compare.json": to_json(found),
        "curves.csv": format_csv(CURVES, make_curve_rows(found)),
        "runs.csv": format_csv(RUNS, run_rows(found)),
        "compare.csv": format_csv(DIFFERENCES, make_difference_rows(found)),
        "compare.md": "\n".join([*text, *said, ""]).encode(),
    }
    for name, data in files.items():
        write_whole(folder / name, data)
    return [*files, *_draw_pictures(folder, found, runs)]


def make_curve_rows(found: TrainingComparison) -> list[tuple[str, ...]]:
    """Return the cells of the table of curves, one row for each step of each run."""
    return [
        (
            run.name,
            run.group,
            str(run.seed),
            str(point.step),
            *(_format_cells(point.mean) if point.mean else ("", "", "")),
            str(point.mean.n if point.mean else 0),
            str(point.ungraded),
            *(_format_cells(point.smooth) if point.smooth else ("", "", "")),
        )
        for run in found.runs
        for point in run.points
    ]


def format_csv(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """Return a table as CSV; a bound is named after what it bounds, since no two columns may have one name."""
    named: list[str] = []
    for column in columns:
        bounded = next((name for name in reversed(named) if not name.endswith((" low", " high"))), "")
        named.append(f"{bounded} {column}" if column in ("low", "high") else column)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([named, *([escape_cell(cell) for cell in row] for row in rows)])
    return text.getvalue().encode()


def format_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines of Markdown."""
    return ["| " + " | ".join(line) + " |" for line in (columns, ("---",) * len(columns), *rows)]


def _draw_pictures(folder: Path, found: TrainingComparison, runs: Sequence[TrainedRun]) -> list[str]:
    samples, groups = {run.name: run.samples for run in runs}, {run.name: run.group for run in runs}
    wanted: list[tuple[str, Value, str]] = [("curves.svg", reward_of, "mean reward")]
    if all(any(sample.checks is not None for sample in run.samples) for run in runs):
        wanted.append(("curves_checks.svg", compute_checks, "share of checks passed"))
    return [
        name
        for name, value, what in wanted
        if draw_runs(folder / name, samples, groups=groups, value=value, what=what, window=found.window)
    ]
