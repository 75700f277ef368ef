"""Emits the one resolved YAML that a NeMo-RL run is started with: no ``defaults``, no interpolation, no secret.

It starts from the exemplar of the user's own checkout, so that every key that version wants is there, puts our choices
on top, and resolves. Besides ``launch/compose`` the only module that sees OmegaConf's classes, for NeMo-RL's exemplars
are written in its language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gavel.envs.assembly import Assembly, Parts
from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.config import PREFIX, ActorConfig
from gavel.envs.interfaces.nemo_rl.register import DATASET
from gavel.models.codec import record, to_plain
from gavel.models.errors import ConfigError, find_nearest, shorten_value
from gavel.models.service import get_config_key

SECTION = "gavel"
"""Our own section of the emitted YAML; NeMo-RL lets unknown sections be."""

Kind = Literal["grpo", "grpo_async", "single_controller"]
SCRIPTS: Mapping[Kind, str] = {
    "grpo": "examples/run_grpo.py",
    "grpo_async": "examples/run_grpo.py",
    "single_controller": "examples/run_grpo_single_controller.py",
}
EXEMPLARS: Mapping[Kind, str] = {
    "grpo": "examples/configs/grpo_math_1B.yaml",
    "grpo_async": "examples/configs/grpo_math_1B.yaml",
    "single_controller": "examples/configs/grpo_math_1B_megatron_single_controller.yaml",
}
RECIPES = "examples/configs"
_RESOLVERS: Mapping[str, Any] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "max": max,
}  # fmt: skip
"""Those that NeMo-RL's own loader knows (``utils/config.py``)."""


@record
class TrainerConfig:
    """What is trained and how. ``nemo_rl_root`` is the user's checkout; ``tasks`` and ``validation`` are task files;
    ``run_dir`` holds everything of the run, its checkpoints included. ``overrides`` are further keys of NeMo-RL, nested
    or dotted; they must be the exemplar's, unless they begin with ``+``.
    """

    nemo_rl_root: str
    run_dir: str
    model: str
    tasks: str
    validation: str | None = None
    kind: Kind = "grpo"
    async_rollouts: bool = False
    prompts_per_step: int = 32
    generations_per_prompt: int = 16
    max_steps: int = 1000
    max_total_tokens: int = 4096
    max_new_tokens: int = 2048
    learning_rate: float = 5e-6
    gpus_per_node: int = 1
    nodes: int = 1
    seed: int = 42
    val_period: int = 10
    step_deadline: float = 900.0
    check_workers: int = 0
    overrides: Mapping[str, Any] | None = None
    recipe: str | None = None


@record
class Overlaid:
    """A key of a recipe that a run changes; ``before`` is as the recipe has it, None where it lacks the key."""

    key: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class TrainedEnvironment:
    """One environment of a training: what it and its judges are made of, its reward's name and options, its task files
    (``limit``, ``validation_limit``: their first rows) and the weight of its samples in the loss. ``name`` tells it
    apart from the others; None is its own."""

    parts: Parts
    assembly: Assembly
    reward: Mapping[str, Any]
    tasks: str
    validation: str | None = None
    limit: int | None = None
    validation_limit: int | None = None
    weight: float = 1.0
    name: str | None = None

    @property
    def key(self) -> str:
        """What NeMo-RL knows it by."""
        return f"{PREFIX}{self.name or self.assembly.environment.name}"


def render_config(
    trainer: TrainerConfig, parts: Parts, assembly: Assembly, reward: Mapping[str, Any], failure: FailurePolicy
) -> str:
    """Return the YAML of a training in one environment.

    Args:
        trainer: what is trained.
        parts: what environment and judges are made of; all services are external by now.
        assembly: the parts, checked.
        reward: the reward policy's name and options.
        failure: how much may be ungraded.

    Raises:
        ConfigError: the checkout has no exemplar, an override is no key of it, a value cannot be resolved.
    """
    alone = TrainedEnvironment(parts, assembly, reward, trainer.tasks, trainer.validation)
    return render_environments(trainer, (alone,), failure)


