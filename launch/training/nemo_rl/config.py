"""Emits the one resolved YAML that a NeMo-RL run is started with: no ``defaults``, no interpolation, no secret.

It starts from the exemplar of the user's own checkout, so that every key that version wants is there, puts our choices
on top, and resolves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gavel.envs.assembly import Assembly, Parts
from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.config import PREFIX, ActorConfig
from gavel.envs.interfaces.nemo_rl.modes import settle_kind
from gavel.envs.interfaces.nemo_rl.register import DATASET
from gavel.launch.config.training_schema import TrainerOptions
from gavel.launch.training.nemo_rl.gym import CHOICES, make_agent, make_section
from gavel.launch.training.nemo_rl.recipe import find_recipe, load_exemplar, read_key, to_text
from gavel.launch.training.trainer import SECTION, read_section
from gavel.models.codec import record, to_plain
from gavel.models.errors import ConfigError, find_nearest, shorten_value
from gavel.models.service import get_config_key


@dataclass(frozen=True, slots=True)
class NemoRlRun:
    """A training of NeMo-RL besides its environments: ``options`` as the user chose them, ``run_dir`` for everything of
    the run, its checkpoints included, and the policy's part of the cluster.
    """

    options: TrainerOptions
    run_dir: str
    gpus_per_node: int = 1
    nodes: int = 1
    seed: int = 42

    @property
    def kind(self) -> NemoRlKind:
        """Which of NeMo-RL's ways it trains in."""
        return KINDS[self.options.kind]

    @property
    def root(self) -> Path:
        """The user's checkout."""
        return Path(str(self.options.nemo_rl_root)).expanduser()

    def make_path(self, *parts: str) -> Path:
        """Return a path in the run's folder."""
        return Path(self.run_dir).expanduser().resolve().joinpath(*parts)


@dataclass(frozen=True, slots=True)
class NemoRlKind:
    """One of NeMo-RL's ways to train.

    Attributes:
        script: what runs, relative to the checkout.
        exemplar: the recipe that it starts from where none is named.
        overlapping: rollouts go on while the policy trains.
        async_engine: each rollout always goes on by itself (vLLM's asynchronous engine).
        validates: it has a validation.
        gym: NeMo Gym rolls out.
        weighs: it takes samples by environment and weight; else all of one prompt are one group, of weight 1.
        keeps_steps: each step is in the ledger; else prompts that fail are skipped, and checkpoints alone tell.
        list_choices: further keys that it demands, of a run and its recipe.
    """

    script: str
    exemplar: str
    overlapping: bool = False
    async_engine: bool = False
    validates: bool = True
    gym: bool = False
    weighs: bool = True
    keeps_steps: bool = True
    list_choices: Callable[[NemoRlRun, Any], Mapping[str, Any]] = lambda *_: {}


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


def render_environments(run: NemoRlRun, environments: Sequence[TrainedEnvironment], failure: FailurePolicy) -> str:
    """Return the YAML of a training in one environment or several.

    Raises:
        ConfigError: the checkout has no exemplar, an override is no key of it, a value cannot be resolved, or two
            environments have one name.
    """
    exemplar = _load_recipe(run)
    if not run.kind.validates:
        for one in environments:
            _refuse_validation(one)
    keys = [one.key for one in environments]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError("two environments of one training have one name", field="envs", found=twice[0])
    tree = OmegaConf.create(exemplar)
    _replace_section(tree, "data.default", None)
    _replace_section(tree, "data.train", _join_sets([_make_dataset(run, one, "train") for one in environments]))
    validated = [_make_dataset(run, one, "validation") for one in environments if one.validation]
    _replace_section(tree, "data.validation", _join_sets(validated))
    section = {one.key: to_plain(_make_actor(run, one, failure)) for one in environments}
    gym = make_section(list(section), run.make_path("gym")) if run.kind.gym else {}
    _replace_section(tree, "env", {**gym, **section})
    for key, value in _list_choices(run, environments, exemplar).items():
        _set_value(tree, key, value)
    for key, value in _flatten(run.options.overrides or {}).items():
        _override_value(tree, key, value)
    _replace_section(
        tree,
        SECTION,
        {"nemo_rl_root": str(run.root.resolve()), "kind": run.options.kind, "run_dir": str(run.make_path())},
    )
    return to_text(tree)


def _make_actor(run: NemoRlRun, one: TrainedEnvironment, failure: FailurePolicy) -> ActorConfig:
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
        str(run.make_path("ledger")),
        run.options.step_deadline,
        str(run.options.model),
        run.options.check_workers,
        {key: get_config_key(key) for key in used.services},
        one.name,
    )


def _join_sets(sets: list[dict[str, Any]]) -> Any:
    return sets if len(sets) > 1 else sets[0] if sets else None


def _load_recipe(run: NemoRlRun) -> Any:
    path = find_recipe(run.root, run.kind.exemplar, run.options.recipe)
    tree = load_exemplar(path)
    if run.options.recipe is not None and not ("grpo" in tree and "policy" in tree):
        raise ConfigError(
            "this is no recipe of GRPO",
            field="trainer.recipe",
            found=str(path),
            allowed="a YAML with the sections grpo and policy",
            remedy=f"one of {path.parent} whose name begins with grpo",
        )
    return tree


def find_overlaid(run: NemoRlRun, environments: Sequence[TrainedEnvironment]) -> list[Overlaid]:
    """Return what a run changes of its recipe: single keys, by name; data, environments and our own section are its own
    anyway.

    Raises:
        ConfigError: as ``render_environments``.
    """
    exemplar = _load_recipe(run)
    flat = {key.lstrip("+"): value for key, value in _flatten(run.options.overrides or {}).items()}
    wanted = {**_list_choices(run, environments, exemplar), **flat}
    found = [
        Overlaid(key, read_key(exemplar, key), value)
        for key, value in wanted.items()
        if not key.startswith(("data.", "env."))
    ]
    return [one for one in found if one.before != one.after]


