"""Which GPUs there are, and which server gets which."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from gavel.models.codec import record
from gavel.models.errors import ConfigError
from gavel.models.service import Service
from gavel.models.vllm.arguments import count_tensor_parallel

_QUERY = ("nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits")
_QUERY_TIMEOUT_S = 20.0
_MIB = 1024**2


@record
class Gpu:
    """One device: its name in CUDA_VISIBLE_DEVICES (an index, a UUID or a MIG name) and its bytes of memory; None if
    not known.
    """

    name: str
    memory_bytes: int | None = None


def find_visible_gpus(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs we may use: those of CUDA_VISIBLE_DEVICES if it is set, else all that nvidia-smi lists."""
    listed = _query_gpus()
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(Gpu(name, memory) for name, memory in listed.items())
    names = [name.strip() for name in chosen.split(",") if name.strip() and name.strip() != "-1"]
    return tuple(Gpu(name, listed.get(name, min(listed.values(), default=None))) for name in names)


def _query_gpus() -> dict[str, int]:
    try:
        done = subprocess.run(
            _QUERY, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [line.split(",") for line in done.stdout.splitlines()]
    return {row[0].strip(): int(row[1]) * _MIB for row in rows if len(row) == 2 and row[1].strip().isdigit()}


def check_split(name: str, service: Service) -> None:
    """Refuse a split that does not use exactly the GPUs of a replica.

    Raises:
        ConfigError: ``gpus`` is not ``tensor_parallel_size`` times the engine argument ``pipeline_parallel_size``.
    """
    stages = int((service.engine_args or {}).get("pipeline_parallel_size", 1))
    if service.cpu or service.gpus == count_tensor_parallel(service) * stages:
        return
    raise ConfigError(
        "each replica has to use all of its GPUs",
        field=f"{name}.tensor_parallel_size",
        found=str(service.tensor_parallel_size),
        allowed=f"{service.gpus // stages} (gpus is {service.gpus} for each replica)",
        remedy=f"leave {name}.tensor_parallel_size unset, or use {name}.replicas for more servers",
    )


def assign_gpus(wanted: Mapping[str, Service], visible: Sequence[Gpu]) -> dict[str, tuple[tuple[Gpu, ...], ...]]:
    """Give every replica of every service GPUs of its own, in the order they are listed.

    Args:
        wanted: managed services by name; those for the CPU get none.
        visible: what may be used.

    Returns:
        For each service one tuple of GPUs per replica.

    Raises:
        ConfigError: there are not enough; names what is needed and what is there.
    """
    needs = {name: 0 if service.cpu else service.gpus * service.replicas for name, service in wanted.items()}
    if sum(needs.values()) > len(visible):
        raise ConfigError(
            "there are not enough GPUs",
            field=", ".join(f"{name}.gpus" for name, need in needs.items() if need),
            found=f"{len(visible)} visible",
            allowed=f"at least {sum(needs.values())} ("
            + ", ".join(f"{name}: {need}" for name, need in needs.items() if need)
            + ")",
            remedy="use a smaller or a remote model (judge=smollm2, judge=external), or show more GPUs in "
            "CUDA_VISIBLE_DEVICES",
        )
    free = iter(visible)
    return {
        name: tuple(
            tuple(next(free) for _ in range(0 if service.cpu else service.gpus)) for _ in range(service.replicas)
        )
        for name, service in wanted.items()
    }
