"""``gavel status RUN``: how a training run or a sweep goes; everything is read from its folder and from Slurm's
queue.
"""

from __future__ import annotations

import shlex
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.request import urlopen

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gavel.launch.comparing.curves import WINDOW, compute_mean, format_metric
from gavel.launch.comparing.ledgers import read_samples
from gavel.launch.comparing.runs import find_bounds, find_clusters, read_config
from gavel.launch.comparing.trait_changes import read_trait_changes
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import StatusConfig
from gavel.launch.runs.sweep_index import INDEX, read_index
from gavel.launch.runs.training_plan import PLAN, RunPlan, read_judge_plan, read_plan
from gavel.launch.training import slurm
from gavel.launch.training.attempts import TrainingAttempt, read_attempts
from gavel.launch.training.judge import folder as judge_folder
from gavel.launch.training.judge.canary import describe_round, read_rounds
from gavel.launch.training.progress import plan_steps, read_rows
from gavel.launch.training.start import find_job
from gavel.launch.training.verb_jobs import describe_jobs, read_jobs
from gavel.models.codec import record
from gavel.models.errors import ConfigError, GavelError, InputError
from gavel.models.vllm import logtail

HEALTH_S = 3.0


@record
class RunProgress:
    """How far a run is: the newest ``step``; ``graded`` and ``ungraded`` samples of its ledgers, of which ``unused``
    are in no step: an asynchronous trainer is ahead with them, or they were under way when it was last ended.
    """

    step: int | None
    graded: int
    ungraded: int
    unused: int = 0


def run(config: StatusConfig, console: Console) -> int:
    """Run the verb; see ``gavel status --help``. Returns 0."""
    if not config.run.dir:
        raise ConfigError("no run is named", field="run.dir", remedy="name it: gavel status runs/NAME")
    path = Path(config.run.dir).expanduser().absolute()
    if (path / INDEX).is_file():
        shown_table, said = _show_sweep(path)
        console.print(shown_table)
        for line in said:
            print_line(console, line)
        return 0
    if (jobs := read_jobs(path)) is not None:
        console.print(_make_table(path, describe_jobs(path, jobs)))
        return 0
    if (path / "manifest.json").is_file():
        word = shlex.quote(config.run.dir)
        raise ConfigError(
            "this is a run of `gavel rollout`, not a training run or a sweep",
            field="run.dir",
            found=config.run.dir,
            remedy=f"look at it: gavel view {word}; as a file: gavel report {word}",
        )
    plan = read_plan(path)
    console.print(_make_table(path, _list_rows(path, plan)))
    for line in _read_last_lines(path, config.lines):
        print_line(console, line)
    return 0


def _make_table(path: Path, rows: Iterable[tuple[str, str]]) -> Table:
    table = Table("what", "how", title=str(path), title_justify="left", show_edge=False)
    for what, how in rows:
        table.add_row(what, Text(how))
    return table


def describe_state(path: Path) -> str:
    """Say in a few words what became of a run."""
    attempts, job = read_attempts(path), find_job(path)
    queued = slurm.query_state(job) if job else None
    newest = attempts[-1] if attempts else None
    if queued is not None and (newest is None or newest.ended is not None or not queued.startswith("RUNNING")):
        return f"job {job} {queued}"
    if newest is None:
        return "not begun" if not job else f"job {job} is over and left nothing: see logs/slurm-{job}.out"
    if newest.ended is None and newest.job and slurm.is_job_gone(newest.job):
        return f"its job {newest.job} ended without a word (killed?); start it again to go on"
    if newest.ended is None and not newest.job and newest.host == socket.gethostname() and not _is_held(path):
        return "it ended without a word (killed?); start it again to go on"
    return newest.state


def _is_held(path: Path) -> bool:
    """Whether the process that locked a run folder, here, still runs."""
    try:
        return judge_folder.process_runs(int((path / ".lock").read_text()))
    except (OSError, ValueError):
        return False


def count_progress(path: Path) -> RunProgress:
    """Count what the ledgers of a run hold."""
    step, graded, ungraded, unused = None, 0, 0, 0
    used = set()
    for row in read_rows(path / "ledger" / "steps.jsonl"):
        step = max(step or 0, int(row.get("step", 0)))
        used.add(row.get("uid"))
    for file in (path / "ledger").glob("*.rows.jsonl"):
        for row in read_rows(file):
            failed = (row.get("verdict") or {}).get("failure") is not None
            graded, ungraded = graded + (not failed), ungraded + failed
            unused += bool(used) and row.get("uid") not in used
    return RunProgress(step, graded, ungraded, unused)


def _list_rows(path: Path, plan: RunPlan) -> Iterator[tuple[str, str]]:
    yield "state", describe_state(path)
    for attempt in read_attempts(path)[-3:]:
        yield f"attempt {attempt.number}", _describe_attempt(attempt)
    if plan.judge is not None:
        yield "judge", _describe_judge(plan)
    done = count_progress(path)
    yield "step", describe_steps(path, done.step) or "none yet"
    if reward := reward_of_last(path):
        yield "mean reward", f"{reward} over the last {WINDOW} steps"
    total = done.graded + done.ungraded
    yield "ungraded", f"{done.ungraded} of {total} samples ({done.ungraded / total:.1%})" if total else "no sample yet"
    if done.unused:
        yield "in no step", f"{done.unused} samples: rolled out ahead, or under way when the trainer was last ended"
    for binding, report in {one.binding: one.report for one in read_rounds(path)}.items():
        yield "canaries", ("DRIFT: " if report.exceeded else "") + describe_round(binding, report)
    for change in read_trait_changes(path):
        yield "watch", change.describe()
    for waived in plan.unqualified:
        yield "waived", waived


