"""Everything that can be found wrong with a trainer's config before an actor is made or a GPU is used, all at once."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from gavel.envs.assembly import Assembly
from gavel.envs.interfaces.nemo_rl.components import make_components_error
from gavel.envs.interfaces.nemo_rl.config import PREFIX, ActorConfig, build_parts, read_config
from gavel.envs.interfaces.nemo_rl.modes import refuse_mode, settle_kind
from gavel.envs.interfaces.nemo_rl.prompts import list_gavel_entries
from gavel.envs.interfaces.nemo_rl.register import DATASET
from gavel.envs.interfaces.nemo_rl.tasks import (
    find_shared_prompts,
    load_tasks,
    make_prompt_key,
    make_shared_prompt_error,
)
from gavel.envs.registry import reward_names
from gavel.envs.types import Task, TaskError
from gavel.judges.bindings import check_verifiers
from gavel.launch.training.nemo_rl.config import KINDS, count_policy_turns, settle_config
from gavel.launch.training.nemo_rl.gym import list_gym_findings
from gavel.launch.training.nemo_rl.wrong_values import find_wrong_values
from gavel.launch.training.trainer import SECTION
from gavel.models.calls.transport import list_unset_variables
from gavel.models.errors import ConfigError, GavelError, drop_repeated, locate_error, shorten_value
from gavel.models.service import Service, get_config_key

_COMPONENTS: Mapping[str, int | None] = {"abstention": 4, "instruction_following": 1, "vera_mh": 1, "judged": None}
"""How many components the rewards of an environment have; None: one for each rubric. Of others it is not known."""
PROBE_SECONDS = 5.0
_SHOWN = 3
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


@dataclass(frozen=True, slots=True)
class Built:
    """An environment of the config that could be made."""

    config: ActorConfig
    assembly: Assembly


def list_findings(config: Mapping[str, Any], *, probe: bool = True, places: bool = True) -> list[GavelError]:
    """Return what is wrong with a trainer's config; empty if it can be started.

    Args:
        config: the emitted YAML, read.
        probe: ask each service whether it is there and serves its model.
        places: look at variables, addresses and the ledger, as they are on this machine; makes the ledger's folder.
    """
    if wrong := find_wrong_values(config):
        return [*wrong]
    found: list[GavelError] = []
    built: dict[str, Built] = {}
    for name, raw in (config.get("env") or {}).items():
        if not str(name).startswith(PREFIX):
            continue
        try:
            actor = read_config(raw, name=name)
            built[name] = Built(actor, build_parts(actor)[0])
        except GavelError as failed:
            found.append(failed)
    found += _check_modes(config)
    found += _check_data(config, built)
    found += _check_turns(config, built)
    found += _check_components(config, built)
    found += _check_places(config, built) if places else []
    if probe and built:
        found += asyncio.run(_probe_services(built))
    return drop_repeated(found)


def _check_modes(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    section = config.get(SECTION) or {}
    kind = section.get("kind", "grpo")
    if kind not in KINDS:
        yield ConfigError("there is no such trainer", field=f"{SECTION}.kind", found=kind, allowed=", ".join(KINDS))
        return
    yield from refuse_mode(config, settle_kind(config, kind))
    yield from list_gym_findings(config, gym=KINDS[kind].gym)
    root = Path(str(section.get("nemo_rl_root", "")))
    if not (root / KINDS[kind].script).is_file():
        yield ConfigError(
            f"no {KINDS[kind].script} in {root}; name a checkout of NVIDIA-NeMo/RL", field=f"{SECTION}.nemo_rl_root"
        )
    data = config.get("data") or {}
    stated = [(split, data.get(split)) for split in ("train", "validation")]
    for split, entries in stated:
        for entry in entries if isinstance(entries, list) else [entries]:
            if entry is not None and not isinstance(entry, Mapping):
                yield ConfigError(
                    "this is no data set",
                    field=f"data.{split}",
                    found=shorten_value(str(entry)),
                    allowed="a mapping with dataset_name, or a list of them",
                )
    if not any(True for _ in list_gavel_entries(data)):
        yield ConfigError(f"no entry has dataset_name: {DATASET}", field="data.train")
    grpo = config.get("grpo") or {}
    wanted = [key for key in ("val_period", "val_at_start", "val_at_end") if grpo.get(key)]
    if wanted and not (config.get("data") or {}).get("validation"):
        yield ConfigError(
            f"{grpo[wanted[0]]}, and data.validation names no tasks; NeMo-RL stops at the first validation",
            field=f"grpo.{wanted[0]}",
        )


def _check_data(config: Mapping[str, Any], built: Mapping[str, Built]) -> Iterator[GavelError]:
    verifiers = {name: set[str]() for name in built}
    trained: list[tuple[str, str, Task]] = []
    single = not settle_config(config).weighs
    for key, entry in list_gavel_entries(config.get("data") or {}):
        name = entry.get("env_name", "")
        if name not in (config.get("env") or {}):
            yield ConfigError(
                f"there is no environment {name!r}",
                field=f"{key}.env_name",
                allowed=", ".join(config.get("env") or {}) or "(none)",
            )
            continue
        if missing := [name for name in ("data_path", "env") if not entry.get(name)]:
            yield from (ConfigError("this value is missing", field=f"{key}.{name}") for name in missing)
            continue
        try:
            tasks = load_tasks(entry["data_path"], entry["env"], binding=entry.get("binding"), limit=entry.get("limit"))
        except GavelError as failed:
            yield locate_error(failed, key)
            continue
        if single and entry.get("weight", 1.0) != 1.0:
            yield ConfigError(
                f"{entry['weight']}, and SingleController gives every sample weight 1", field=f"{key}.weight"
            )
        trained += [(key, name, task) for task in tasks if key.startswith("data.train")]
        if name not in built:
            continue
        environment = built[name].assembly.environment
        if environment.name != entry["env"]:
            yield ConfigError(f"{entry['env']}, and env.{name} is {environment.name}", field=f"{key}.env")
            continue
        for task in tasks:
            try:
                environment.parse_target(task.target)
            except TaskError as failed:
                yield locate_error(failed, f"{key}: task {task.task_id}")
                break
            verifiers[name].add(task.verifier)
    shared = find_shared_prompts(trained, make_prompt_key, apart=not single)  # its estimator knows no environment
    yield from (make_shared_prompt_error(*pair) for pair in shared[:_SHOWN])
    if len(shared) > _SHOWN:
        yield ConfigError(
            f"{len(shared) - _SHOWN} more pairs of tasks have one prompt and different targets", field="data.train"
        )
    for name, used in verifiers.items():
        try:
            if used:
                check_verifiers(built[name].assembly.bindings, used, built[name].assembly.environment.info.also_binds)
        except GavelError as failed:
            yield locate_error(failed, f"env.{name}")


def _check_components(config: Mapping[str, Any], built: Mapping[str, Built]) -> Iterator[ConfigError]:
    """GDPO compares the components of a reward; a training of one environment needs two."""
    estimator = (config.get("grpo") or {}).get("adv_estimator") or {}
    if estimator.get("name") != "gdpo" or len(built) != 1:
        return
    (one,) = built.values()
    name = one.config.reward.get("name")
    parts = {env: count for env, count in _COMPONENTS.items() if name in reward_names(env)}
    if any((len(one.assembly.bindings) if count is None else count) < 2 for count in parts.values()):
        yield make_components_error([str(name)])


def _check_turns(config: Mapping[str, Any], built: Mapping[str, Built]) -> list[ConfigError]:
    allowed = int((config.get("grpo") or {}).get("max_rollout_turns") or 1)
    found = []
    for name, one in built.items():
        if one.assembly.environment.info.policy_turns is None:
            found.append(
                ConfigError(
                    "its environment does not say how many replies an episode takes: give it info.policy_turns",
                    field=f"env.{name}",
                )
            )
        needed = count_policy_turns(one.assembly)
        if needed > allowed:
            found.append(
                ConfigError(
                    f"{allowed}, and env.{name} takes up to {needed} replies: its episodes would be cut before they "
                    f"can be graded; set grpo.max_rollout_turns: {needed}",
                    field="grpo.max_rollout_turns",
                )
            )
    if found or not any(count_policy_turns(one.assembly) > 1 for one in built.values()):
        return found
    return [
        ConfigError("false, and its episodes go on after the first reply; set it to true", field=f"{key}.multi_turn")
        for key, entry in list_gavel_entries(config.get("data") or {})
        if entry.get("env_name") in built
        and count_policy_turns(built[entry["env_name"]].assembly) > 1
        and not entry.get("multi_turn")
    ]


def _check_places(config: Mapping[str, Any], built: Mapping[str, Built]) -> Iterator[ConfigError]:
    nodes = int((config.get("cluster") or {}).get("num_nodes") or 1)
    for name, one in built.items():
        for service_name, service in one.assembly.services.items():
            field = f"env.{name}.parts.services.{service_name}"
            for variable in list_unset_variables(service):
                yield ConfigError(f"the variable {variable} is not set", field=field)
            for url in service.base_urls:
                if nodes > 1 and urlsplit(url).hostname in _LOCAL:
                    yield ConfigError(
                        f"{url}, and the actor may land on any of {nodes} nodes; name the judge's host",
                        field=f"{field}.base_url",
                    )
        if one.config.ledger is not None and (problem := _explain_unwritable(Path(one.config.ledger))) is not None:
            yield ConfigError(f"{one.config.ledger}: {problem}", field=f"env.{name}.ledger")
    yield from _check_shared_ledgers(built)


def _explain_unwritable(folder: Path) -> str | None:
    """Say why a folder cannot be written to; makes it where it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as failed:
        return str(failed.strerror)
    return None


