"""``gavel duel A B …``: the replies of two runs or more against each other, each two in both orders."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gavel.envs.slot_texts import find_form
from gavel.judges.bindings import Binding, describe_judges
from gavel.judges.form_types import PairForm
from gavel.judges.judge import BoundJudges
from gavel.judges.pairs.asking import ask_pair
from gavel.judges.types import Judge, JudgeFailure, JudgeQuery
from gavel.launch.assembly.assemble import Assembly, assemble_run, make_asset_store
from gavel.launch.assembly.measuring import check_judges_reached
from gavel.launch.comparing.cells import escape_cell
from gavel.launch.comparing.contestants import read_contestant
from gavel.launch.comparing.duels import (
    COLUMNS,
    Contestant,
    Duel,
    DuelFigures,
    DuelLine,
    compute_figures,
    format_metric,
    iter_rows,
    list_duels,
)
from gavel.launch.comparing.runs import choose_names
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import DuelConfig
from gavel.launch.config.stored import to_yaml
from gavel.launch.rollout.budget import Allowance, check_budget
from gavel.launch.rollout.session import GOES_ON, INCOMPLETE, STOPPED, WHOLE, run_async
from gavel.launch.runs.files import JsonLines, read_lines, write_whole
from gavel.launch.runs.lease import FolderLock
from gavel.models.codec import dump, load, to_json
from gavel.models.errors import ConfigError
from gavel.models.failures import Failure, FailureKind
from gavel.models.pool import open_services

LINES = "duels.jsonl"


def run(config: DuelConfig, console: Console) -> int:
    """Run the verb; see ``gavel duel --help``. Returns 0; 3 where pairs lack a verdict; 4 if the budget ended first."""
    if len(config.runs) < 2:
        raise ConfigError(
            "two runs or more meet in a duel",
            field="runs",
            found=", ".join(config.runs) or "none",
            remedy="name them: gavel duel runs/A runs/B rubrics.better.file=better.yaml",
        )
    for key in ("concurrency", "draws"):
        if getattr(config, key) < 1:
            raise ConfigError("must be at least 1", field=key, found=str(getattr(config, key)))
    check_budget(config.budget)
    assembly = assemble_run(config, with_policy=False)
    binding, pair, duels, contestants = _plan_duels(config, assembly)
    for note in _list_absent(contestants):
        print_line(console, note)
    if config.dry_run:
        print_line(
            console,
            f"would ask {describe_judges(binding)} about {len(duels)} pairs in both orders: {2 * len(duels)} calls",
        )
        return WHOLE
    folder = Path(config.run.dir or time.strftime("runs/duel-%Y%m%d-%H%M%S")).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    names = [one.name for one in contestants]
    with FolderLock(folder):
        write_whole(folder / "duel.yaml", to_yaml(config).encode())
        known = _read_known(folder)
        return run_async(
            lambda: _meet(config, assembly, (binding, pair), duels, known, names, folder, console), console, GOES_ON
        )


def _plan_duels(config: DuelConfig, assembly: Assembly) -> tuple[Binding, PairForm, list[Duel], list[Contestant]]:
    bindings = list(assembly.bindings.values())
    forms = [find_form(one.rubric) for one in bindings]
    if len(bindings) != 1 or forms[0] is None or forms[0].pair is None:
        raise ConfigError(
            "a duel has one rubric, of pairs",
            field="rubrics",
            found=", ".join(f"{one.name}: {one.rubric.profile}" for one in bindings) or "none",
            allowed="a rubric of a file with pair: {first: …, second: …}",
            remedy="rubrics.better.file=better.yaml; docs/own_grading.md shows one",
        )
    form, pair, binding = forms[0], forms[0].pair, bindings[0]
    names = choose_names([Path(text).expanduser() for text in config.runs])
    if len(set(names)) < len(names):
        raise ConfigError("a run is named twice", field="runs", found=", ".join(config.runs), allowed="each run once")
    contestants = [read_contestant(text, name) for text, name in zip(config.runs, names, strict=True)]
    duels = list_duels(contestants, form, pair, binding)
    if not duels:
        raise ConfigError(
            "these runs have no reply to one task in common", field="runs", found=", ".join(map(_describe, contestants))
        )
    return binding, pair, duels, contestants


def _list_absent(contestants: Sequence[Contestant]) -> Iterator[str]:
    """Say which rows take no part."""
    for one in contestants:
        if one.unanswered:
            yield f"{one.name}: {one.unanswered} planned rows have no grade and take no part"
        alone = sum(not any(key in other.replies for other in contestants if other is not one) for key in one.replies)
        if alone:
            yield f"{one.name}: {alone} replies are to tasks, or rollouts, that no other has, and take no part"


def _describe(one: Contestant) -> str:
    return f"{one.name}: {len(one.replies)} replies"


def _read_known(folder: Path) -> dict[str, DuelLine]:
    """Return the verdicts that the folder holds by the question's key; one that failed is asked again."""
    path = folder / LINES
    lines = (load(DuelLine, raw, where=f"{path}:{number}") for number, raw in read_lines(path)) if path.exists() else ()
    return {line.key: line for line in lines if line.winner is not None}


