"""Started by Gym from a search directory: its config is read, and ``gavel serve`` takes this process's place.

Source: NeMo Gym 0.7.0 starts ``app.py`` of a server's directory with the whole config as YAML in
``NEMO_GYM_CONFIG_DICT`` and the name of the instance in ``NEMO_GYM_CONFIG_PATH``, and waits until ``GET /`` is answered
on the instance's host and port.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gavel.models.calls.transport import is_loopback_address
from gavel.models.errors import ConfigError, InputError, shorten_value

CONFIG, INSTANCE = "NEMO_GYM_CONFIG_DICT", "NEMO_GYM_CONFIG_PATH"
_BAD_CONFIG = 2
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become ``gavel serve`` with what Gym's config says; exits with 2 where it says too little."""
    try:
        words = serve_words(os.environ)
    except InputError as failed:
        sys.stderr.write(f"gavel: {failed}\n")
        raise SystemExit(_BAD_CONFIG) from None
    end_with_parent()
    os.execv(sys.executable, [sys.executable, "-m", "gavel.launch.cli", "serve", *words])


def end_with_parent() -> None:
    """Have the system end this process when the shell dies that Gym starts it in: Gym ends that shell only, and not
    what it runs.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # an exec keeps it


def serve_words(variables: Mapping[str, str]) -> list[str]:
    """Return the words behind ``gavel serve``: the environment by the directory's name, host and port, the judge if the
    block names a model server, then the block's ``gavel``.

    Args:
        variables: the environment's, with the two of Gym's.

    Raises:
        ConfigError: a variable is missing, or the block lacks what is needed.
    """
    config, instance = read_started(variables)
    kind, block = read_block(config, instance, "resources_servers")
    host, port = read_address(block, instance)
    own = block.get("gavel", [])
    if not isinstance(own, list) or not all(isinstance(word, str) for word in own):
        raise ConfigError(
            "these are no words of a command line",
            field=f"{instance}.gavel",
            found=shorten_value(own),
            allowed="a list of texts",
        )
    logs = Path(tempfile.gettempdir()) / f"gavel-{instance}-{os.getpid()}"
    # Gym's servers trust its network and its clients send no key: whoever gives this one another host opens it in the
    # same way.
    opened = [] if is_loopback_address(host) else ["http.without_key=true"]
    env = f"env={kind.removeprefix('gavel_')}"
    return [
        env,
        f"http.host={host}",
        f"http.port={port}",
        f"run.dir={logs}",
        *opened,
        *_make_judge_overrides(config, block, instance),
        *own,
    ]


def read_started(variables: Mapping[str, str]) -> tuple[Mapping[str, Any], str]:
    """Return Gym's whole config and the name of the instance that it has started here.

    Raises:
        ConfigError: a variable is missing.
    """
    for name in (CONFIG, INSTANCE):
        if not variables.get(name):
            raise ConfigError(
                "this variable is not set", field=name, remedy="let Gym start this: gym env start --search-dir …"
            )
    return read_mapping(yaml.safe_load(variables[CONFIG]), CONFIG), variables[INSTANCE]


def read_address(block: Mapping[str, Any], instance: str) -> tuple[str, int]:
    """Return the host and the port of an instance.

    Raises:
        ConfigError: it has none.
    """
    host, port = block.get("host"), block.get("port")
    if not isinstance(host, str) or not isinstance(port, int):
        raise ConfigError("a server has a host and a port", field=f"{instance}.host", found=shorten_value([host, port]))
    return host, port


def _make_judge_overrides(config: Mapping[str, Any], block: Mapping[str, Any], instance: str) -> list[str]:
    reference = block.get("judge_model_server")
    if reference is None:
        return []
    name = str(read_mapping(reference, f"{instance}.judge_model_server").get("name"))
    _, server = read_block(config, name, "responses_api_models")
    model = block.get("judge_model") or server.get("openai_model") or server.get("model")
    if not isinstance(model, str):
        raise ConfigError(
            "the judge's model is not named", field=f"{instance}.judge_model", allowed="the name its replies bear"
        )
    return [
        "judge=external",
        f"judge.base_url=http://{server.get('host')}:{server.get('port')}/v1",
        f"judge.model={model}",
    ]


def read_block(config: Mapping[str, Any], instance: str, group: str) -> tuple[str, Mapping[str, Any]]:
    """Return the name of an instance's implementation, which is its directory's, and its block."""
    outer = read_mapping(config.get(instance), instance)
    inner = read_mapping(outer.get(group), f"{instance}.{group}")
    if len(inner) != 1:
        raise ConfigError(
            "an instance has one implementation", field=f"{instance}.{group}", found=shorten_value(sorted(inner))
        )
    kind = next(iter(inner))
    return kind, read_mapping(inner[kind], f"{instance}.{group}.{kind}")


def read_mapping(value: Any, field: str) -> Mapping[str, Any]:
    """Return a value of Gym's config that must be a mapping; raises ``ConfigError`` naming the field."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            "this is missing from Gym's config", field=field, found=shorten_value(value), allowed="a mapping"
        )
    return value
