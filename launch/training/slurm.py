"""The few questions asked of Slurm, by its own commands; every one is bounded."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from gavel.models.errors import ConfigError

_BOUND_S = 30.0
_LEFT = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)")


def _run_command(*command: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_BOUND_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def submit_script(script: Path, after: str | None = None, *, when: str = "after") -> str:
    """Submit a script; return the job's id. It begins once the job ``after`` has begun, or is cancelled; with ``when``
    as ``afterany`` once that is over.

    Raises:
        ConfigError: Slurm refuses it; has its words.
    """
    done = _run_command("sbatch", "--parsable", *((f"--dependency={when}:{after}",) if after else ()), str(script))
    if done is None or done.returncode != 0:
        raise ConfigError(
            "Slurm does not take this job",
            where=str(script),
            found=(done.stderr.strip() if done else "sbatch did not answer"),
            remedy="change cluster.…; the run folder is whole, and the script can be submitted by hand",
        )
    return done.stdout.strip().split(";")[0]


def query_state(job: str) -> str | None:
    """Return the state of a job in the queue (``PENDING``, ``RUNNING``, …); None if it is not there, or Slurm does not
    answer.
    """
    done = _run_command("squeue", "-h", "-j", job, "-o", "%T %r")
    if done is None or done.returncode != 0 or not done.stdout.strip():
        return None
    return done.stdout.splitlines()[0].strip()


def find_queued(script: Path) -> str | None:
    """Return the id of a job in the queue that runs this very script, whoever submitted it; None if there is none to be
    seen.
    """
    done = _run_command("squeue", "-h", "-o", "%i %o")
    for line in done.stdout.splitlines() if done is not None and done.returncode == 0 else ():
        job, _, command = line.partition(" ")
        if command.strip() == str(script):
            return job.partition("+")[0]
    return None


def is_job_gone(job: str) -> bool:
    """Whether Slurm says that a job is over; False where it does not answer."""
    done = _run_command("squeue", "-h", "-j", job, "-o", "%T")
    if done is None:
        return False
    if done.returncode != 0:
        return "Invalid job id" in done.stderr
    return not done.stdout.strip()


def query_seconds_left() -> float | None:
    """Return the seconds until this job's time limit; None outside of a job, or without a limit. In a container without
    Slurm's commands the job's own environment says it."""
    job = os.environ.get("SLURM_JOB_ID")
    done = _run_command("squeue", "-h", "-j", job, "-o", "%L") if job else None
    lines = done.stdout.split() if done is not None and done.returncode == 0 else []
    if lines:
        return read_left(lines[0])
    end = os.environ.get("SLURM_JOB_END_TIME", "") if job else ""
    return max(float(end) - time.time(), 0.0) if end.isdigit() else None


def read_left(text: str) -> float | None:
    """Read Slurm's ``[days-][hours:]minutes:seconds``; None for ``UNLIMITED`` and the like."""
    match = _LEFT.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
