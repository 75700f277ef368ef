"""What a job in a container does not find there: places that no mount shows under their own names, models; what
``ray.sub`` wants.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import gavel
from gavel.launch.assembly.assemble import split_environments
from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.training_schema import ClusterConfig
from gavel.launch.training.render import find_ray_sub
from gavel.models.errors import ConfigError
from gavel.models.service import Service, get_config_key

_PATHS = ("/", "./", "../", "~")
_NAMES_ACCOUNT = ("SBATCH_ACCOUNT", "SLURM_ACCOUNT")


def list_container_findings(config: TrainConfig, services: Mapping[str, Service], run: Path) -> Iterator[ConfigError]:
    """Yield what a job in a container lacks; nothing where there is none.

    Args:
        config: the composition.
        services: what is asked while it trains.
        run: the run folder.
    """
    cluster = config.cluster
    if cluster.kind != "slurm" or cluster.container is None:
        return
    for key, place in (*_list_places(config, run), *_list_models(config, services), *_list_program(cluster)):
        if place and not str(place).startswith("pkg:") and not is_mounted(_make_absolute(place), cluster.mounts):
            yield _make_unseen(key, place)
    yield from _check_hub(config, services)


def is_mounted(path: Path, mounts: tuple[str, ...]) -> bool:
    """Tell whether a container sees a place under its own name: the innermost mount there is one of a folder to its own
    name.
    """
    innermost: tuple[Path, Path] | None = None
    for mount in mounts:
        source, _, rest = mount.partition(":")
        target = _make_absolute(rest.partition(":")[0] or source)
        if path.is_relative_to(target) and (innermost is None or len(target.parts) >= len(innermost[1].parts)):
            innermost = _make_absolute(source), target
    return innermost is not None and innermost[0] == innermost[1]


def _make_absolute(place: object) -> Path:
    return Path(os.path.normpath(Path(str(place)).expanduser().absolute()))


def _make_unseen(key: str, place: object) -> ConfigError:
    folder = _make_absolute(place).parent
    return ConfigError(
        "the container does not see this place",
        field=key,
        found=str(place),
        allowed="a place under a mount with its own name",
        remedy=f"cluster.mounts=['{folder}:{folder}']",
    )


def _list_places(config: TrainConfig, run: Path) -> list[tuple[str, object]]:
    places: list[tuple[str, object]] = [
        ("run.dir", run),
        ("placement.folder", config.placement.folder),
        ("trainer.nemo_rl_root", config.trainer.nemo_rl_root),
        *(
            (f"{f'envs.{name}.' if name else ''}{key}.path", tasks.path)
            for name, part in split_environments(config).items()
            for key, tasks in (("tasks", part.tasks), ("validation", part.validation))
        ),
        ("assets.cache", config.assets.cache),
        ("assets.mirror", config.assets.mirror if str(config.assets.mirror or "").startswith(_PATHS) else None),
    ]
    if find_ray_sub(config.cluster, config.trainer.nemo_rl_root) is not None:
        places.append(("the working directory, in which the job begins", Path.cwd()))
    return places


def _list_models(config: TrainConfig, services: Mapping[str, Service]) -> list[tuple[str, object]]:
    named = [("trainer.model", config.trainer.model)]
    named += [
        (f"{get_config_key(name)}.model", service.model)
        for name, service in services.items()
        if service.mode == "managed"
    ]
    return [(key, model) for key, model in named if model and str(model).startswith(_PATHS)]


def _list_program(cluster: ClusterConfig) -> list[tuple[str, object]]:
    """Return the interpreter and our sources, where they are this machine's; one that is named and not mounted is the
    image's own.
    """
    python = cluster.python or sys.executable
    if cluster.python is not None and not is_mounted(_make_absolute(python), cluster.mounts):
        return []
    return [("cluster.python", python), ("gavel itself", Path(gavel.__file__).resolve().parent.parent)]


def _check_hub(config: TrainConfig, services: Mapping[str, Service]) -> Iterator[ConfigError]:
    """A container has no home: what comes from the hub needs a place that outlives it."""
    cluster = config.cluster
    models = [config.trainer.model, *(service.model for service in services.values() if service.mode == "managed")]
    wanted = [str(model) for model in models if model and not str(model).startswith(_PATHS)]
    if not wanted or any("HF_HOME" in line for line in cluster.setup):
        return
    place = cluster.hf_home or os.environ.get("HF_HOME")
    if place is None:
        yield ConfigError(
            f"the container has no home, so that every node would fetch {wanted[0]} into itself",
            field="cluster.hf_home",
            found="null",
            allowed="a folder under a mount, with the models in it",
            remedy="cluster.hf_home=/shared/hf",
        )
    elif not is_mounted(_make_absolute(place), cluster.mounts):
        yield _make_unseen("cluster.hf_home", place)


def check_whole_nodes(cluster: ClusterConfig) -> Iterator[ConfigError]:
    """Yield what ``ray.sub`` wants of a job and it does not ask for."""
    words = " ".join(cluster.directives)
    if not cluster.exclusive and "--exclusive" not in words and cluster.cpus_per_task is None:
        yield ConfigError(
            "ray.sub claims every core of a node, and this job gets one core a node",
            field="cluster.exclusive",
            found="false",
            allowed="true, or cluster.cpus_per_task",
            remedy="cluster.exclusive=true, or cluster=slurm_container",
        )
    named = cluster.account or any(os.environ.get(name) for name in _NAMES_ACCOUNT)
    if not named and "--account" not in words and "-A" not in words.split():
        yield ConfigError(
            "ray.sub names the job's account at each step",
            field="cluster.account",
            found="null",
            remedy="cluster.account=NAME",
        )
