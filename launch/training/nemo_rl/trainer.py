"""NeMo-RL, as ``gavel train`` sees it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from gavel.launch.assembly.assemble import assemble_run, split_environments
from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.task_paths import resolve_task_path
from gavel.launch.training.container import check_whole_nodes
from gavel.launch.training.nemo_rl.arithmetic import describe_arithmetic, find_contradictions
from gavel.launch.training.nemo_rl.checkout import is_checkout, read_checkout, read_version, require_contract
from gavel.launch.training.nemo_rl.config import (
    KINDS,
    NemoRlRun,
    TrainedEnvironment,
    find_overlaid,
    render_environments,
)
from gavel.launch.training.nemo_rl.interpreter import check_imports, describe_hooks, find_missing_imports
from gavel.launch.training.nemo_rl.preflight import list_findings
from gavel.launch.training.nemo_rl.recipe import make_missing_error
from gavel.launch.training.nemo_rl.steps import plan_steps
from gavel.launch.training.render import find_ray_sub, make_python_path
from gavel.launch.training.trainer import ComposedTraining, Rows, Trainer, UnnamedError
from gavel.launch.training.trainer_config import make_trained_parts
from gavel.models.errors import ConfigError, GavelError, shorten_value

CONFIG = "nemo_rl.yaml"


def check_trainer(config: TrainConfig) -> Iterator[GavelError]:
    """Yield what the options, the checkout and the trainer's interpreter lack."""
    chosen = config.trainer
    if config.cluster.gpus_per_node < 1:
        yield ConfigError(
            "NeMo-RL needs a GPU",
            field="cluster.gpus_per_node",
            found=str(config.cluster.gpus_per_node),
            allowed="at least 1",
        )
    if chosen.command:
        yield ConfigError(
            "NeMo-RL has no use for this option",
            field="trainer.command",
            found=shorten_value(list(chosen.command)),
            allowed="[]",
            remedy="it is for trainer.kind=command",
        )
    if not chosen.model:
        yield ConfigError(
            "no policy is named", field="trainer.model", remedy="trainer.model=Qwen/Qwen3-1.7B, or a directory"
        )
    if chosen.max_new_tokens >= chosen.max_total_tokens:
        yield ConfigError(
            "a reply of full length leaves no room for its prompt",
            field="trainer.max_new_tokens",
            found=str(chosen.max_new_tokens),
            allowed=f"less than trainer.max_total_tokens ({chosen.max_total_tokens})",
        )
    if chosen.nemo_rl_root:
        yield from _check_checkout(config, Path(chosen.nemo_rl_root).expanduser())
        return
    yield UnnamedError(
        "no NeMo-RL is named",
        field="trainer.nemo_rl_root",
        found="null",
        allowed="a checkout of NVIDIA-NeMo/RL",
        remedy="clone it, and set trainer.nemo_rl_root or export NEMO_RL_ROOT",
    )


def _check_checkout(config: TrainConfig, root: Path) -> Iterator[GavelError]:
    chosen, script = config.trainer, find_ray_sub(config.cluster, config.trainer.nemo_rl_root)
    exemplar = root / KINDS[chosen.kind].exemplar
    if chosen.recipe is None and not exemplar.is_file():
        yield make_missing_error(exemplar)
    if script is not None:
        yield from check_whole_nodes(config.cluster)
    if script is not None and root.is_dir() and not script.is_file():
        yield ConfigError(
            "containers on several nodes are started by this script of NeMo-RL",
            field="trainer.nemo_rl_root",
            found=f"no {script}",
            remedy="name a whole checkout",
        )
    fits = True
    if is_checkout(root):
        try:
            kind = KINDS[chosen.kind]
            require_contract(read_checkout(root), asynchronous=kind.overlapping, gym=kind.gym)
        except ConfigError as failed:
            fits = False
            yield failed
    if root.is_dir() and not config.cluster.container:
        yield from check_imports(chosen.python or sys.executable, root, toy=fits and is_checkout(root))


