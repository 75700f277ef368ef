"""A training run's folder: its files made, written once, and its job or its judge started."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

import orjson
from rich.console import Console

import gavel
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.stored import to_yaml
from gavel.launch.runs.training_plan import PLAN, JudgePlan, RunPlan, read_plan, write_plan
from gavel.launch.training import render, slurm
from gavel.launch.training.attempts import is_finished
from gavel.launch.training.judge import folder as judge_folder
from gavel.launch.training.judge.shared import ensure_judge
from gavel.launch.training.layout import Layout, list_managed
from gavel.launch.training.preflight import Checked
from gavel.launch.training.trainers import find_trainer
from gavel.models.codec import compute_digest, to_plain
from gavel.models.errors import GavelError, InputError
from gavel.models.files import read_object, write_whole

SUBMITTED, FINISHED = 0, 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that may be started: its files by name, and its plan."""

    path: Path
    files: dict[str, str]
    plan: RunPlan
    checked: Checked
    script: str


def is_done(prepared: Prepared) -> bool:
    """Whether the folder of a run holds this very run, taken to its end."""
    there = (prepared.path / PLAN).is_file()
    return there and read_plan(prepared.path).digest == prepared.plan.digest and is_finished(prepared.path)


def prepare_run(config: TrainConfig, path: Path, checked: Checked) -> Prepared:
    """Make every file of a run that was found without fault, or of which a dry run shows what there is."""
    assert checked.layout is not None
    cwd = Path.cwd()
    plan = _make_plan(config, path, checked, checked.layout, cwd)
    ray = find_trainer(config.trainer.kind).on_ray
    root = config.trainer.nemo_rl_root
    shared = Path(plan.judge_folder) if plan.judge_folder and plan.mode == "shared" else None
    name, script = render.train_script(
        config.cluster, checked.layout, path, cwd, ray=ray, nemo_rl_root=root, judge_folder=shared
    )
    files = {"config.yaml": to_yaml(config), checked.config_name: checked.config_text, name: script}
    return Prepared(path, files, plan, checked, name)


def _make_plan(config: TrainConfig, path: Path, checked: Checked, layout: Layout, cwd: Path) -> RunPlan:
    assert checked.assembly is not None
    served = list_managed(checked.assembly.services)
    judge = _judge_plan(config, layout, checked) if served else None
    chosen, cluster = config.trainer, config.cluster
    folder = {
        "het": path / "judge",
        "shared": Path(config.placement.folder or path / "judge").expanduser().absolute(),
    }.get(layout.mode)
    waived = (*checked.unqualified, *(() if config.hygiene_required else ("hygiene_required=false",)))
    return RunPlan(
        gavel=gavel.__version__,
        created=time.time(),
        digest=compute_digest([checked.config_text, to_plain(judge.digest if judge else None)]),
        mode=layout.mode,
        config=checked.config_name,
        command=find_trainer(chosen.kind).make_command(config),
        cwd=str(cwd),
        judge=judge,
        judge_folder=str(folder) if folder else None,
        trainer_gpus=layout.trainer_gpus,
        judge_gpus=layout.judge_gpus,
        min_replicas={name: service.min_replicas for name, service in served.items()},
        ready_timeout=config.placement.ready_timeout,
        grace=max(cluster.signal_seconds - 20.0, 10.0),
        reserve=float(cluster.signal_seconds + cluster.setup_seconds),
        unqualified=waived,
        python_path=render.make_python_path(chosen.nemo_rl_root),
        qualified=config.qualification.required,
        judged=checked.judged,
        canary=config.canary,
        watch=config.watch,
        baselines=checked.baselines,
        requeues=layout.mode == "shared" and cluster.kind == "slurm" and cluster.requeue,
    )


def _judge_plan(config: TrainConfig, layout: Layout, checked: Checked) -> JudgePlan:
    assert checked.assembly is not None
    served = list_managed(checked.assembly.services)
    nodes = max(layout.judge_nodes, 1)
    return JudgePlan(
        served,
        layout.replicas,
        nodes,
        compute_digest([to_plain(served), nodes]),
        config.placement.lease if layout.mode == "shared" else None,
        config.assets.cache,
        config.assets.mirror,
        config.assets.offline,
    )


def write_run(prepared: Prepared) -> None:
    """Write a run folder, or find that it is there already and the same.

    Raises:
        InputError: it holds another run, or its job is still in the queue.
    """
    path = prepared.path
    if (path / PLAN).exists():
        _check_same(prepared)
    elif path.is_dir() and any(path.iterdir()):
        raise InputError(
            "this folder is not empty and no training run", where=str(path), remedy="name another with run.dir=…"
        )
    (path / "logs").mkdir(parents=True, exist_ok=True)
    for name, text in prepared.files.items():
        write_whole(path / name, text.encode())
    if prepared.plan.mode == "het" and prepared.plan.judge is not None:
        (path / "judge").mkdir(exist_ok=True)
        write_plan(path / "judge" / "judge.json", prepared.plan.judge)
    write_plan(path / PLAN, prepared.plan)


def _check_same(prepared: Prepared) -> None:
    known = read_plan(prepared.path)
    if known.digest != prepared.plan.digest:
        raise InputError(
            "this folder holds another training run",
            where=str(prepared.path),
            found=known.digest,
            allowed=prepared.plan.digest,
            remedy="name another folder with run.dir=…; "
            f"what differs: diff {shlex.quote(str(prepared.path / 'config.yaml'))} against `dry_run=true`",
        )
    job = slurm.find_queued(prepared.path / prepared.script) or find_job(prepared.path)
    if job and (state := slurm.query_state(job)):
        raise InputError(
            "this run is in Slurm's queue",
            where=str(prepared.path),
            found=f"job {job} {state}",
            remedy=f"wait, or scancel {job}",
        )


def find_job(path: Path) -> str | None:
    """Return the newest Slurm job of a run, None if it has none."""
    job = read_object(path / "job.json").get("job")
    return None if job is None else str(job)


def start_slurm(config: TrainConfig, prepared: Prepared, console: Console) -> str:
    """Submit a run, and before it the shared judge if there is none; return the job's id."""
    start_judge(config, prepared, console)
    shared = Path(prepared.plan.judge_folder) if prepared.plan.mode == "shared" and prepared.plan.judge_folder else None
    try:
        after = judge_folder.read_job(shared).get("job") if shared is not None else None
        job = slurm.submit_script(prepared.path / prepared.script, after)
    except GavelError:
        if shared is not None:
            judge_folder.leave_run(shared, prepared.path)
        raise
    write_whole(prepared.path / "job.json", orjson.dumps({"job": job, "submitted": time.time()}))
    if shared is not None:
        judge_folder.name_job(shared, prepared.path, job)
    return job


def start_judge(config: TrainConfig, prepared: Prepared, console: Console) -> None:
    """See that the shared judge of a run is there or on its way."""
    plan = prepared.plan
    if plan.mode != "shared" or plan.judge is None or plan.judge_folder is None:
        return
    folder = Path(plan.judge_folder)
    judge_folder.enter_run(folder, prepared.path, None)
    print_line(console, ensure_judge(config.cluster, plan.judge, folder, Path(plan.cwd)))