def _check_shared_ledgers(built: Mapping[str, Built]) -> Iterator[ConfigError]:
    """Two actors of one environment would cut each other's rows: their files are named by the environment."""
    known: dict[tuple[Path, str], str] = {}
    for name, one in built.items():
        if one.config.ledger is None:
            continue
        own = one.config.name or one.assembly.environment.name
        first = known.setdefault((Path(one.config.ledger).expanduser().resolve(), own), name)
        if first != name:
            yield ConfigError(
                f"env.{first} writes the same files into {one.config.ledger}; give each its own folder, or a name of "
                f"its own (env.{name}.name)",
                field=f"env.{name}.ledger",
            )


def list_unreachable_services(assembly: Assembly | None) -> list[ConfigError]:
    """Return which external services of a composition do not answer, or serve another model; a judge that is none is
    not asked.
    """
    if assembly is None:
        return []
    return asyncio.run(
        _ask_all(
            {
                (url, service.model or ""): (get_config_key(name), url, service)
                for name, service in assembly.services.items()
                for url in service.base_urls
                if service.mode == "external" and not service.is_none
            }
        )
    )


async def _probe_services(built: Mapping[str, Built]) -> list[ConfigError]:
    return await _ask_all(
        {
            (url, service.model or ""): (f"env.{name}.parts.services.{service_name}", url, service)
            for name, one in built.items()
            for service_name, service in one.assembly.services.items()
            for url in service.base_urls
        }
    )