def make_run(training: ComposedTraining) -> NemoRlRun:
    """Return what NeMo-RL's config says of a run, besides its environments."""
    config = training.config
    gpus, nodes = max(training.layout.trainer_gpus, 0), config.cluster.nodes
    return NemoRlRun(config.trainer, str(training.path), gpus, nodes, config.seed)


def list_environments(training: ComposedTraining) -> list[TrainedEnvironment]:
    """Return what each environment of a training is made of."""
    found, config = [], training.config
    for name, part in split_environments(config).items():
        made = assemble_run(replace(part, dry_run=True), with_policy=False) if name else training.assembly
        found.append(
            TrainedEnvironment(
                make_trained_parts(part, made),
                made,
                part.reward,
                str(resolve_task_path(str(part.tasks.path))),
                str(resolve_task_path(part.validation.path)) if part.validation.path else None,
                part.tasks.limit,
                part.validation.limit,
                config.envs[name].weight if name else 1.0,
                name or None,
            )
        )
    return found


def _render_config(training: ComposedTraining) -> tuple[str, str]:
    return CONFIG, render_environments(make_run(training), list_environments(training), training.config.failure)


def _check_config(_: ComposedTraining, text: str) -> list[GavelError]:
    values = yaml.safe_load(text)
    return [*list_findings(values, probe=False, places=False), *find_contradictions(values)]


def _make_command(config: TrainConfig) -> tuple[str, ...]:
    python = config.trainer.python or config.cluster.python or sys.executable
    return (python, "-m", "gavel.launch.nemo_rl_main", "--config", "{config}")


def _describe_training(training: ComposedTraining, text: str, judged: bool) -> Rows:
    if text:
        yield from describe_arithmetic(yaml.safe_load(text), training.assembly.services, judged=judged)
        for one in find_overlaid(make_run(training), list_environments(training)):
            yield "overlaid", f"{one.key}: {one.before} → {one.after}"
    root = training.config.trainer.nemo_rl_root
    yield "NeMo-RL", f"{read_version(root) or 'version not known'}, {root}"


def _describe_install(config: TrainConfig) -> Rows:
    if not config.trainer.nemo_rl_root:
        yield "NeMo-RL", "none is named: trainer.nemo_rl_root=DIR"
        return
    root = Path(config.trainer.nemo_rl_root).expanduser()
    if not is_checkout(root):
        yield "NeMo-RL", f"there are no sources of it in {root}"
        return
    found = read_checkout(root)
    commit = (
        "commit not known"
        if found.commit is None
        else f"{found.commit[:12]}{', which was tested' if found.tested else ', not tested'}"
    )
    yield "NeMo-RL", f"{read_version(str(root)) or 'version not known'}, {commit}, {root}"
    yield "its contract", f"it lacks {'; '.join(found.missing)}" if found.missing else "the hooks fit"
    if found.missing:  # no kind of training and no estimator can be used with it
        return
    further = found.missing_async
    yield "asynchronous training", "the hooks fit" if not further else f"refused: it lacks {'; '.join(further)}"
    lacking = found.missing_gym
    yield "rollouts by NeMo Gym", "the hooks fit" if not lacking else f"refused: it lacks {'; '.join(lacking)}"
    for name, stands in found.estimators.items():
        yield f"estimator {name}", stands if stands != "unknown" else "unknown, so it is refused"
    if config.cluster.container:
        return
    python, paths = config.trainer.python or sys.executable, make_python_path(found.root)
    lacks = find_missing_imports(python, paths)
    yield "the trainer's interpreter", f"it lacks {lacks}" if lacks else "it has what the trainer needs"
    if not lacks:
        yield from describe_hooks(python, paths)


_TRAINER = Trainer(
    check=check_trainer,
    render=_render_config,
    make_command=_make_command,
    plan_steps=plan_steps,
    is_renderable=lambda config: bool(config.trainer.nemo_rl_root),
    check_config=_check_config,
    describe=_describe_training,
    describe_install=_describe_install,
    on_ray=True,
    several=True,
)
NEMO_RL: Mapping[str, Trainer] = dict.fromkeys(KINDS, _TRAINER)
