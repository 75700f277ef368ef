"""Everything that can be found wrong with a trainer's config before an actor is made or a GPU is used, all at once."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from gavel.envs.assembly import Assembly
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
from gavel.envs.types import Task, TaskError
from gavel.judges.bindings import check_verifiers
from gavel.launch.training.nemo_rl.config import KINDS, count_policy_turns
from gavel.launch.training.nemo_rl.wrong_values import find_wrong_values
from gavel.launch.training.trainer import SECTION
from gavel.models.errors import GavelError, shorten_value
from gavel.models.service import Service, get_config_key

PROBE_SECONDS = 5.0
_SHOWN = 3
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


@dataclass(frozen=True, slots=True)
class Built:
    """An environment of the config that could be made."""

    config: ActorConfig
    assembly: Assembly


def list_findings(config: Mapping[str, Any], *, probe: bool = True, places: bool = True) -> list[str]:
    """Return what is wrong with a trainer's config; empty if it can be started.

    Args:
        config: the emitted YAML, read.
        probe: ask each service whether it is there and serves its model.
        places: look at variables, addresses and the ledger, as they are on this machine; makes the ledger's folder.
    """
    if wrong := find_wrong_values(config):
        return wrong
    found: list[str] = []
    built: dict[str, Built] = {}
    for name, raw in (config.get("env") or {}).items():
        if not str(name).startswith(PREFIX):
            continue
        try:
            actor = read_config(raw, name=name)
            built[name] = Built(actor, build_parts(actor)[0])
        except GavelError as failed:
            found.append(str(failed))
    found += _check_modes(config)
    found += _check_data(config, built)
    found += _check_turns(config, built)
    found += _check_places(config, built) if places else []
    if probe and built:
        found += asyncio.run(_probe_services(built))
    return list(dict.fromkeys(found))


def _check_modes(config: Mapping[str, Any]) -> list[str]:
    section = config.get(SECTION) or {}
    kind = section.get("kind", "grpo")
    if kind not in KINDS:
        return [f"{SECTION}.kind: {kind}; allowed: {', '.join(KINDS)}"]
    found = refuse_mode(config, settle_kind(config, kind))
    root = Path(str(section.get("nemo_rl_root", "")))
    if not (root / KINDS[kind].script).is_file():
        found.append(f"{SECTION}.nemo_rl_root: no {KINDS[kind].script} in {root}; name a checkout of NVIDIA-NeMo/RL")
    data = config.get("data") or {}
    stated = [(split, data.get(split)) for split in ("train", "validation")]
    found += [
        f"data.{split}: {shorten_value(str(entry))}: this is no data set; allowed: a mapping with dataset_name, or "
        f"a list of them"
        for split, entries in stated
        for entry in (entries if isinstance(entries, list) else [entries])
        if entry is not None and not isinstance(entry, Mapping)
    ]
    if not any(True for _ in list_gavel_entries(data)):
        found.append(f"data.train: no entry has dataset_name: {DATASET}")
    grpo = config.get("grpo") or {}
    wanted = [key for key in ("val_period", "val_at_start", "val_at_end") if grpo.get(key)]
    if wanted and not (config.get("data") or {}).get("validation"):
        found.append(
            f"grpo.{wanted[0]}: {grpo[wanted[0]]}, and data.validation names no tasks; NeMo-RL stops at the first "
            f"validation"
        )
    return found


def _check_data(config: Mapping[str, Any], built: Mapping[str, Built]) -> list[str]:
    found, verifiers = [], {name: set[str]() for name in built}
    trained: list[tuple[str, str, Task]] = []
    single = (config.get(SECTION) or {}).get("kind") == "single_controller"
    for key, entry in list_gavel_entries(config.get("data") or {}):
        name = entry.get("env_name", "")
        if name not in (config.get("env") or {}):
            found.append(
                f"{key}.env_name: there is no environment {name!r}; allowed: "
                f"{', '.join(config.get('env') or {}) or '(none)'}"
            )
            continue
        if missing := [name for name in ("data_path", "env") if not entry.get(name)]:
            found += [f"{key}.{name}: this value is missing" for name in missing]
            continue
        try:
            tasks = load_tasks(entry["data_path"], entry["env"], binding=entry.get("binding"), limit=entry.get("limit"))
        except GavelError as failed:
            found.append(f"{key}: {failed}")
            continue
        if single and entry.get("weight", 1.0) != 1.0:
            found.append(f"{key}.weight: {entry['weight']}, and SingleController gives every sample weight 1")
        trained += [(key, name, task) for task in tasks if key.startswith("data.train")]
        if name not in built:
            continue
        environment = built[name].assembly.environment
        if environment.name != entry["env"]:
            found.append(f"{key}.env: {entry['env']}, and env.{name} is {environment.name}")
            continue
        for task in tasks:
            try:
                environment.parse_target(task.target)
            except TaskError as failed:
                found.append(f"{key}: task {task.task_id}: {failed}")
                break
            verifiers[name].add(task.verifier)
    shared = find_shared_prompts(trained, make_prompt_key, apart=not single)  # its estimator knows no environment
    found += [str(make_shared_prompt_error(*pair)) for pair in shared[:_SHOWN]]
    if len(shared) > _SHOWN:
        found.append(f"data.train: {len(shared) - _SHOWN} more pairs of tasks have one prompt and different targets")
    for name, used in verifiers.items():
        try:
            if used:
                check_verifiers(built[name].assembly.bindings, used, built[name].assembly.environment.info.also_binds)
        except GavelError as failed:
            found.append(f"env.{name}: {failed}")
    return found


def _check_turns(config: Mapping[str, Any], built: Mapping[str, Built]) -> list[str]:
    allowed = int((config.get("grpo") or {}).get("max_rollout_turns") or 1)
    found = []
    for name, one in built.items():
        if one.assembly.environment.info.policy_turns is None:
            found.append(
                f"env.{name}: its environment does not say how many replies an episode takes: give it info.policy_turns"
            )
        needed = count_policy_turns(one.assembly)
        if needed > allowed:
            found.append(
                f"grpo.max_rollout_turns: {allowed}, and env.{name} takes up to {needed} replies: its episodes "
                f"would be cut before "
                f"they can be graded; set grpo.max_rollout_turns: {needed}"
            )
    if found or not any(count_policy_turns(one.assembly) > 1 for one in built.values()):
        return found
    return [
        f"{key}.multi_turn: false, and its episodes go on after the first reply; set it to true"
        for key, entry in list_gavel_entries(config.get("data") or {})
        if entry.get("env_name") in built
        and count_policy_turns(built[entry["env_name"]].assembly) > 1
        and not entry.get("multi_turn")
    ]


def _check_places(config: Mapping[str, Any], built: Mapping[str, Built]) -> list[str]:
    nodes = int((config.get("cluster") or {}).get("num_nodes") or 1)
    found = []
    for name, one in built.items():
        for service_name, service in one.assembly.services.items():
            field = f"env.{name}.parts.services.{service_name}"
            found += [f"{field}: the variable {variable} is not set" for variable in _list_unset(service)]
            found += [
                f"{field}.base_url: {url}, and the actor may land on any of {nodes} nodes; name the judge's host"
                for url in service.base_urls
                if nodes > 1 and urlsplit(url).hostname in _LOCAL
            ]
        if one.config.ledger is not None and (problem := _explain_unwritable(Path(one.config.ledger))) is not None:
            found.append(f"env.{name}.ledger: {one.config.ledger}: {problem}")
    return found + _check_shared_ledgers(built)


def _explain_unwritable(folder: Path) -> str | None:
    """Say why a folder cannot be written to; makes it where it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as failed:
        return str(failed.strerror)
    return None


