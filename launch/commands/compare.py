"""``gavel compare``: paired comparison of runs, or of trainings by their ledgers, as tables, CSV, Markdown and
pictures.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gavel.envs.registry import find_reward
from gavel.launch.comparing import tables as training_tables
from gavel.launch.comparing.cells import escape_cell
from gavel.launch.comparing.identities import judge_notes, list_identity_notes
from gavel.launch.comparing.paired import FEW, LEAST, Arm, Comparison, Difference, choose_method, compare_arms, make_arm
from gavel.launch.comparing.runs import (
    Named,
    choose_names,
    expand_names,
    find_clusters,
    is_training,
    read_config,
    read_training_runs,
)
from gavel.launch.comparing.training import compare_training
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import CompareConfig
from gavel.launch.report.compared import make_comparison_page
from gavel.launch.runs.child import find_existing_run
from gavel.launch.runs.files import write_whole
from gavel.launch.runs.folder import read_results
from gavel.launch.runs.inputs import read_inputs
from gavel.launch.runs.manifest import read_manifest
from gavel.models.codec import to_json
from gavel.models.errors import ConfigError

COLUMNS = ("what", "base", "run", "base mean", "mean", "difference", "low", "high", "tasks", "p", "p (Holm)")


def run(config: CompareConfig, console: Console) -> int:
    """Run the verb; see ``gavel compare --help``. Returns 0."""
    runs, left_out = expand_names(config.runs)
    if len(runs) < 2:
        raise ConfigError(
            "two runs or more are compared",
            field="runs",
            found=", ".join(config.runs) or "none",
            remedy="name them: gavel compare runs/A runs/B; the first is the base. A sweep may stand for its points",
        )
    for line in left_out:
        print_line(console, f"note: {line}")
    training = [one for one in runs if is_training(one)]
    if training and len(training) < len(runs):
        raise ConfigError(
            "a training run cannot be compared with a rollout",
            field="runs",
            found=str(training[0].path),
            allowed="training runs, or runs of `gavel rollout`",
        )
    return (
        _compare_trainings(runs, config, console)
        if training
        else _compare_rollouts([one.path for one in runs], config, console)
    )


def _compare_trainings(runs: Sequence[Named], config: CompareConfig, console: Console) -> int:
    read = read_training_runs(runs)
    found = compare_training(read, window=config.window, draws=config.draws, seed=config.seed)
    for shown in training_tables.make_tables(found):
        console.print(shown)
    for line in training_tables.list_notes(found):
        print_line(console, line)
    if config.out:
        folder = Path(config.out).expanduser()
        print_line(
            console,
            f"written: {', '.join(training_tables.write_comparison(folder, found, read))} in {folder} "
            f"({len(read)} runs)",
        )
    return 0


def _compare_rollouts(named: Sequence[Path], config: CompareConfig, console: Console) -> int:
    paths = [find_existing_run(str(path), "compare") for path in named]
    names = choose_names(paths)
    arms = [_read_arm(name, path) for name, path in zip(names, paths, strict=True)]
    found = compare_arms(arms, draws=config.draws, seed=config.seed)
    if not any(item.metric.n for item in found.differences):
        raise ConfigError("these runs have no graded task in common", field="runs", found=", ".join(config.runs))
    console.print(make_table(found))
    said = [*list_identity_notes(paths, names), *judge_notes(paths, names), *list_notes(found)]
    for line in said:
        print_line(console, line)
    if config.out:
        _write_files(Path(config.out).expanduser(), found, arms, paths, said, console)
    return 0


def _read_arm(name: str, path: Path) -> Arm:
    config, planned = read_config(path), read_inputs(path)
    manifest = read_manifest(path)
    reward, clusters = find_reward(manifest.reward if manifest else {}), find_clusters(config.get("env") or {})
    digests = {row.key: row.task_digest for row in planned}
    return make_arm(
        name,
        read_results(path, reward=reward, planned=digests),
        len(planned),
        reward.bounds if reward else None,
        clusters,
    )


def make_rows(found: Comparison, none: str = "") -> list[tuple[str, ...]]:
    """Return the cells of the table, one row per difference; ``none`` stands for a figure there is not."""

    def format_number(value: float | None, digits: int = 3) -> str:
        return none if value is None else f"{value:.{digits}f}"

    return [
        (
            item.what,
            item.base,
            item.other,
            format_number(item.base_mean),
            format_number(item.other_mean),
            format_number(item.metric.value),
            format_number(item.metric.low),
            format_number(item.metric.high),
            str(item.metric.n),
            format_number(item.p, 4),
            format_number(item.p_holm, 4),
        )
        for item in found.differences
    ]


def describe_intervals(found: Comparison) -> str:
    """Name the intervals of a comparison: ``95 % intervals over tasks (Student's t)``."""
    kinds = sorted({kind for item in found.differences if (kind := choose_method(item.metric.n))})
    what = f"clusters of tasks, by {found.clusters}" if found.clusters else "tasks"
    return f"95 % intervals over {what} ({' or '.join(kinds)})" if kinds else "too few tasks for intervals"


def make_table(found: Comparison) -> Table:
    """Return the terminal table; differences whose interval leaves out 0 stand bold."""
    shown = Table(
        title=f"against {found.base}: paired by task, {describe_intervals(found)}",
        title_justify="left",
        show_edge=False,
    )
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column in ("what", "base", "run") else "right")
    for item, cells in zip(found.differences, make_rows(found, "-"), strict=True):
        shown.add_row(*(Text(cell) for cell in cells), style="bold" if _is_clear(item) else "")
    return shown


