"""A judge's folder, by which processes on different nodes find each other: who serves, who uses it, who is gone.

``judge.json`` is the plan; ``endpoint-<node>.json`` appears when a node's replicas are ready; ``failed-<node>.txt``
says why a node could not serve, ``died-<node>.txt`` why it does not any more; ``users/<run>`` is touched by each run
that uses the judge and removed when it is over (one that begins again waits for it meanwhile); ``closing-<job>`` says
that a shared judge has decided to end, ``read_exit_code`` (of a shared judge ``ended-<job>``) has the exit code of its
job. Only the file server's clock is compared, by touching a file of one's own.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import orjson

from gavel.launch.runs.lease import FolderLock, RunFolderError
from gavel.models.codec import compute_digest, dump, load, record
from gavel.models.errors import InputError
from gavel.models.files import read_object, write_whole

BEAT_S = 5.0
"""Seconds between two touches."""
STALE_S = 60.0
"""A user that was seen and then was silent for so long is gone."""
_BEGUN = ".begun"
LINGER_S = 15.0
"""Seconds a shared judge waits for another run after the last one left."""


@record
class Endpoint:
    """What one node serves: ``urls`` by service; ``digest`` of the judge's plan."""

    SCHEMA: ClassVar[str] = "gavel.endpoint/1"

    node: int
    host: str
    job: str | None
    digest: str
    urls: Mapping[str, tuple[str, ...]]


def publish_endpoint(folder: Path, endpoint: Endpoint) -> Path:
    """Say that a node is ready; return the file that says so."""
    path = folder / f"endpoint-{endpoint.node}.json"
    write_whole(path, dump(endpoint) + b"\n")
    return path


def withdraw_endpoint(path: Path, endpoint: Endpoint) -> None:
    """Take back what a node published, unless the next judge of this folder has published itself there by now."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == dump(endpoint) + b"\n":
            path.unlink()


def list_endpoints(folder: Path) -> list[Endpoint]:
    """Return what is served, by node; a file that vanishes or is half there is passed over."""
    found = []
    for path in sorted(folder.glob("endpoint-*.json")):
        with contextlib.suppress(OSError, orjson.JSONDecodeError, InputError):
            found.append(load(Endpoint, orjson.loads(path.read_bytes()), where=str(path), error=InputError))
    return sorted(found, key=lambda one: one.node)


def list_failures(folder: Path) -> list[str]:
    """Return why nodes could not serve."""
    return _read_all(folder, "failed-*.txt")


def list_deaths(folder: Path) -> list[str]:
    """Return why nodes that served do not any more, and why others never did."""
    return [*_read_all(folder, "died-*.txt"), *list_failures(folder)]


def _read_all(folder: Path, pattern: str) -> list[str]:
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob(pattern))]


def clear_folder(folder: Path) -> None:
    """Remove what an earlier judge of a folder published or left."""
    for pattern in ("endpoint-*.json", "failed-*.txt", "died-*.txt", "ended", "done"):
        for old in folder.glob(pattern):
            old.unlink(missing_ok=True)


def read_exit_code(folder: Path) -> str | None:
    """Return the exit code of the judge's newest job, as text; None while it is not over."""
    started = read_job(folder)
    for path in (folder / "ended", folder / f"ended-{started.get('job')}"):
        if path.exists():
            return path.read_text(encoding="utf-8").strip()
    if started.get("host") == socket.gethostname() and not process_runs(int(started["pid"])):
        return "unknown: its process is gone"
    return None