def _check_shared_ledgers(built: Mapping[str, Built]) -> list[str]:
    """Two actors of one environment would cut each other's rows: their files are named by the environment."""
    known: dict[tuple[Path, str], str] = {}
    found = []
    for name, one in built.items():
        if one.config.ledger is None:
            continue
        own = one.config.name or one.assembly.environment.name
        first = known.setdefault((Path(one.config.ledger).expanduser().resolve(), own), name)
        if first != name:
            found.append(
                f"env.{name}.ledger: env.{first} writes the same files into {one.config.ledger}; give each its "
                f"own folder, or a name of its own (env.{name}.name)"
            )
    return found


def _list_unset(service: Service) -> list[str]:
    """Return the variables a service needs and does not have; of several for its key, one suffices."""
    keys = service.key_variables
    missing = list(keys[:1]) if not any(name in os.environ for name in keys) else []
    return missing + [name for name in (service.header_env or {}).values() if name not in os.environ]


def list_unreachable_services(assembly: Assembly | None) -> list[str]:
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


async def _probe_services(built: Mapping[str, Built]) -> list[str]:
    return await _ask_all(
        {
            (url, service.model or ""): (f"env.{name}.parts.services.{service_name}", url, service)
            for name, one in built.items()
            for service_name, service in one.assembly.services.items()
            for url in service.base_urls
        }
    )


async def _ask_all(asked: Mapping[tuple[str, str], tuple[str, str, Service]]) -> list[str]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_SECONDS)) as session:
        answers = await asyncio.gather(*(_ask_models(session, *one) for one in asked.values()))
    return [answer for answer in answers if answer is not None]


async def _ask_models(session: aiohttp.ClientSession, field: str, url: str, service: Service) -> str | None:
    """Ask for the models served; servers without that list are only known to answer."""
    key = next((os.environ[name] for name in service.key_variables if name in os.environ), None)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers |= {name: os.environ.get(variable, "") for name, variable in (service.header_env or {}).items()}
    try:
        async with session.get(f"{url.rstrip('/')}/models", headers=headers) as answer:
            if answer.status in (401, 403):
                return f"{field}: {url} refuses the credentials (status {answer.status})"
            if answer.status != 200:
                return None
            listed = (await answer.json(content_type=None)).get("data") or []
    except (aiohttp.ClientError, TimeoutError, OSError) as failed:
        return f"{field}: {url} cannot be reached: {type(failed).__name__} {failed}".rstrip()
    except (ValueError, AttributeError):
        return None
    names = [str(item.get("id")) for item in listed if isinstance(item, Mapping)]
    if names and service.model not in names:
        return f"{field}: {url} does not serve {service.model}; it serves {', '.join(names[:5])}"
    return None