async def _ask_all(asked: Mapping[tuple[str, str], tuple[str, str, Service]]) -> list[ConfigError]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_SECONDS)) as session:
        answers = await asyncio.gather(*(_ask_models(session, *one) for one in asked.values()))
    return [answer for answer in answers if answer is not None]


async def _ask_models(session: aiohttp.ClientSession, field: str, url: str, service: Service) -> ConfigError | None:
    """Ask for the models served; servers without that list are only known to answer."""
    key = next((os.environ[name] for name in service.key_variables if name in os.environ), None)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers |= {name: os.environ.get(variable, "") for name, variable in (service.header_env or {}).items()}
    try:
        async with session.get(f"{url.rstrip('/')}/models", headers=headers) as answer:
            if answer.status in (401, 403):
                return ConfigError(f"{url} refuses the credentials (status {answer.status})", field=field)
            if answer.status != 200:
                return None
            listed = (await answer.json(content_type=None)).get("data") or []
    except (aiohttp.ClientError, TimeoutError, OSError) as failed:
        return ConfigError(f"{url} cannot be reached: {type(failed).__name__} {failed}".rstrip(), field=field)
    except (ValueError, AttributeError):
        return None
    names = [str(item.get("id")) for item in listed if isinstance(item, Mapping)]
    if names and service.model not in names:
        return ConfigError(f"{url} does not serve {service.model}; it serves {', '.join(names[:5])}", field=field)
    return None
