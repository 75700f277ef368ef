"""A verb as a job of Slurm: the same words, run on a node; a rollout also as an array of shards and a job that merges
them.

``RUN.jobs`` beside a run holds the scripts, their logs, ``jobs.json`` (what was submitted), and of an array the shards
``part-I``, each a run folder that a job which begins again goes on with.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import orjson
from rich.console import Console

from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.compose.compose import compose_config
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import RegradeConfig, TrainConfig
from gavel.launch.config.training_schema import ClusterConfig
from gavel.launch.runs.shards import MOST
from gavel.launch.runs.training_plan import JudgePlan
from gavel.launch.training import slurm
from gavel.launch.training.judge import folder as judge_folder
from gavel.launch.training.judge.join import make_shared_plan
from gavel.launch.training.judge.shared import ensure_judge
from gavel.launch.training.layout import list_managed
from gavel.launch.training.render import judge_script, make_python_path, verb_script
from gavel.models.codec import compute_digest, dump, load, record
from gavel.models.errors import ConfigError, GavelError, InputError
from gavel.models.files import write_whole

VERBS = ("rollout", "regrade", "probe", "calibrate", "judge", "serve")
"""The verbs that may be handed to Slurm."""
SUFFIX, FILE = ".jobs", "jobs.json"
_SHARDS, _JUDGE = "shards", "judge"
_HERE = ("cluster=local", "cluster=null")
PLACES = ("cluster", _SHARDS)
"""What says where a verb runs, and is no key of the verb itself."""


@record
class VerbJobs:
    """``jobs.json``: what was submitted; ``merge`` is the job that puts the parts together, None for a single one;
    ``judge`` serves the parts' managed judges, None where there are none.
    """

    SCHEMA: ClassVar[str] = "gavel.jobs/1"

    verb: str
    digest: str
    shards: int
    job: str
    merge: str | None
    submitted: float
    judge: str | None = None


@dataclass(frozen=True, slots=True)
class VerbCommand:
    """A verb's words without those that say where it runs."""

    verb: str
    words: tuple[str, ...]
    config_dirs: tuple[str, ...]
    runs: tuple[str, ...]
    cluster: ClusterConfig
    shards: int

    def spell(self, *more: str) -> list[str]:
        """Return the whole command, with further words."""
        folders = [word for folder in self.config_dirs for word in ("--config-dir", folder)]
        python = self.cluster.python or sys.executable
        words = [word for word in self.words if not word.startswith("dry_run=")]  # what is shown is what runs
        return [python, "-m", "gavel.launch.cli", self.verb, *folders, *self.runs, *words, *more]


def is_handed_over(verb: str, words: Sequence[str]) -> bool:
    """Tell whether a command is to run on a cluster rather than here.

    Raises:
        ConfigError: it has shards, and no cluster for them.
    """
    chosen = [word for word in words if word.startswith("cluster=")]
    if verb in VERBS and not chosen and any(word.startswith(f"{_SHARDS}=") for word in words):
        raise ConfigError(
            "only jobs of a cluster have shards",
            field=_SHARDS,
            allowed="with cluster=slurm; here one part at a time: shard=1/4",
        )
    return verb in VERBS and bool(chosen) and chosen[-1] not in _HERE