def _list_choices(run: NemoRlRun, environments: Sequence[TrainedEnvironment], recipe: Any) -> dict[str, Any]:
    """Return what our own keys mean in NeMo-RL's config.

    Keys of sections that a recipe may lack are set where it has them.
    """
    chosen, name = _list_fixed(run, environments), run.make_path().name
    where_there = {
        "policy.optimizer.kwargs.lr": run.options.learning_rate,
        "policy.megatron_cfg.optimizer.lr": run.options.learning_rate,
        "logger.wandb.name": name,
        "logger.swanlab.name": name,
        "logger.mlflow.run_name": name,
    }
    chosen |= run.kind.list_choices(run, recipe)
    for key, value in where_there.items():
        if isinstance(OmegaConf.select(recipe, key.rpartition(".")[0], throw_on_resolution_failure=False), DictConfig):
            chosen[key] = value
    return chosen


def _list_fixed(run: NemoRlRun, environments: Sequence[TrainedEnvironment]) -> dict[str, Any]:
    validated = any(one.validation for one in environments)
    size = run.options.prompts_per_step * run.options.generations_per_prompt
    return {
        "grpo.num_prompts_per_step": run.options.prompts_per_step,
        "grpo.num_generations_per_prompt": run.options.generations_per_prompt,
        "grpo.max_rollout_turns": max(count_policy_turns(one.assembly) for one in environments),
        "grpo.max_num_steps": run.options.max_steps,
        "grpo.seed": run.seed,
        "grpo.val_period": run.options.val_period if validated else 0,
        "policy.model_name": run.options.model,
        "policy.train_global_batch_size": size,
        "policy.max_total_sequence_length": run.options.max_total_tokens,
        "policy.generation.max_new_tokens": run.options.max_new_tokens,
        "policy.generation.vllm_cfg.async_engine": run.options.async_rollouts or run.kind.async_engine,
        "checkpointing.checkpoint_dir": str(run.make_path("checkpoints")),
        "checkpointing.metric_name": "val:accuracy" if validated else None,
        "logger.log_dir": str(run.make_path("logs")),
        "cluster.gpus_per_node": run.gpus_per_node,
        "cluster.num_nodes": run.nodes,
    }


def _list_asynchronous(run: NemoRlRun, recipe: Any) -> dict[str, Any]:
    """Return what asynchronous training demands; a recipe that divides its GPUs already keeps its division, any other
    gives half of them to generation.
    """
    chosen: dict[str, Any] = {"grpo.async_grpo.enabled": True, "loss_fn.use_importance_sampling_correction": True}
    generation = "policy.generation"
    backend = OmegaConf.select(recipe, f"{generation}.backend", throw_on_resolution_failure=False)
    divided = OmegaConf.select(recipe, f"{generation}.colocated.enabled", throw_on_resolution_failure=False) is False
    if divided or backend == "megatron":
        return chosen
    alone = run.nodes == 1
    return chosen | {
        f"{generation}.colocated.enabled": False,
        f"{generation}.colocated.resources.gpus_per_node": run.gpus_per_node // (2 if alone else 1),
        f"{generation}.colocated.resources.num_nodes": 1 if alone else run.nodes // 2,
    }


KINDS: Mapping[str, NemoRlKind] = MappingProxyType({
    "grpo": NemoRlKind("examples/run_grpo.py", "examples/configs/grpo_math_1B.yaml"),
    "grpo_async": NemoRlKind(
        "examples/run_grpo.py", "examples/configs/grpo_math_1B.yaml",
        overlapping=True, async_engine=True, list_choices=_list_asynchronous,
    ),
    "gym": NemoRlKind(
        "examples/nemo_gym/run_grpo_nemo_gym.py", "examples/configs/grpo_math_1B.yaml",
        async_engine=True, gym=True, list_choices=lambda *_: CHOICES,
    ),
    "gym_async": NemoRlKind(
        "examples/nemo_gym/run_grpo_nemo_gym.py", "examples/configs/grpo_math_1B.yaml",
        overlapping=True, async_engine=True, gym=True,
        list_choices=lambda run, recipe: {**CHOICES, **_list_asynchronous(run, recipe)},
    ),
    "single_controller": NemoRlKind(
        "examples/run_grpo_single_controller.py", "examples/configs/grpo_math_1B_megatron_single_controller.yaml",
        async_engine=True, validates=False, weighs=False, keeps_steps=False,
    ),
})  # fmt: skip
"""By ``trainer.kind``."""


def settle_config(config: Mapping[str, Any]) -> NemoRlKind:
    """Return how a config trains: its kind, where ``run_grpo.py`` has two as it says there; of one that is not known
    the first.
    """
    named = str(read_section(config, SECTION).get("kind", "grpo"))
    return KINDS.get(settle_kind(config, named), KINDS["grpo"])


def count_policy_turns(assembly: Assembly) -> int:
    """Return how many replies of the policy an episode may take; 1 where it is not declared, which is refused
    elsewhere.
    """
    return assembly.environment.info.policy_turns or 1


def _make_dataset(run: NemoRlRun, one: TrainedEnvironment, split: str) -> dict[str, Any]:
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
        "seed": run.seed,
        **({"limit": limit} if limit else {}),
        **({"agent": make_agent(one.key)} if run.kind.gym else {}),
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