def _is_clear(item: Difference) -> bool:
    low, high = item.metric.low, item.metric.high
    return low is not None and high is not None and (low > 0 or high < 0)


def list_notes(found: Comparison) -> list[str]:
    """Return what a reader must know besides the table."""
    lines = [
        f"{name}: {count} rows were not graded and are in no figure" for name, count in found.ungraded.items() if count
    ]
    lines += [
        f"{name}: {count} tasks are not in both runs and were left out"
        for name, count in found.unpaired.items()
        if count
    ]
    lines += _explain_intervals(found)
    tests = sum(item.p is not None for item in found.differences)
    if tests > 1:
        lines.append(f"{tests} tests were made; p (Holm) is adjusted for all of them, the intervals are not")
    if len(found.tasks) > 2:
        lines.append("each run is compared with the first only; choosing the best of many by its interval flatters it")
    return lines


def _explain_intervals(found: Comparison) -> list[str]:
    """Say why a column has no figures, and what few tasks get."""
    lines = []
    least = min(item.metric.n for item in found.differences)
    if least < LEAST:
        lines.append(f"under {LEAST} tasks there is no interval: so few that happen to agree would claim certainty")
    elif least < FEW:
        lines.append(f"under {FEW} tasks the intervals are Student's t: so few do not show the bootstrap enough")
    if all(item.p is None for item in found.differences):
        lines.append(
            "no p: McNemar's test compares the labels of tasks with one rollout each, and tasks here have several"
        )
    return lines


def _write_files(
    folder: Path, found: Comparison, arms: Sequence[Arm], paths: Sequence[Path], said: Sequence[str], console: Console
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [COLUMNS, *([escape_cell(cell) for cell in row] for row in make_rows(found))]
    )
    lines = ["| " + " | ".join(line) + " |" for line in (COLUMNS, ("---",) * len(COLUMNS), *make_rows(found, "-"))]
    files = {
        "compare.json": to_json(found),
        "compare.csv": text.getvalue().encode(),
        "compare.md": ("\n".join([*lines, "", *(f"- {line}" for line in said)]) + "\n").encode(),
        "compare.html": make_comparison_page(found, paths, [arm.name for arm in arms], said, describe_intervals(found)),
    }
    for name, data in files.items():
        write_whole(folder / name, data)
    pictures = _draw_picture(folder, found)
    console.print(
        f"written: {', '.join([*files, *pictures])} in {folder} ({len(arms)} runs)",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _draw_picture(folder: Path, found: Comparison) -> list[str]:
    """Draw the reward differences; nothing where matplotlib (extra ``report``) is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    items = [item for item in found.differences if item.what == "reward" and item.metric.low is not None]
    if not items:
        return []
    figure = Figure(figsize=(7, 1.2 + 0.4 * len(items)), layout="constrained")
    axes = figure.subplots()
    for place, item in enumerate(items):
        low, high = item.metric.low or 0.0, item.metric.high or 0.0
        axes.plot([low, high], [place, place], color="tab:blue", linewidth=2)
        axes.plot([item.metric.value], [place], "o", color="tab:blue")
    axes.axvline(0, color="0.5", linewidth=1)
    axes.set_yticks(range(len(items)), [item.other for item in items])
    axes.set_xlabel(f"mean reward less that of {found.base} (95 % interval over tasks)")
    axes.invert_yaxis()
    figure.savefig(folder / "compare.svg")
    return ["compare.svg"]