def _describe_attempt(attempt: TrainingAttempt) -> str:
    minutes = ((attempt.ended or time.time()) - attempt.began) / 60
    where = f"{attempt.host}, job {attempt.job}" if attempt.job else attempt.host
    reason = f": {attempt.reason.splitlines()[0]}" if attempt.reason else ""
    return f"{attempt.state} after {minutes:.1f} min on {where}{reason}"


def _describe_judge(plan: RunPlan) -> str:
    if plan.judge_folder is None:
        return "served by the run itself, on its own node"
    assert plan.judge is not None
    found = judge_folder.list_endpoints(Path(plan.judge_folder))
    urls = [url for one in found for replicas in one.urls.values() for url in replicas]
    wanted = plan.judge.nodes
    healthy = sum(_is_healthy(url) for url in urls)
    return (
        f"{len(found)} of {wanted} nodes, {healthy} of {len(urls)} replicas answer ({plan.mode}, {plan.judge_folder})"
    )


def _is_healthy(url: str) -> bool:
    try:
        with urlopen(url.removesuffix("/v1") + "/health", timeout=HEALTH_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _read_last_lines(path: Path, count: int) -> list[str]:
    logs = sorted((path / "logs").glob("*"), key=lambda file: file.stat().st_mtime)
    chosen = [file for file in logs if file.name.startswith("trainer-")][-1:] or [
        file for file in logs if file.is_file()
    ][-1:]
    if not chosen or count < 1:
        return []
    return [f"the end of {chosen[0]}:", *deque(logtail.read_tail(chosen[0], count).splitlines(), count)]


def _get_first_line(note: str) -> str:
    """Return what a point failed of in one line; older indexes hold whole texts with their line ends written out."""
    return note.partition("\\n")[0].splitlines()[0]


COLUMNS = ("point", "what", "state", "step", "mean reward", "ungraded")


def _show_sweep(path: Path) -> tuple[Table, list[str]]:
    """Return the table of a sweep's points, and lines that say why points failed and how the judges are that they
    share.
    """
    table, said = Table(*COLUMNS, title=str(path), title_justify="left", show_edge=False), []
    for point in read_index(path).points:
        folder, what = path / point.name, Text(" ".join(point.overrides))
        if not (folder / PLAN).is_file():
            table.add_row(str(point.index), what, Text(_get_first_line(point.note or point.state)), "", "", "")
            continue
        done = count_progress(folder)
        total = done.graded + done.ungraded
        share = f"{done.ungraded / total:.1%}" if total else ""
        table.add_row(
            str(point.index),
            what,
            Text(describe_state(folder)),
            describe_steps(folder, done.step),
            Text(reward_of_last(folder)),
            share,
        )
        attempts = read_attempts(folder)
        if attempts and attempts[-1].state == "failed" and attempts[-1].reason:
            said.append(f"point {point.index} failed: {_get_first_line(attempts[-1].reason)}")
    return table, [*said, *(line for judge in sorted(path.glob("judge-*")) for line in _describe_shared(judge))]


def _describe_shared(folder: Path) -> Iterator[str]:
    """Say how a judge of many runs is."""
    started = judge_folder.read_job(folder)
    if not started:
        return
    plan, job = read_judge_plan(folder), started.get("job")
    state = (
        (slurm.query_state(job) or "is over")
        if job
        else "runs"
        if judge_folder.process_runs(int(started["pid"]))
        else "is over"
    )
    name = f"job {job}" if job else f"process {started['pid']}"
    urls = [url for one in judge_folder.list_endpoints(folder) for replicas in one.urls.values() for url in replicas]
    models = ", ".join(dict.fromkeys(str(service.model) for service in plan.services.values()))
    yield (
        f"judge {models}: {name} {state}, {sum(map(_is_healthy, urls))} of {len(urls)} published replicas answer "
        f"({folder})"
    )
    for reason in judge_folder.list_deaths(folder):
        yield f"judge {models}: {_get_first_line(reason)}"


def describe_steps(path: Path, step: int | None) -> str:
    """Return how far a run is: ``12 of 1000``; without the total where its config does not say."""
    try:
        values = yaml.safe_load((path / read_plan(path).config).read_text(encoding="utf-8"))
        total = plan_steps(values).steps if isinstance(values, dict) else None
    except (OSError, GavelError, yaml.YAMLError):
        total = None
    if step is None:
        return "" if total is None else f"0 of {total}"
    return str(step) if total is None else f"{step} of {total}"


def reward_of_last(path: Path, window: int = WINDOW) -> str:
    """Return the mean reward of the newest steps with its interval over tasks, ``0.412 [0.300, 0.524]``; empty if none
    is graded.
    """
    try:
        config = read_config(path)
        samples = read_samples(path, clusters=find_clusters(config.get("env") or {}))
    except InputError as failed:
        return _get_first_line(str(failed))
    last = sorted({sample.step for sample in samples})[-window:]
    found = compute_mean(
        [sample for sample in samples if sample.step in last], bounds=find_bounds(config.get("reward") or {})
    )
    return "" if found is None else format_metric(found)
