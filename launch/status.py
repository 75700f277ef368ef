"""``gavel status RUN``: how a training run or a sweep goes; everything is read from its folder and from Slurm's queue."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gavel.launch.running.session import say
from gavel.launch.schema import StatusConfig
from gavel.launch.train import job_of
from gavel.launch.training import judge_folder, slurm
from gavel.launch.training.attempts import Attempt, read_attempts
from gavel.launch.training.judge_canary import describe, rounds
from gavel.launch.training.plan import PLAN, RunPlan, read_plan
from gavel.launch.training.sweep_index import INDEX, read_index
from gavel.models.codec import record
from gavel.models.errors import ConfigError
from gavel.models.vllm import logtail

HEALTH_S = 3.0


@record
class Progress:
    """How far a run is: the newest ``step``; ``graded`` and ``ungraded`` samples of its ledgers."""

    step: int | None
    graded: int
    ungraded: int


def run(config: StatusConfig, console: Console) -> int:
    """Run the verb; see ``gavel status --help``. Returns 0."""
    if not config.run.dir:
        raise ConfigError("no run is named", field="run.dir", remedy="name it: gavel status runs/NAME")
    path = Path(config.run.dir).expanduser().absolute()
    if (path / INDEX).is_file():
        console.print(_sweep(path))
        return 0
    if (path / "manifest.json").is_file():
        raise ConfigError(
            "this is a run of `gavel rollout`, not a training run or a sweep", field="run.dir", found=config.run.dir,
            remedy=f"look at it: gavel view {config.run.dir}; as a file: gavel report {config.run.dir}",
        )  # fmt: skip
    plan = read_plan(path)
    table = Table("what", "how", title=str(path), title_justify="left", show_edge=False)
    for what, how in _rows(path, plan):
        table.add_row(what, Text(how))
    console.print(table)
    for line in _last_lines(path, config.lines):
        say(console, line)
    return 0


def state_of(path: Path) -> str:
    """Say in a few words what became of a run."""
    attempts, job = read_attempts(path), job_of(path)
    queued = slurm.state(job) if job else None
    newest = attempts[-1] if attempts else None
    if queued is not None and (newest is None or newest.ended is not None or not queued.startswith("RUNNING")):
        return f"job {job} {queued}"
    if newest is None:
        return "not begun" if not job else f"job {job} is over and left nothing: see logs/slurm-{job}.out"
    if newest.ended is None and newest.job and slurm.job_is_gone(newest.job):
        return f"its job {newest.job} ended without a word (killed?); start it again to go on"
    if newest.ended is None and not newest.job and newest.host == socket.gethostname() and not _held(path):
        return "it ended without a word (killed?); start it again to go on"
    return newest.state


def _held(path: Path) -> bool:
    """Whether the process that locked a run folder, here, still runs."""
    try:
        return judge_folder.process_runs(int((path / ".lock").read_text()))
    except (OSError, ValueError):
        return False


def progress_of(path: Path) -> Progress:
    """Count what the ledgers of a run hold."""
    step, graded, ungraded = None, 0, 0
    for row in _lines(path / "ledger" / "steps.jsonl"):
        step = max(step or 0, int(row.get("step", 0)))
    for file in (path / "ledger").glob("*.rows.jsonl"):
        for row in _lines(file):
            failed = (row.get("verdict") or {}).get("failure") is not None
            graded, ungraded = graded + (not failed), ungraded + failed
    return Progress(step, graded, ungraded)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield whole lines; the writer may be in the middle of one, and a full disk may have left half of one."""
    if path.is_file():
        with path.open("rb") as file:
            for line in file:
                with contextlib.suppress(orjson.JSONDecodeError):
                    row = orjson.loads(line) if line.endswith(b"\n") else None
                    if isinstance(row, dict):
                        yield row


def _rows(path: Path, plan: RunPlan) -> Iterator[tuple[str, str]]:
    yield "state", state_of(path)
    for attempt in read_attempts(path)[-3:]:
        yield f"attempt {attempt.number}", _attempt(attempt)
    if plan.judge is not None:
        yield "judge", _judge(plan)
    done = progress_of(path)
    yield "step", "none yet" if done.step is None else str(done.step)
    total = done.graded + done.ungraded
    yield "ungraded", f"{done.ungraded} of {total} samples ({done.ungraded / total:.1%})" if total else "no sample yet"
    for binding, report in {one.binding: one.report for one in rounds(path)}.items():
        yield "canaries", ("DRIFT: " if report.exceeded else "") + describe(binding, report)
    for waived in plan.unqualified:
        yield "waived", waived


def _attempt(attempt: Attempt) -> str:
    minutes = ((attempt.ended or time.time()) - attempt.began) / 60
    where = f"{attempt.host}, job {attempt.job}" if attempt.job else attempt.host
    reason = f": {attempt.reason.splitlines()[0]}" if attempt.reason else ""
    return f"{attempt.state} after {minutes:.1f} min on {where}{reason}"


def _judge(plan: RunPlan) -> str:
    if plan.judge_folder is None:
        return "served by the run itself, on its own node"
    assert plan.judge is not None
    found = judge_folder.endpoints(Path(plan.judge_folder))
    urls = [url for one in found for replicas in one.urls.values() for url in replicas]
    wanted = plan.judge.nodes
    healthy = sum(_healthy(url) for url in urls)
    return f"{len(found)} of {wanted} nodes, {healthy} of {len(urls)} replicas answer ({plan.mode}, {plan.judge_folder})"


def _healthy(url: str) -> bool:
    try:
        with urlopen(url.removesuffix("/v1") + "/health", timeout=HEALTH_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _last_lines(path: Path, count: int) -> list[str]:
    logs = sorted((path / "logs").glob("*"), key=lambda file: file.stat().st_mtime)
    chosen = [file for file in logs if file.name.startswith("trainer-")][-1:] or [file for file in logs if file.is_file()][-1:]
    if not chosen or count < 1:
        return []
    return [f"the end of {chosen[0]}:", *deque(logtail.tail(chosen[0], count).splitlines(), count)]


def _first_line(note: str) -> str:
    """Return what a point failed of in one line; older indexes hold whole texts with their line ends written out."""
    return note.partition("\\n")[0].splitlines()[0]


def _sweep(path: Path) -> Table:
    table = Table("point", "what", "state", "step", "ungraded", title=str(path), title_justify="left", show_edge=False)
    for point in read_index(path).points:
        folder = path / point.name
        if not (folder / PLAN).is_file():
            table.add_row(str(point.index), Text(" ".join(point.overrides)), Text(_first_line(point.note or point.state)), "", "")
            continue
        done = progress_of(folder)
        total = done.graded + done.ungraded
        share = f"{done.ungraded / total:.1%}" if total else ""
        state = state_of(folder)
        table.add_row(str(point.index), Text(" ".join(point.overrides)), Text(state), str(done.step or ""), share)
    return table