def render_environments(
    trainer: TrainerConfig, environments: Sequence[TrainedEnvironment], failure: FailurePolicy
) -> str:
    """Return the YAML of a training in one environment or several.

    Raises:
        ConfigError: as ``render_config``; also where two environments have one name.
    """
    exemplar = _load_recipe(trainer)
    if trainer.kind == "single_controller":
        for one in environments:
            _refuse_validation(one)
    keys = [one.key for one in environments]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError("two environments of one training have one name", field="envs", found=twice[0])
    tree = OmegaConf.create(exemplar)
    _replace_section(tree, "data.default", None)
    _replace_section(tree, "data.train", _join_sets([_make_dataset(trainer, one, "train") for one in environments]))
    validated = [_make_dataset(trainer, one, "validation") for one in environments if one.validation]
    _replace_section(tree, "data.validation", _join_sets(validated))
    _replace_section(tree, "env", {one.key: to_plain(_make_actor(trainer, one, failure)) for one in environments})
    for key, value in _list_choices(trainer, environments, exemplar).items():
        _set_value(tree, key, value)
    for key, value in _flatten(trainer.overrides or {}).items():
        _override_value(tree, key, value)
    _replace_section(
        tree,
        SECTION,
        {
            "nemo_rl_root": str(Path(trainer.nemo_rl_root).expanduser().resolve()),
            "kind": trainer.kind,
            "run_dir": str(_make_path(trainer)),
        },
    )
    return to_text(tree)


def _make_actor(trainer: TrainerConfig, one: TrainedEnvironment, failure: FailurePolicy) -> ActorConfig:
    parts = one.parts
    used = Parts(
        parts.env,
        {key: parts.services[key] for key in one.assembly.services},
        parts.rubrics,
        parts.judging,
        parts.assets,
    )
    return ActorConfig(
        used,
        one.reward,
        failure,
        str(_make_path(trainer, "ledger")),
        trainer.step_deadline,
        trainer.model,
        trainer.check_workers,
        {key: get_config_key(key) for key in used.services},
        one.name,
    )


def _join_sets(sets: list[dict[str, Any]]) -> Any:
    return sets if len(sets) > 1 else sets[0] if sets else None


def find_recipe(root: Path, kind: Kind, recipe: str | None) -> Path:
    """Return the YAML that a run starts from.

    Args:
        root: the checkout.
        kind: decides the exemplar where no recipe is named.
        recipe: a path, a name below ``examples/configs`` or the bare name of a file there, with or without ``.yaml``.

    Raises:
        ConfigError: there is none; lists near names.
    """
    if recipe is None:
        return root / EXEMPLARS[kind]
    folder = root / RECIPES
    name = recipe if recipe.endswith((".yaml", ".yml")) else f"{recipe}.yaml"
    for place in (Path(name).expanduser(), root / name, folder / name):
        if place.is_file():
            return place
    known = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.yaml"))}
    same = [path for path in known.values() if path.name == Path(name).name]
    if len(same) == 1 and "/" not in name:
        return same[0]
    stems = {Path(one).stem: one for one in known if "grpo" in one}
    near = find_nearest(Path(name).stem, list(stems)) or [
        stem for stem in stems if Path(name).stem.lower() in stem.lower()
    ]
    raise ConfigError(
        "this checkout has no such recipe",
        field="trainer.recipe",
        found=recipe,
        where=str(folder),
        allowed=", ".join(stems[one] for one in (near or list(stems))[:10]) or "(no recipe of GRPO is there)",
        remedy=f"trainer.recipe={stems[near[0]]}" if near else "name one of them, or a path",
    )


def _load_recipe(trainer: TrainerConfig) -> Any:
    path = find_recipe(Path(trainer.nemo_rl_root).expanduser(), trainer.kind, trainer.recipe)
    tree = load_exemplar(path)
    if trainer.recipe is not None and not ("grpo" in tree and "policy" in tree):
        raise ConfigError(
            "this is no recipe of GRPO",
            field="trainer.recipe",
            found=str(path),
            allowed="a YAML with the sections grpo and policy",
            remedy=f"one of {path.parent} whose name begins with grpo",
        )
    return tree


def find_overlaid(trainer: TrainerConfig, environments: Sequence[TrainedEnvironment]) -> list[Overlaid]:
    """Return what a run changes of its recipe: single keys, by name; data, environments and our own section are its own
    anyway.

    Raises:
        ConfigError: as ``render_config``.
    """
    exemplar = _load_recipe(trainer)
    flat = {key.lstrip("+"): value for key, value in _flatten(trainer.overrides or {}).items()}
    wanted = {**_list_choices(trainer, environments, exemplar), **flat}
    found = [
        Overlaid(key, _read_key(exemplar, key), value)
        for key, value in wanted.items()
        if not key.startswith(("data.", "env."))
    ]
    return [one for one in found if one.before != one.after]


