"""A judge of many runs: started once by whoever comes first, found by the others."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from gavel.launch.config.training_schema import ClusterConfig
from gavel.launch.runs.lease import FolderLock, RunFolderError
from gavel.launch.runs.training_plan import JUDGE_PLAN, JudgePlan, read_judge_plan, write_plan
from gavel.launch.training import slurm
from gavel.launch.training.judge import folder as judge_folder
from gavel.launch.training.render import judge_script
from gavel.models.errors import InputError
from gavel.models.files import write_whole

_LOCK_BOUND_S = 60.0


def ensure_judge(cluster: ClusterConfig, plan: JudgePlan, folder: Path, cwd: Path) -> str:
    """Start the judge of ``folder`` unless it is there or on its way; return a line that says which.

    Raises:
        InputError: another judge is in the folder and lives, or another process is starting one.
        ConfigError: Slurm does not take the job.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _lock_folder(folder):
        if (folder / JUDGE_PLAN).exists() and (alive := _find_alive(folder)):
            known = read_judge_plan(folder)
            if known.digest != plan.digest:
                raise InputError(
                    "another judge is in this folder",
                    where=str(folder),
                    found=known.digest,
                    allowed=plan.digest,
                    remedy="name another placement.folder=…, or wait until it has ended",
                )
            return f"judge: {alive}, in {folder}"
        judge_folder.clear_folder(folder)
        write_plan(folder / JUDGE_PLAN, plan)
        started = _submit_judge(cluster, plan, folder, cwd) if cluster.kind == "slurm" else _spawn_judge(folder, cwd)
        write_whole(folder / "job.json", orjson.dumps(started))
        return f"judge: {_describe_started(started)} is started, in {folder}"


def _lock_folder(folder: Path) -> FolderLock:
    """Lock a judge's folder; others hold the lock for as long as a submission takes."""
    limit = time.monotonic() + _LOCK_BOUND_S
    while True:
        try:
            return FolderLock(folder)
        except RunFolderError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)


def _submit_judge(cluster: ClusterConfig, plan: JudgePlan, folder: Path, cwd: Path) -> dict[str, Any]:
    script = folder / "judge.sbatch"
    write_whole(script, judge_script(cluster, plan.nodes, folder, cwd).encode())
    return {"job": slurm.submit_script(script)}


def _spawn_judge(folder: Path, cwd: Path) -> dict[str, Any]:
    """Start it as a process of its own, which outlives this one and ends when nobody needs it."""
    with (folder / "judge.out").open("ab") as output:
        process = subprocess.Popen(
            (sys.executable, "-m", "gavel.launch.training.job", "judge", str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            start_new_session=True,
        )
    return {"host": socket.gethostname(), "pid": process.pid}


def _find_alive(folder: Path) -> str | None:
    started = judge_folder.read_job(folder)
    name = str(started.get("job") or started.get("pid"))
    if (
        not started
        or judge_folder.read_exit_code(folder) is not None
        or judge_folder.make_closing_path(folder, name).exists()
    ):
        return None
    if "job" in started:
        state = slurm.query_state(started["job"])
        return f"{_describe_started(started)} ({state})" if state else None
    return _describe_started(started) if judge_folder.process_runs(int(started["pid"])) else None


def _describe_started(started: dict[str, Any]) -> str:
    return f"job {started['job']}" if "job" in started else f"process {started['pid']}"