async def _meet(
    config: DuelConfig,
    assembly: Assembly,
    grader: tuple[Binding, PairForm],
    duels: Sequence[Duel],
    known: Mapping[str, DuelLine],
    names: Sequence[str],
    folder: Path,
    console: Console,
) -> int:
    (binding, pair), allowance, store = grader, Allowance(config.budget), make_asset_store(config.assets)
    open_duels = [duel for duel in duels if duel.key not in known]
    found = {duel.key: known[duel.key] for duel in duels if duel.key in known}
    if open_duels:
        await check_judges_reached(assembly)
        judging = {one.service for one in binding.judges}
        replies = config.assets.replies
        async with open_services(
            {name: service for name, service in assembly.services.items() if name in judging},
            log_dir=folder / "logs",
            progress=lambda line: print_line(console, line),
            assets_cache=store.cache,
            mirror=store.mirror,
            offline=store.offline,
            replies=Path(replies) if replies else None,
        ) as pool:
            judge = BoundJudges(assembly.bindings, partial(allowance.bound_model, pool))
            with JsonLines(folder / LINES, digested=True) as lines:
                found |= await _ask_all(judge, binding.name, pair, open_duels, lines, config.concurrency)
    whole = [found[duel.key] for duel in duels]
    _tell(compute_figures(whole, names, draws=config.draws, seed=config.seed), folder, console)
    if allowance.stopped is not None:
        print_line(console, f"stopped: {allowance.stopped}; the same command goes on from here")
        return STOPPED
    return INCOMPLETE if any(line.failure is not None for line in whole) else WHOLE


async def _ask_all(
    judge: Judge, name: str, pair: PairForm, duels: Sequence[Duel], lines: JsonLines, concurrency: int
) -> dict[str, DuelLine]:
    """Ask about each pair and store what came at once; a refusal by the budget is no answer and is not stored."""
    waiting, found = iter(duels), dict[str, DuelLine]()

    async def ask_next() -> None:
        for duel in waiting:
            line = found[duel.key] = await _ask_one(judge, name, pair, duel)
            if line.failure is None or line.failure.kind is not FailureKind.CANCELLED:
                lines.append(dump(line))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(duels))):
            group.create_task(ask_next())
    return found


async def _ask_one(judge: Judge, name: str, pair: PairForm, duel: Duel) -> DuelLine:
    who = (duel.key, duel.task_id, duel.rollout_index, duel.first, duel.second)
    try:
        answer = await ask_pair(judge, JudgeQuery(name, duel.slots, prefix_key=duel.task_id), pair)
    except JudgeFailure as failed:
        return DuelLine(*who, None, None, False, Failure(failed.kind, "judge", failed.reason), failed.receipts)
    grade = answer.grade
    return DuelLine(*who, grade.winner, grade.orders, grade.position_flip, None, answer.receipts)


def _tell(figures: DuelFigures, folder: Path, console: Console) -> None:
    rows, strengths = list(iter_rows(figures)), figures.strengths
    shown = Table(title="duels, both orders asked", title_justify="left", show_edge=False)
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
    for row in rows:
        shown.add_row(*map(Text, row))
    console.print(shown)
    said = [f"strength of {name} (Bradley-Terry, log-odds): {format_metric(one)}" for name, one in strengths.items()]
    for line in said:
        print_line(console, line)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *([escape_cell(cell) for cell in row] for row in rows)])
    table = ["| " + " | ".join(row) + " |" for row in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    files = {
        "duel.json": to_json(figures) + b"\n",
        "duel.csv": text.getvalue().encode(),
        "duel.md": ("\n".join([*table, "", *(f"- {line}" for line in said)]) + "\n").encode(),
    }
    for name, data in files.items():
        write_whole(folder / name, data)
    print_line(console, f"written: {', '.join([*files, LINES])} in {folder}")