def _read_key(tree: Any, key: str) -> Any:
    """Return a value of a recipe, as it is written where it refers to another."""
    holder, _, last = key.rpartition(".")
    above = OmegaConf.select(tree, holder, throw_on_resolution_failure=False) if holder else tree
    if not isinstance(above, DictConfig) or last not in above:
        return None
    return OmegaConf.to_container(above, resolve=False)[last]  # type: ignore[call-overload, index]


def to_text(tree: DictConfig) -> str:
    """Return a tree as YAML with every interpolation resolved."""
    for name, resolver in _RESOLVERS.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    try:
        values = OmegaConf.to_container(tree, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as failed:
        raise ConfigError(
            "a value of the trainer's config cannot be resolved", field="trainer.overrides", found=str(failed)
        ) from None
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120))


def load_exemplar(path: Path) -> Any:
    """Return NeMo-RL's exemplar with the files of its ``defaults`` merged in, unresolved.

    Raises:
        ConfigError: it, or a file it names, is not there.
    """
    if not path.is_file():
        raise ConfigError(
            "there is no NeMo-RL here",
            field="trainer.nemo_rl_root",
            found=f"no {path}",
            allowed="a checkout of NVIDIA-NeMo/RL",
            remedy="clone it, and set trainer.nemo_rl_root to its folder (in a file of your own: the path under "
            "`defaults`)",
        )
    own = OmegaConf.load(path)
    assert isinstance(own, DictConfig), path
    above = own.pop("defaults", [])
    merged = OmegaConf.create({})
    for name in [above] if isinstance(above, str) else above:
        merged = _merge_trees(merged, load_exemplar(path.parent / str(name)))
    return _merge_trees(merged, own)


def _merge_trees(base: Any, top: Any) -> Any:
    """Merge as NeMo-RL does: ``_override_`` in a top-level section replaces the section below it."""
    for key in list(top):
        section = None if OmegaConf.is_missing(top, key) else top[key]
        if isinstance(section, DictConfig) and section.pop("_override_", False):
            base.pop(key, None)
    return OmegaConf.merge(base, top)


def _list_choices(trainer: TrainerConfig, environments: Sequence[TrainedEnvironment], recipe: Any) -> dict[str, Any]:
    """Return what our own keys mean in NeMo-RL's config.

    Keys of sections that a recipe may lack are set where it has them.
    """
    chosen, name = _list_fixed(trainer, environments), _make_path(trainer).name
    where_there = {
        "policy.optimizer.kwargs.lr": trainer.learning_rate,
        "policy.megatron_cfg.optimizer.lr": trainer.learning_rate,
        "logger.wandb.name": name,
        "logger.swanlab.name": name,
        "logger.mlflow.run_name": name,
    }
    if trainer.kind == "grpo_async":
        chosen |= _list_asynchronous(trainer, recipe)
    for key, value in where_there.items():
        if isinstance(OmegaConf.select(recipe, key.rpartition(".")[0], throw_on_resolution_failure=False), DictConfig):
            chosen[key] = value
    return chosen


def _list_fixed(trainer: TrainerConfig, environments: Sequence[TrainedEnvironment]) -> dict[str, Any]:
    validated = any(one.validation for one in environments)
    size = trainer.prompts_per_step * trainer.generations_per_prompt
    return {
        "grpo.num_prompts_per_step": trainer.prompts_per_step,
        "grpo.num_generations_per_prompt": trainer.generations_per_prompt,
        "grpo.max_rollout_turns": max(count_policy_turns(one.assembly) for one in environments),
        "grpo.max_num_steps": trainer.max_steps,
        "grpo.seed": trainer.seed,
        "grpo.val_period": trainer.val_period if validated else 0,
        "policy.model_name": trainer.model,
        "policy.train_global_batch_size": size,
        "policy.max_total_sequence_length": trainer.max_total_tokens,
        "policy.generation.max_new_tokens": trainer.max_new_tokens,
        "policy.generation.vllm_cfg.async_engine": trainer.async_rollouts or trainer.kind != "grpo",
        "checkpointing.checkpoint_dir": str(_make_path(trainer, "checkpoints")),
        "checkpointing.metric_name": "val:accuracy" if validated else None,
        "logger.log_dir": str(_make_path(trainer, "logs")),
        "cluster.gpus_per_node": trainer.gpus_per_node,
        "cluster.num_nodes": trainer.nodes,
    }


