"""What can be wrong with a training by TRL on the CPU, before it starts: the interpreter, the model's weights, options,
tasks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gavel.envs.assembly import Assembly
from gavel.envs.interfaces.nemo_rl.tasks import load_tasks
from gavel.envs.interfaces.trl.config import find_unused, read_options
from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.task_paths import resolve_task_path
from gavel.launch.training.interpreter import ask_interpreter
from gavel.launch.training.nemo_rl.config import count_policy_turns
from gavel.models.codec import to_plain
from gavel.models.errors import ConfigError, GavelError
from gavel.models.install import install_hint
from gavel.models.pinned import AssetError, fetch_pin, make_cached_path
from gavel.models.vllm import embedded

EXTRA = "smoke"
LEAST_TRL = (1, 10)
"""1.5 makes a reward of 0 of a completion that has none; from 1.10 on it is left out."""
NEEDED = (
    "trl",
    "torch",
    "transformers",
    "datasets",
    "accelerate",
    "safetensors",
    "aiohttp",
    "orjson",
    "pydantic",
    "omegaconf",
)
_TO_CONVERT = ("gguf",)
_SCRIPT = (
    "import importlib.metadata, importlib.util, sys\n"
    "print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))\n"
    "print(importlib.metadata.version('trl') if importlib.util.find_spec('trl') else '')\n"
)


def list_machine_findings(config: TrainConfig) -> Iterator[GavelError]:
    """Yield what this machine lacks: modules of the trainer's interpreter, the model's weights."""
    python = config.trainer.python or config.cluster.python or sys.executable
    prepared, found = _check_weights(config)
    yield from found
    missing, version = ask_modules(python, (*NEEDED, *(() if prepared else _TO_CONVERT)))
    if missing:
        yield ConfigError(
            "this interpreter lacks what the trainer needs",
            field="trainer.python",
            found=f"{python}: no {missing}",
            remedy=f"{install_hint(EXTRA)}; or name another interpreter: trainer.python=…",
        )
    elif tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < LEAST_TRL:
        yield ConfigError(
            "this TRL would train on ungraded samples as if they had earned 0",
            field="trainer.python",
            found=f"trl {version} in {python}",
            allowed=f"trl {'.'.join(map(str, LEAST_TRL))} or newer",
            remedy=install_hint(EXTRA),
        )


@cache
def ask_modules(python: str, modules: tuple[str, ...]) -> tuple[str, str]:
    """Ask an interpreter which of these modules it lacks, and its version of TRL; nothing is imported there."""
    answered = ask_interpreter(python, ("-P", "-c", _SCRIPT, *modules))
    if answered.problem or not (lines := answered.out.splitlines()):
        return f"answer: {answered.problem}" if answered.problem else "answer", ""
    return ", ".join(lines[0].split()), lines[1] if len(lines) > 1 else ""


def _check_weights(config: TrainConfig) -> tuple[bool, list[GavelError]]:
    """Return whether the weights are ready to be loaded, and what is wrong with them."""
    name, assets = str(config.trainer.model or ""), config.assets.make_store()
    try:
        model = embedded.find_embedded(name)
    except ConfigError as failed:
        return False, [failed.copy_with(field="trainer.model", found=name)]
    if model is None:
        if Path(name).expanduser().is_dir():
            return True, []
        return True, [
            ConfigError(
                "there is no such model here; this trainer downloads none from the hub",
                field="trainer.model",
                found=name or "null",
                allowed="embedded:smollm2, or a directory with a model of Hugging Face's form",
            )
        ]
    if embedded.make_prepared_path(model, assets.cache).is_dir():
        return True, []
    if not assets.offline or make_cached_path(model.source, assets.cache).is_file():
        return False, []
    try:
        fetch_pin(model.source, mirror=assets.mirror, offline=True)
    except AssetError as failed:
        return False, [
            AssetError(
                f"the weights of {name} are not here, and downloads are forbidden",
                field="assets.offline",
                found=failed.found,
                remedy=f"put {model.source.name} into a folder and set assets.mirror=FOLDER, or set "
                f"assets.offline=false once",
            )
        ]
    return False, []


def list_findings(config: TrainConfig, assembly: Assembly) -> list[GavelError]:
    """Return what is wrong with the options and the tasks, all of it."""
    trainer = to_plain(config.trainer)
    found: list[GavelError] = list(find_unused(trainer))
    if not found:
        try:
            read_options(trainer, config.seed)
        except GavelError as failed:
            found.append(failed)
    found += _check_unsupported(config, assembly)
    found += _check_tasks(config, assembly)
    return found


def _check_unsupported(config: TrainConfig, assembly: Assembly) -> Iterator[GavelError]:
    if config.validation.path:
        yield ConfigError(
            "this trainer does not validate", field="validation.path", found=config.validation.path, allowed="null"
        )
    if config.cluster.nodes > 1:
        yield ConfigError(
            "this trainer runs on one machine", field="cluster.nodes", found=str(config.cluster.nodes), allowed="1"
        )
    if (turns := count_policy_turns(assembly)) > 1:
        yield ConfigError(
            f"this trainer draws one reply a task, and an episode of {assembly.environment.name} takes up to {turns}",
            field="env",
            found=assembly.environment.name,
            allowed="environments of one reply",
            remedy="train it with trainer=nemo_rl_grpo",
        )


def _check_tasks(config: TrainConfig, assembly: Assembly) -> Iterator[GavelError]:
    binding = assembly.environment.info.binding
    try:
        tasks = load_tasks(
            resolve_task_path(str(config.tasks.path)),
            assembly.environment.name,
            binding=binding,
            limit=config.tasks.limit,
        )
    except (GavelError, OSError):
        return  # said where the tasks are looked at
    if len(tasks) < config.trainer.prompts_per_step:
        yield ConfigError(
            "there are fewer tasks than prompts in one step",
            field="trainer.prompts_per_step",
            found=f"{len(tasks)} tasks",
            allowed=f"at most {len(tasks)}",
        )


def make_device_variables() -> dict[str, str]:
    """Return the variables a trainer on the CPU starts with: no GPU, and threads that do not spin while others need the
    cores.
    """
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "0"),
        "OMP_WAIT_POLICY": "passive",
    }
