"""From a managed service to the command line and the environment of its vLLM server; the same code for the GPU and the
CPU build.

Flags and variables are those of vLLM 0.10 to 0.32 (``vllm/engine/arg_utils.py``, ``vllm/envs.py``).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gavel.models.codec import compute_digest
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.service import Service

ENTRY_POINT = "vllm.entrypoints.openai.api_server"
LOOPBACK = "127.0.0.1"
GIB = 1024**3

_OWN_KEYS = {
    "model": "model",
    "served_model_name": "model",
    "port": "port",
    "revision": "revision",
    "tokenizer_revision": "revision",
    "tensor_parallel_size": "tensor_parallel_size",
    "max_model_len": "max_context_length",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_memory_bytes": "kv_cache_gb",
}
"""Engine arguments that have a key of their own in a service."""

_QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# The level too: what a server says of its start is read from its log, and importing TRL sets ERROR for every child of
# ours.
_LOGGING = {"PYTHONUNBUFFERED": "1", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_LOGGING_COLOR": "0", "NO_COLOR": "1"}


def check_engine_args(name: str, service: Service) -> None:
    """Refuse engine arguments that a service has a key for, and values that are no flag.

    Raises:
        ConfigError: names the key and the one to use instead.
    """
    for key, value in (service.engine_args or {}).items():
        own = _OWN_KEYS.get(key.replace("-", "_"))
        if own:
            raise ConfigError(
                "this engine argument has a key of its own",
                field=f"{name}.engine_args.{key}",
                found=shorten_value(value),
                remedy=f"set {name}.{own} instead",
            )
        if not key.replace("-", "_").replace(".", "_").isidentifier():
            raise ConfigError(
                "this is not the name of an engine argument",
                field=f"{name}.engine_args.{key}",
                allowed="a vLLM flag without its dashes, e.g. max_num_seqs",
            )


def find_interpreter(service: Service) -> str:
    """Return the Python that has vLLM: the service's, or the one we run in."""
    return service.python or sys.executable


def build_command(service: Service, model: str, port: int) -> tuple[str, ...]:
    """Return the command of one server.

    Args:
        service: a managed service.
        model: what vLLM loads: a directory, or the name of a repository on the Hugging Face hub.
        port: the TCP port it listens on.
    """
    return (find_interpreter(service), "-m", ENTRY_POINT, *_format_flags(_build_arguments(service, model, port)))


def _build_arguments(service: Service, model: str, port: int) -> dict[str, Any]:
    """Return every engine argument by name, ours first, then the service's own, which may replace our defaults."""
    ours: dict[str, Any] = {
        "model": model,
        "served_model_name": service.model,
        "host": LOOPBACK,
        "port": port,
        "revision": service.revision,
        "tokenizer_revision": service.revision,
        "dtype": service.dtype,
        "quantization": service.quantization,
        "max_model_len": service.max_context_length,
        "seed": 0,
        "disable_uvicorn_access_log": True,
    }
    if service.cpu:
        # Compiling takes a minute and more on few cores and gains little there.
        ours |= {"enforce_eager": True}
    else:
        ours |= {
            "tensor_parallel_size": count_tensor_parallel(service),
            "kv_cache_memory_bytes": _count_kv_bytes(service),
        }
    given = {key.replace("-", "_"): value for key, value in (service.engine_args or {}).items()}
    return ours | given


def count_tensor_parallel(service: Service) -> int:
    """Return over how many GPUs each layer is split: as configured, else all GPUs of one replica."""
    return service.tensor_parallel_size or service.gpus


def _count_kv_bytes(service: Service) -> int | None:
    return None if service.kv_cache_gb is None else round(service.kv_cache_gb * GIB)


def _format_flags(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Write arguments as flags: None is left out, True and False are switches, mappings JSON, lists several values."""
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif isinstance(value, Mapping):
            yield from (f"--{flag}", json.dumps(dict(value), sort_keys=True))
        elif isinstance(value, (list, tuple)):
            yield from (f"--{flag}", *map(str, value))
        else:
            yield from (f"--{flag}", str(value))


def build_environment(
    service: Service,
    *,
    local: bool,
    gpus: tuple[str, ...] = (),
    threads: int | None = None,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """Return the whole environment of one server.

    Args:
        service: a managed service.
        local: whether the model is a directory; the hub is then never asked.
        gpus: the devices this server may use, as CUDA_VISIBLE_DEVICES names them; for the CPU build none are visible.
        threads: OpenMP threads of a CPU server that shares the machine with others; None lets vLLM bind to all cores.
        inherited: the environment we run in.
    """
    made = {**inherited, **_QUIET, **_LOGGING, "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    if local:
        made |= _OFFLINE
    if service.cpu:
        made |= _make_cpu_environment(service, threads, inherited)
    return made


def _make_cpu_environment(service: Service, threads: int | None, inherited: Mapping[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    if service.kv_cache_gb is not None:
        made["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, math.ceil(service.kv_cache_gb)))  # vLLM reads whole GiB only
    if threads is not None and "VLLM_CPU_OMP_THREADS_BIND" not in inherited:
        # By default every server binds to the same cores, the first ones.
        made |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}
    return made


def launch_key(service: Service) -> str:
    """Return ``sha256:<hex>`` of what makes a server: services with equal keys share one."""
    return compute_digest(
        [
            service.model,
            service.revision,
            service.cpu,
            service.gpus,
            service.tensor_parallel_size,
            service.replicas,
            service.dtype,
            service.quantization,
            service.kv_cache_gb,
            service.port,
            find_interpreter(service),
            service.max_context_length,
            service.engine_args,
        ]
    )