def _list_asynchronous(trainer: TrainerConfig, recipe: Any) -> dict[str, Any]:
    """Return what asynchronous training demands; a recipe that divides its GPUs already keeps its division, any other
    gives half of them to generation.
    """
    chosen: dict[str, Any] = {"grpo.async_grpo.enabled": True, "loss_fn.use_importance_sampling_correction": True}
    generation = "policy.generation"
    backend = OmegaConf.select(recipe, f"{generation}.backend", throw_on_resolution_failure=False)
    divided = OmegaConf.select(recipe, f"{generation}.colocated.enabled", throw_on_resolution_failure=False) is False
    if divided or backend == "megatron":
        return chosen
    alone = trainer.nodes == 1
    return chosen | {
        f"{generation}.colocated.enabled": False,
        f"{generation}.colocated.resources.gpus_per_node": trainer.gpus_per_node // (2 if alone else 1),
        f"{generation}.colocated.resources.num_nodes": 1 if alone else trainer.nodes // 2,
    }


def count_policy_turns(assembly: Assembly) -> int:
    """Return how many replies of the policy an episode may take; 1 where it is not declared, which is refused
    elsewhere.
    """
    return assembly.environment.info.policy_turns or 1


def _make_dataset(trainer: TrainerConfig, one: TrainedEnvironment, split: str) -> dict[str, Any]:
    trained = split == "train"
    path, limit = (one.tasks, one.limit) if trained else (str(one.validation), one.validation_limit)
    return {
        "dataset_name": DATASET,
        "data_path": str(Path(path).expanduser().resolve()),
        "env_name": one.key,
        "env": one.assembly.environment.name,
        "binding": one.assembly.environment.info.binding,
        "split": split,
        "multi_turn": count_policy_turns(one.assembly) > 1,
        "seed": trainer.seed,
        **({"limit": limit} if limit else {}),
        **({"weight": one.weight} if trained and one.weight != 1.0 else {}),
    }


def _refuse_validation(one: TrainedEnvironment) -> None:
    if one.validation is not None:
        raise ConfigError(
            "SingleController has no validation",
            field="trainer.validation",
            found=one.validation,
            allowed="null",
            remedy="leave it out, and validate with `gavel rollout` on a checkpoint",
        )


def _make_path(trainer: TrainerConfig, *parts: str) -> Path:
    return Path(trainer.run_dir).expanduser().resolve().joinpath(*parts)


def _set_value(tree: DictConfig, key: str, value: Any) -> None:
    OmegaConf.update(tree, key, value, merge=False, force_add=True)


def _replace_section(tree: DictConfig, key: str, value: Any) -> None:
    """Put a section in the place of the exemplar's; texts of ours hold no interpolation, whatever they look like."""
    _set_value(tree, key, _escape_texts(value))


def _escape_texts(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "\\${")
    if isinstance(value, Mapping):
        return {key: _escape_texts(item) for key, item in value.items()}
    return [_escape_texts(item) for item in value] if isinstance(value, list | tuple) else value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        found |= (
            _flatten(value, f"{path}.") if isinstance(value, Mapping) and not key.startswith("+") else {path: value}
        )
    return found


def _override_value(tree: DictConfig, key: str, value: Any) -> None:
    name = key.lstrip("+")
    above, _, last = name.rpartition(".")
    holder = OmegaConf.select(tree, above) if above else tree
    if holder is not None and not isinstance(holder, DictConfig):
        raise ConfigError(
            f"{above} is no section, and has no keys",
            field=f"trainer.overrides.{name}",
            found=shorten_value(value),
            allowed=f"a whole value: trainer.overrides={{{above}: …}}",
        )
    if not key.startswith("+") and not (isinstance(holder, DictConfig) and last in holder):
        names = [str(item) for item in holder] if isinstance(holder, DictConfig) else []
        near = find_nearest(last, names)
        raise ConfigError(
            "NeMo-RL's exemplar has no such key",
            field=f"trainer.overrides.{name}",
            found=shorten_value(value),
            allowed=", ".join(names[:20]) or "a section that is there",
            remedy=f"did you mean `{near[0]}`?" if near else f"write +{name}",
        )
    _set_value(tree, name, value)