def process_runs(pid: int) -> bool:
    """Whether a process of this machine runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (OSError, IndexError):
        return False


def read_job(folder: Path) -> dict[str, Any]:
    """Return how a shared judge was started: ``job``, or ``host`` and ``pid``; empty if it was not."""
    return read_object(folder / "job.json")


def name_own_judge() -> str:
    """Return what names this judge: its Slurm job, or its process where there is none."""
    return os.environ.get("SLURM_JOB_ID") or str(os.getpid())


def make_closing_path(folder: Path, judge: str) -> Path:
    """Return the file by which a judge says that it ends and serves nobody new."""
    return folder / f"closing-{judge}"


def close_unless_used(folder: Path, lease: float, in_queue: Container[str] = ()) -> bool:
    """Decide that a shared judge ends, unless a run came meanwhile; tell which. Who comes later finds it closing, and
    starts another.

    Deciding and starting are done under one lock; where another process holds it, this is not the moment.
    """
    try:
        with FolderLock(folder):
            if any(True for _ in list_waiting(folder, lease, in_queue)):
                return False
            make_closing_path(folder, name_own_judge()).touch()
            for endpoint in folder.glob("endpoint-*.json"):
                endpoint.unlink(missing_ok=True)
            return True
    except RunFolderError:
        return False


def make_user_path(folder: Path, run: Path) -> Path:
    """Return the file by which a run says that it uses the judge."""
    return folder / "users" / f"{run.name}-{compute_digest(str(run))[7:15]}"


def enter_run(folder: Path, run: Path, job: str | None) -> None:
    """Say that a run waits for the judge or uses it; ``job`` is its Slurm job."""
    path = make_user_path(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, orjson.dumps({"run": str(run), "job": job}))


def name_job(folder: Path, run: Path, job: str) -> None:
    """Say which job a waiting run became; a run that has begun, or is over already, has said so itself."""
    path = make_user_path(folder, run)
    if path.exists() and not make_begun_path(path).exists():
        with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
            file.write(orjson.dumps({"run": str(run), "job": job}))


def begin_run(folder: Path, run: Path) -> None:
    """Say that a run's job has begun: from now on silence means that it is gone."""
    enter_run(folder, run, os.environ.get("SLURM_JOB_ID"))
    make_begun_path(make_user_path(folder, run)).touch()


def pause_run(folder: Path, run: Path) -> None:
    """Say that a run which had begun waits again, for its next start."""
    enter_run(folder, run, os.environ.get("SLURM_JOB_ID"))
    make_begun_path(make_user_path(folder, run)).unlink(missing_ok=True)


def leave_run(folder: Path, run: Path) -> None:
    """Say that a run does not need the judge any more."""
    forget_run(make_user_path(folder, run))


def forget_run(user: Path) -> None:
    """Remove the files of a run that does not need the judge any more."""
    for path in (user, make_begun_path(user)):
        path.unlink(missing_ok=True)


def make_begun_path(user: Path) -> Path:
    """Return the file beside a run's that says that its job has begun."""
    return user.with_name(user.name + _BEGUN)


def list_users(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield the runs (file, job) that said that they need the judge."""
    for path in (folder / "users").glob("*"):
        if not path.name.endswith(_BEGUN) and (said := read_object(path)):  # it may have left meanwhile
            yield path, said.get("job")


def read_queue(folder: Path) -> set[str]:
    """Return the jobs in Slurm's queue as the script of the judge's job saw it last; empty where nobody looks.

    The runs whose jobs are not there any more are forgotten, but for one that said something since then: its job may be
    newer.
    """
    path = folder / "queue"
    try:
        seen, jobs = path.stat().st_mtime, set(path.read_text(encoding="utf-8").split())
    except OSError:
        return set()
    for user, job in list(list_users(folder)):
        with contextlib.suppress(OSError):
            if job is not None and job not in jobs and user.stat().st_mtime < seen - BEAT_S:
                forget_run(user)
    return jobs


def list_waiting(folder: Path, lease: float, in_queue: Container[str] = ()) -> Iterator[tuple[Path, str | None]]:
    """Yield the runs (file, job) that use the judge or wait for it: one that began is silent for ``STALE_S`` at most,
    one that did not, or whose job is ``in_queue`` (it was ended without a word and begins again), for ``lease``
    seconds."""
    clock = folder / "clock"
    clock.touch()
    now = clock.stat().st_mtime
    for path, job in list_users(folder):
        with contextlib.suppress(OSError):
            silent = now - path.stat().st_mtime
            if silent < (STALE_S if make_begun_path(path).exists() and job not in in_queue else lease):
                yield path, job


def list_hosts() -> tuple[str, ...]:
    """Return the names this machine may be reached by from others, the most likely first."""
    named = [os.environ.get("SLURMD_NODENAME"), socket.gethostname(), socket.getfqdn()]
    return tuple(dict.fromkeys(name for name in named if name))