def drop_places(verb: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a verb that runs here without those that say so (``cluster=local``)."""
    return tuple(word for word in words if verb not in VERBS or word not in _HERE)


def read_command(verb: str, words: Sequence[str], config_dirs: Sequence[str], runs: Sequence[str]) -> VerbCommand:
    """Part the words of a command into what is run and where.

    Raises:
        ConfigError: the cluster's words do not fit, or there are no such shards.
    """
    places = [word for word in words if word.lstrip("+").startswith(("cluster=", "cluster."))]
    shards = [word for word in words if word.startswith(f"{_SHARDS}=")]
    rest = tuple(word for word in words if word not in places and word not in shards)
    composed = compose_config("train", ["judge=none", *places], config_dirs)
    assert isinstance(composed, TrainConfig)
    count = _read_shards(verb, shards[-1].partition("=")[2] if shards else "1")
    if count > 1 and any(word.startswith("shard=") for word in rest):
        raise ConfigError("one part cannot be parted again", field=_SHARDS, remedy="leave out shard=i/n or shards=N")
    if count > 1 and runs:
        raise ConfigError(
            "a run that is there goes on as it is, in one piece",
            field=_SHARDS,
            found=f"shards={count} beside {', '.join(runs)}",
            remedy="leave out shards=N, or give a new run its own words and run.dir=…",
        )
    return VerbCommand(verb, rest, tuple(config_dirs), tuple(runs), composed.cluster, count)


def _read_shards(verb: str, text: str) -> int:
    count = int(text) if text.isdecimal() and len(text) < 6 else 0
    if not 1 <= count <= MOST or (count > 1 and verb != "rollout"):
        raise ConfigError(
            "there are no such shards",
            field=_SHARDS,
            found=text,
            allowed=f"1 to {MOST}" if verb == "rollout" else f"1: only a rollout has parts, not a {verb}",
        )
    return count


def submit_verb(
    verb: str, words: Sequence[str], config_dirs: Sequence[str], runs: Sequence[str], console: Console
) -> int:
    """Check a command here, write its scripts, and hand them to Slurm; return 0 once Slurm has them.

    Raises:
        ConfigError: what the verb itself would refuse, or Slurm does.
        InputError: the same command is in the queue already, or another one was begun in its folder.
    """
    command = read_command(verb, words, config_dirs, runs)
    if command.cluster.kind != "slurm":
        raise ConfigError(
            "this verb runs here, or on Slurm", field="cluster", found=command.cluster.kind, allowed="cluster=slurm"
        )
    config = compose_config(verb, command.words, config_dirs, runs)
    target = _choose_target(verb, config)
    folder = target.with_name(f"{target.name}{SUFFIX}")
    plan = _plan_judge(config) if command.shards > 1 else None
    scripts = _make_scripts(command, target, folder, folder / _JUDGE if plan is not None else None)
    if config.dry_run:
        _show_scripts(_make_judge_script(command.cluster, plan, folder / _JUDGE) | scripts, console)
        return 0
    digest = compute_digest([command.verb, *command.words, *command.runs, command.shards])
    _check_folder(folder, digest)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        write_whole(folder / name, text.encode())
    with _start_judge(command.cluster, plan, folder / _JUDGE, target, console) as judge:
        job = slurm.submit_script(folder / f"{verb}.sbatch", judge)
        merge = slurm.submit_script(folder / "merge.sbatch", job, when="afterany") if command.shards > 1 else None
    if judge is not None and merge is not None:  # the judge ends once the parts are merged
        judge_folder.name_job(folder / _JUDGE, target, merge)
    found = VerbJobs(verb, digest, command.shards, job, merge, time.time(), judge)
    write_whole(folder / FILE, dump(found))
    _tell(found, target, folder, console)
    return 0


def _choose_target(verb: str, config: Any) -> Path:
    """Return the folder that the verb writes into, absolute."""
    place = (config.into if isinstance(config, RegradeConfig) else None) or config.run.dir
    return Path(place or time.strftime(f"runs/{verb}-%Y%m%d-%H%M%S")).expanduser().absolute()


def _plan_judge(config: Any) -> JudgePlan | None:
    """Return what one judge serves for all parts of a rollout; None where nothing but the policy is managed."""
    served = list_managed(assemble_run(config, with_policy=False).services)
    if not served:
        return None
    return make_shared_plan(served, config.assets.cache, config.assets.mirror, config.assets.offline)


@contextlib.contextmanager
def _start_judge(
    cluster: ClusterConfig, plan: JudgePlan | None, folder: Path, target: Path, console: Console
) -> Iterator[str | None]:
    """Start the judge of a rollout's parts; yield its job. It ends where the block fails."""
    if plan is None:
        yield None
        return
    judge_folder.enter_run(folder, target, None)
    try:
        print_line(console, ensure_judge(cluster, plan, folder, Path.cwd()))
        yield str(judge_folder.read_job(folder)["job"])
    except GavelError:
        judge_folder.leave_run(folder, target)
        raise


def _make_scripts(command: VerbCommand, target: Path, folder: Path, judge: Path | None) -> dict[str, str]:
    parts = [str(folder / f"part-{number}") for number in range(1, command.shards + 1)]
    if command.shards == 1:
        own = () if command.runs or command.verb in ("regrade",) else (f"run.dir={target}",)
        line = shlex.join(command.spell(*own))
    else:
        part = f"run.dir={shlex.quote(str(folder))}/part-$part shard=$part/{command.shards}"
        joined = (f"judge_folder={judge}",) if judge is not None else ()
        line = f"{shlex.join(command.spell(*joined))} {part}"
    cwd, python_path = Path.cwd(), os.pathsep.join(make_python_path(None))
    made = {
        f"{command.verb}.sbatch": verb_script(
            command.cluster, command.verb, folder, cwd, line, python_path, shards=command.shards
        )
    }
    if command.shards > 1:
        merge = [command.cluster.python or sys.executable, "-m", "gavel.launch.cli", "merge", *parts, f"into={target}"]
        made["merge.sbatch"] = verb_script(command.cluster, "merge", folder, cwd, shlex.join(merge), python_path)
    return made


def _make_judge_script(cluster: ClusterConfig, plan: JudgePlan | None, folder: Path) -> dict[str, str]:
    return {} if plan is None else {"judge.sbatch": judge_script(cluster, plan.nodes, folder, Path.cwd())}


def _show_scripts(scripts: dict[str, str], console: Console) -> None:
    for name, text in scripts.items():
        print_line(console, f"--- {name}")
        for line in text.splitlines():
            print_line(console, line)


def _check_folder(folder: Path, digest: str) -> None:
    known = read_jobs(folder)
    if known is None:
        return
    if known.digest != digest:
        raise InputError(
            "another command was begun here",
            where=str(folder / FILE),
            found=f"{known.verb} with {known.shards} shards",
            remedy="name another run.dir, or give the same words as before",
        )
    for job in filter(None, (known.job, known.merge)):  # a judge that is there still serves the next parts, too
        if state := slurm.query_state(job):
            raise InputError(
                "this is in Slurm's queue",
                where=str(folder),
                found=f"job {job} {state}",
                remedy=f"wait, or scancel {job}",
            )


def _tell(found: VerbJobs, target: Path, folder: Path, console: Console) -> None:
    print_line(console, f"job {found.job} is submitted; nothing needs to stay running here")
    if found.merge is not None:
        print_line(console, f"{found.shards} parts; job {found.merge} then merges them into {target}")
    elif found.verb in ("judge", "serve"):
        print_line(console, f"its log says its address: {folder / 'logs'}")
    print_line(console, f"how it goes: gavel status {shlex.quote(str(folder))}")


def read_jobs(folder: Path) -> VerbJobs | None:
    """Return what was submitted from a folder, None where nothing was.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as failed:
        raise InputError("this file is damaged", where=str(path), found=str(failed)) from None
    return load(VerbJobs, value, where=str(path), error=InputError)


def describe_jobs(folder: Path, found: VerbJobs) -> list[tuple[str, str]]:
    """Return what became of each part, and of the merge."""
    rows = [(f"judge, job {found.judge}", slurm.query_state(found.judge) or "is over")] if found.judge else []
    rows += [(f"job {found.job}", slurm.query_state(found.job) or "is over, or waits for nothing")]
    if found.shards > 1:
        for number in range(1, found.shards + 1):
            state = slurm.query_state(f"{found.job}_{number}")
            rows.append((f"part {number}", f"{_count_rows(folder / f'part-{number}')}; {state or 'not in the queue'}"))
    if found.merge is not None:
        rows.append((f"merge, job {found.merge}", slurm.query_state(found.merge) or "not in the queue"))
    logs = sorted((folder / "logs").glob("*.out"), key=lambda file: file.stat().st_mtime)
    return [*rows, *((("newest log", str(logs[-1])),) if logs else ())]


def _count_rows(part: Path) -> str:
    done = sum(_count_lines(part / name) for name in ("results.jsonl", "errors.jsonl"))
    planned = _count_lines(part / "inputs.jsonl")
    return f"{done} of {planned} rows" if planned else "not begun"


def _count_lines(path: Path) -> int:
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
