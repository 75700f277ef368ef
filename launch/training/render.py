"""The scripts of a run, from the templates in ``slurm/``: readable by a cluster user, and runnable by hand."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import gavel
from gavel.launch.config.groups import PACKAGE
from gavel.launch.config.training_schema import ClusterConfig
from gavel.launch.training.layout import Layout
from gavel.models.errors import ConfigError

_UNSAFE = "\n\r\0"
_SPECIAL = "\"'\\#"


SBATCH, LOCAL = "train.sbatch", "launch.sh"
RAY_SUB = "ray.sub"
"""NeMo-RL's script that starts Ray in a container on every node of an allocation, in the root of its checkout."""


def train_script(
    cluster: ClusterConfig,
    layout: Layout,
    run: Path,
    cwd: Path,
    *,
    ray: bool,
    nemo_rl_root: str | None = None,
    judge_folder: Path | None = None,
) -> tuple[str, str]:
    """Return name and text of the script that starts a run: ``train.sbatch`` on Slurm, else ``launch.sh``.

    Args:
        cluster: the machines.
        layout: which GPUs are whose.
        run: the run folder.
        cwd: the folder the job runs in.
        ray: whether the trainer needs Ray on every node.
        nemo_rl_root: the checkout whose ``ray.sub`` starts Ray where nodes run containers.
        judge_folder: of a judge that many runs share.
    """
    het = layout.mode == "het"
    name = SBATCH if cluster.kind == "slurm" else LOCAL
    ray_sub = find_ray_sub(cluster, nemo_rl_root) if ray else None
    command = shlex.join(
        (
            cluster.python or sys.executable,
            "-m",
            "gavel.launch.training.job",
            "train",
            str(run),
            "--end-file",
            str(run / "end"),
        )
    )
    return name, _render_template(
        f"{name}.j2",
        cluster,
        script=run / name,
        name=f"gavel-{run.name}",
        run=run,
        cwd=cwd,
        nodes=layout.nodes,
        het=het,
        judge_nodes=layout.judge_nodes,
        trainer_gpus=layout.trainer_gpus,
        ray=ray,
        group0="--het-group=0 " if het else "",
        ray_sub=ray_sub or "",
        command=command,
        image=cluster.container or "",
        mounts=",".join(cluster.mounts),
        judge_folder=judge_folder or "",
    )


def find_ray_sub(cluster: ClusterConfig, nemo_rl_root: str | None) -> Path | None:
    """Return the script of NeMo-RL that starts Ray, where it does: in containers, on more than one node."""
    wanted = cluster.kind == "slurm" and cluster.container and cluster.nodes > 1 and nemo_rl_root
    return Path(str(nemo_rl_root)).expanduser().absolute() / RAY_SUB if wanted else None


def judge_script(cluster: ClusterConfig, nodes: int, folder: Path, cwd: Path) -> str:
    """Return the text of the script that serves a shared judge on Slurm."""
    return _render_template(
        "judge.sbatch.j2",
        cluster.make_judge_cluster(),
        script=folder / "judge.sbatch",
        name=f"gavel-{folder.name}",
        folder=folder,
        cwd=cwd,
        judge_nodes=nodes,
    )


def verb_script(
    cluster: ClusterConfig, verb: str, folder: Path, cwd: Path, command: str, python_path: str, *, shards: int = 1
) -> str:
    """Return the text of the script that runs a verb on a node; ``command`` may hold ``$part``, the number of a
    shard.
    """
    return _render_template(
        "verb.sbatch.j2",
        cluster,
        script=folder / f"{verb}.sbatch",
        name=f"gavel-{folder.name.removesuffix('.jobs')}-{verb}",
        what=f"`gavel {verb}` as {shards} parts" if shards > 1 else f"`gavel {verb}`",
        verb=verb,
        folder=folder,
        log=f"{verb}-%A_%a.out" if shards > 1 else f"{verb}-%j.out",
        cwd=cwd,
        shards=shards,
        command=command,
        python_path=python_path,
        container_srun=f"srun {_make_container_options(cluster)}" if cluster.container else "",
    )


def _render_template(template: str, cluster: ClusterConfig, **values: object) -> str:
    texts = [*cluster.directives, *cluster.setup, *map(str, values.values())]
    judge = replace(cluster.make_judge_cluster(), time=cluster.time)  # the parts of one job end together
    for text in (*texts, *(one for options in (cluster, judge) for one in _list_options(options))):
        if any(character in text for character in _UNSAFE):
            raise ConfigError("a line of a script may not have a line break in it", field="cluster", found=text)
    made = Environment(
        loader=FileSystemLoader(PACKAGE / "slurm"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters["quote"] = lambda value: shlex.quote(str(value))
    made.filters["option"] = lambda value: _quote_option(str(value))
    made.globals["options_of"] = _list_options
    made.filters["pattern"] = lambda value: str(value).replace("%", "%%")
    return made.get_template(template).render(
        cluster=cluster,
        judge_cluster=judge,
        setup=cluster.setup,
        requeue=cluster.requeue,
        hf_home=cluster.hf_home or "",
        signal_seconds=cluster.signal_seconds,
        python=cluster.python or sys.executable,
        container=_make_container_options(cluster),
        **values,
    )


def _list_options(cluster: ClusterConfig) -> list[str]:
    """Return what sbatch is asked for on each node of a part of a job, a line each."""
    named = (
        ("gres", f"gpu:{cluster.gpus_per_node}" if cluster.gpus_per_node else None),
        ("account", cluster.account),
        ("partition", cluster.partition),
        ("qos", cluster.qos),
        ("time", cluster.time),
        ("cpus-per-task", cluster.cpus_per_task),
        ("mem", cluster.memory),
        ("comment", cluster.comment),
    )
    whole = ["--exclusive"] if cluster.exclusive else []
    return [
        *(f"--{name}={_quote_option(str(value))}" for name, value in named if value is not None),
        *whole,
        *cluster.directives,
    ]


def _quote_option(text: str) -> str:
    """Return an option's value as sbatch reads it: one with a blank, a quote, a backslash or a hash stands in
    quotes.
    """
    if not any(character.isspace() or character in _SPECIAL for character in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _make_container_options(cluster: ClusterConfig) -> str:
    if cluster.container is None:
        return ""
    mounts = f" --container-mounts={shlex.quote(','.join(cluster.mounts))}" if cluster.mounts else ""
    return f"--container-image={shlex.quote(cluster.container)}{mounts} --no-container-mount-home "


def make_python_path(root: str | None) -> tuple[str, ...]:
    """Return the folders a trainer's interpreter must find: ours, and the checkout."""
    ours = str(Path(gavel.__file__).parent.parent)
    return (ours, str(Path(root).expanduser().resolve())) if root else (ours,)
