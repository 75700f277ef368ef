"""What the processes of a training job run: ``train RUN`` on the first node of the training part, ``judge FOLDER`` on
each judge node.

    python -m gavel.launch.training.job train runs/first
    python -m gavel.launch.training.job judge runs/first/judge
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gavel.launch.comparing.runs import find_clusters, read_config
from gavel.launch.runs.lease import FolderLock
from gavel.launch.runs.training_plan import RunPlan, read_plan
from gavel.launch.training import attempts
from gavel.launch.training.attempts import Record
from gavel.launch.training.judge import folder as judge_folder
from gavel.launch.training.judge import serve as judge_job
from gavel.launch.training.judge.canary import GoldenFailed, ask_golden, prepare_canaries
from gavel.launch.training.judge.watch import JudgeAway, JudgeLost, judge_of, split_gpus
from gavel.launch.training.progress import judge_progress
from gavel.launch.training.slurm import query_seconds_left
from gavel.launch.training.trainer_config import with_addresses
from gavel.launch.training.trait_watch import TraitWatch
from gavel.models.errors import GavelError
from gavel.models.files import write_whole
from gavel.models.vllm import logtail
from gavel.models.vllm.process import Supervised, describe_exit
from gavel.models.vllm.supervisor import find_descendants

FINISHED, LOST, INTERRUPTED = 0, 4, 130
TIMEOUT_WORDS = "Timeout has been reached"
"""What NeMo-RL prints when it ends because the time until its last checkpoint has come."""
say = judge_job.print_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run one process of a job; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="gavel.launch.training.job", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("role", choices=("train", "judge"))
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--end-file", type=Path, help="end as on SIGTERM once this file is there, where no signal can come through"
    )
    options = parser.parse_args(argv)
    folder = options.folder.resolve()
    try:
        if options.role == "judge":
            return asyncio.run(judge_job.serve_node(folder, int(os.environ.get("SLURM_NODEID", "0"))))
        return run_training(folder, end_file=options.end_file)
    except GavelError as failed:
        sys.stderr.write(f"{failed}\n")
        return failed.exit_code


def run_training(run: Path, *, follow: bool = False, end_file: Path | None = None) -> int:
    """Start the run in a folder, or go on with it, in the foreground; ``follow`` shows what the trainer writes,
    ``end_file`` asks for an end as SIGTERM does.

    Returns:
        The trainer's exit code; 4 when the judge was lost or the run made no step again and again, 130 when it was told
        to end, 75 when the trainer has ended and there is more to do, or when the run waits for its shared judge.
    """
    with FolderLock(run):
        plan, record = read_plan(run), Record(run)
        try:
            return asyncio.run(_train_run(plan, run, record, follow=follow, end_file=end_file))
        finally:
            if plan.mode == "shared" and plan.judge_folder is not None and not (plan.requeues and record.goes_on):
                judge_folder.leave_run(Path(plan.judge_folder), run)


async def _watch_for(file: Path, asked: asyncio.Event) -> None:
    while not file.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(1.0)
    asked.set()


async def _train_run(plan: RunPlan, run: Path, record: Record, *, follow: bool, end_file: Path | None) -> int:
    if reason := record.find_stuck():
        say(f"FAILED: {reason}")
        return record.record_end(attempts.FAILED, attempts.STUCK, reason)
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    work, asking = (
        asyncio.create_task(_run_attempt(plan, run, record, asked, follow=follow)),
        asyncio.create_task(asked.wait()),
    )
    looking = asyncio.create_task(_watch_for(end_file, asked)) if end_file is not None else asking
    try:
        await asyncio.wait({work, asking}, return_when=asyncio.FIRST_COMPLETED)
        if record.attempt.state != "training" and not work.done():
            work.cancel()  # nothing of the trainer is there yet
            await asyncio.wait({work})
            return _end_early(record)
        return await work
    except GavelError as failed:
        if _is_away(plan, failed):
            return _give_up(record, attempts.LOST, attempts.AGAIN, str(failed))
        return _give_up(record, attempts.FAILED, failed.exit_code, str(failed))
    finally:
        for task in (asking, looking):
            task.cancel()
        await asyncio.wait({asking, looking})


def _end_early(record: Record) -> int:
    return record.record_end(attempts.INTERRUPTED, INTERRUPTED, "told to end before the training began")


def _is_away(plan: RunPlan, failed: GavelError) -> bool:
    """Whether a start failed for want of its shared judge alone, and can be made again."""
    vanished = (
        isinstance(failed, GoldenFailed)
        and plan.requeues
        and not judge_folder.list_endpoints(Path(str(plan.judge_folder)))
    )
    return isinstance(failed, JudgeAway) or vanished


def _give_up(record: Record, state: str, code: int, reason: str) -> int:
    code = record.record_end(state, code, reason)
    again = "this run begins again: " if record.goes_on else "FAILED: "
    say(f"{again}{record.attempt.reason}")
    return code


async def _run_attempt(plan: RunPlan, run: Path, record: Record, asked: asyncio.Event, *, follow: bool) -> int:
    say(f"attempt {record.number} of {run}")
    for waived in plan.unqualified:
        say(f"note: {waived}")
    async with judge_of(plan, run, say) as judge:
        text = with_addresses((run / plan.config).read_text(encoding="utf-8"), judge.urls, _save_by(plan))
        config = record.folder / f"{record.number}.{plan.config}"
        write_whole(config, text.encode())
        if plan.judged:
            await ask_golden(text, run / "logs", say, required=plan.qualified)
        async with prepare_canaries(
            text, run, record.number, plan.canary if plan.judged else None, plan.baselines, say
        ) as watched:
            if watched is not None and (reason := await watched.ask_first()) is not None:
                raise JudgeLost(reason)
            if asked.is_set():
                return _end_early(record)
            record.record_training()
            watches = () if watched is None else (watched.watch_drift,)
            if plan.watch is not None:
                clusters = find_clusters(read_config(run).get("env") or {})
                watches = (*watches, TraitWatch(run, plan.watch, clusters, say).watch_traits)
            stop = Stop(judge.lost, watches, asked)
            return await _run_trainer(plan, run, record, stop, config, follow=follow)


def _save_by(plan: RunPlan) -> str | None:
    """Return the time until the last checkpoint, as NeMo-RL writes it; None without a time limit."""
    left = query_seconds_left()
    if left is None:
        return None
    seconds = max(int(left - plan.reserve), 60)
    days, rest = divmod(seconds, 86400)
    return f"{days:02}:{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


@dataclass(frozen=True, slots=True)
class Stop:
    """What ends a training before its trainer does: a judge that is lost or drifts and replies that are to end it, each
    awaited until it is so, and a signal.
    """

    lost: Callable[[], Coroutine[None, None, str]]
    watches: tuple[Callable[[], Coroutine[None, None, str]], ...]
    asked: asyncio.Event

    async def find_reason(self) -> tuple[str, bool]:
        """Return the first reason there is, and whether it is that the judge is lost."""
        lost = asyncio.create_task(self.lost())
        tasks = {lost} | {asyncio.create_task(watch()) for watch in self.watches}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            first = next(iter(done))
            return first.result(), first is lost
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _run_trainer(plan: RunPlan, run: Path, record: Record, stop: Stop, config: Path, *, follow: bool) -> int:
    command = [word.replace("{config}", str(config)).replace("{run}", str(run)) for word in plan.command]
    log = run / "logs" / f"trainer-{record.number}.log"
    say(f"training; its output goes to {log}")
    with log.open("ab") as output:
        process = Supervised.start(command, environment=_make_environment(plan), output=output)
    following = asyncio.create_task(_follow_log(log)) if follow else None
    ended, lost = asyncio.create_task(process.wait()), asyncio.create_task(stop.find_reason())
    told = asyncio.create_task(stop.asked.wait())
    try:
        await asyncio.wait({ended, lost, told}, return_when=asyncio.FIRST_COMPLETED)
        if stop.asked.is_set():  # whoever tells us to end may have told the trainer, or the judge, too
            return await _wait_interrupted(plan, run, config, record, process, ended)
        if ended.done():
            return _judge_end(run, config, ended.result(), record, log)
        reason, judge = lost.result()
        await process.end_tree()
        state, code = (attempts.LOST, attempts.AGAIN) if judge and plan.requeues else (attempts.FAILED, LOST)
        return _give_up(record, state, code, f"{reason}\nthe training is stopped; its last checkpoint is whole")
    finally:
        for task in filter(None, (ended, lost, told, following)):
            task.cancel()
        await asyncio.wait({task for task in (ended, lost, told, following) if task})
        await process.end_tree()


def _judge_end(run: Path, config: Path, code: int, record: Record, log: Path) -> int:
    """Judge what the end of a trainer means: by the steps it reached, for NeMo-RL ends with code 0 when its time is
    over, too.
    """
    tail = logtail.read_tail(log)
    if code != FINISHED:
        reason = f"the trainer {describe_exit(code)}"
        say(f"FAILED: {reason}; the end of {log}:\n{tail}")
        return record.record_end(attempts.FAILED, code, f"{reason}: {logtail.read_gist(log)}")
    found = judge_progress(run, _read_config(config), code, out_of_time=TIMEOUT_WORDS in tail)
    if found.state == "failed":
        return _give_up(record, attempts.FAILED, LOST, str(found.reason))
    if found.state == "interrupted":
        return _give_up(record, attempts.INTERRUPTED, attempts.AGAIN, str(found.reason))
    say("finished")
    return record.record_end(attempts.FINISHED, FINISHED)


def _read_config(path: Path) -> dict[str, Any]:
    value = yaml.safe_load(path.read_text(encoding="utf-8"))
    return value if isinstance(value, dict) else {}


async def _wait_interrupted(
    plan: RunPlan, run: Path, config: Path, record: Record, process: Supervised, ended: asyncio.Task[int]
) -> int:
    """Let the trainer end by itself; its own checkpoints and our ledgers are what it goes on from."""
    say(f"told to end: the trainer has {plan.grace:g} s")
    told = asyncio.create_task(_tell_trainer(process))
    await asyncio.wait({ended}, timeout=plan.grace)
    told.cancel()
    if ended.done() and ended.result() == FINISHED:
        found = judge_progress(run, _read_config(config), FINISHED, out_of_time=True)
        if found.state == "finished":
            return record.record_end(attempts.FINISHED, FINISHED)
    return record.record_end(attempts.INTERRUPTED, INTERRUPTED, "told to end; the next start of this run goes on")


async def _tell_trainer(process: Supervised) -> None:
    """Send the trainer SIGTERM, once there is one: the process above it needs a moment to start it."""
    while not (found := find_descendants(process.pid)[:1]):  # noqa: ASYNC110 - another process starts it
        await asyncio.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
        os.kill(found[0], signal.SIGTERM)


def _make_environment(plan: RunPlan) -> dict[str, str]:
    made = dict(os.environ)
    if plan.judge_gpus and plan.judge_folder is None:
        made["CUDA_VISIBLE_DEVICES"] = ",".join(
            split_gpus(made.get("CUDA_VISIBLE_DEVICES"), plan.trainer_gpus, plan.judge_gpus)[0]
        )
    paths = [*plan.python_path, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return made | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}


async def _follow_log(log: Path) -> None:
    """Show what the trainer writes; what it wrote last too, when this is cancelled."""
    with log.open("rb") as file:
        try:
            while True:
                sys.stdout.write(file.read().decode("utf-8", "replace"))
                sys.stdout.flush()
                await asyncio.sleep(0.2)
        finally:
            sys.stdout.write(file.read().decode("utf-8", "replace"))
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
