"""The managed services of one config as servers: shared where their launch is the same, planned whole before any is
started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gavel.models.codec import record
from gavel.models.service import Service, get_config_key
from gavel.models.vllm import embedded, memory
from gavel.models.vllm.arguments import check_engine_args, find_interpreter, launch_key
from gavel.models.vllm.gpus import Gpu, assign_gpus, check_split, find_visible_gpus
from gavel.models.vllm.ports import pick_port
from gavel.models.vllm.resolve import count_cores, find_engine_version, find_local_directory, find_shape
from gavel.models.vllm.server import ManagedServer, ServerPlan


@record
class Group:
    """Services that share servers: their ``names``, the keys at which the config has them, and the first one's
    settings.
    """

    names: tuple[str, ...]
    keys: tuple[str, ...]
    service: Service

    @property
    def name(self) -> str:
        """The keys joined, for messages and files."""
        return "+".join(self.keys)


@record
class Assets:
    """Where embedded models are kept and looked for; see ``embedded.prepare_embedded``."""

    cache: Path
    mirror: Path | None = None
    offline: bool = False


def group_services(services: Mapping[str, Service], key: Callable[[str], str] = get_config_key) -> list[Group]:
    """Put managed services with equal launches together, in the order of their first names; ``key`` tells a service's
    config key.
    """
    names: dict[str, list[str]] = {}
    for name, service in services.items():
        names.setdefault(launch_key(service), []).append(name)
    return [Group(tuple(members), tuple(map(key, members)), services[members[0]]) for members in names.values()]


async def plan_servers(
    groups: Sequence[Group],
    *,
    assets: Assets,
    log_dir: Path,
    progress: Callable[[str], None],
    environment: Mapping[str, str],
) -> dict[str, list[ServerPlan]]:
    """Work out every server: everything that can be refused is refused here, and embedded models are prepared.

    Args:
        groups: from ``group_services``.
        assets: for embedded models.
        log_dir: where a conversion's output goes.
        progress: told each step, one line each.
        environment: the variables we run with.

    Returns:
        By group name, one plan per replica.

    Raises:
        ConfigError: names the key that cannot work on this machine.
        AssetError, EmbeddedError: an embedded model cannot be had.
    """
    for each in groups:
        check_engine_args(each.keys[0], each.service)
        check_split(each.keys[0], each.service)
        find_local_directory(each.keys[0], each.service)
        embedded.find_embedded(str(each.service.model))
    versions = await asyncio.gather(*(find_engine_version(each.keys[0], each.service) for each in groups))
    gpus = assign_gpus({each.keys[0]: each.service for each in groups}, _find_gpus(groups, environment))
    ports = _choose_ports(groups)
    plans: dict[str, list[ServerPlan]] = {}
    for each, version in zip(groups, versions, strict=True):
        directory = await _find_directory(each, assets, log_dir, progress)
        _check_memory(each, directory, gpus[each.keys[0]], environment, progress)
        progress(f"{each.name}: starting {each.service.model} with {version}")
        plans[each.name] = _make_plans(
            each, directory, gpus[each.keys[0]], ports[each.name], _count_threads(groups), version
        )
    return plans


def _find_gpus(groups: Sequence[Group], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    return () if all(each.service.cpu for each in groups) else find_visible_gpus(environment)


def _count_threads(groups: Sequence[Group]) -> int | None:
    servers = sum(each.service.replicas for each in groups if each.service.cpu)
    return None if servers <= 1 else max(1, count_cores() // servers)


def _choose_ports(groups: Sequence[Group]) -> dict[str, list[int]]:
    taken: set[int] = set()
    given: dict[str, list[int]] = {}
    for each in groups:
        for index in range(each.service.replicas):
            wanted = each.service.port and each.service.port + index
            taken.add(port := pick_port(each.keys[0], wanted, taken=taken))
            given.setdefault(each.name, []).append(port)
    return given


async def _find_directory(each: Group, assets: Assets, log_dir: Path, progress: Callable[[str], None]) -> Path | None:
    model = embedded.find_embedded(str(each.service.model))
    if model is None:
        return find_local_directory(each.keys[0], each.service)
    return await embedded.prepare_embedded(
        model,
        cache=assets.cache,
        mirror=assets.mirror,
        offline=assets.offline,
        python=find_interpreter(each.service),
        log=log_dir / f"{model.name}-conversion.log",
        progress=progress,
    )


def _check_memory(
    each: Group,
    directory: Path | None,
    replicas: Sequence[Sequence[Gpu]],
    environment: Mapping[str, str],
    progress: Callable[[str], None],
) -> None:
    cards = [gpu.memory_bytes for gpus in replicas for gpu in gpus]
    card = min((size for size in cards if size is not None), default=None)
    shape = find_shape(each.service, directory, environment)
    if shape is None or (card is None and each.service.kv_cache_gb is None):
        return
    found = memory.estimate_memory(each.service, shape, card or 0.0)
    memory.check_memory(each.keys[0], each.service, found)
    progress(memory.describe_memory(each.name, each.service, found))


def _make_plans(
    each: Group,
    directory: Path | None,
    gpus: Sequence[Sequence[Gpu]],
    ports: Sequence[int],
    threads: int | None,
    engine: str,
) -> list[ServerPlan]:
    several = each.service.replicas > 1
    return [
        ServerPlan(
            name=f"{each.name}-{index}" if several else each.name,
            service=each.service,
            model=str(directory or each.service.model),
            local=directory is not None,
            port=port,
            gpus=tuple(gpu.name for gpu in chosen),
            threads=threads,
            engine=engine,
        )
        for index, (chosen, port) in enumerate(zip(gpus, ports, strict=True))
    ]


async def start_servers(
    plans: Mapping[str, Sequence[ServerPlan]], *, log_dir: Path, progress: Callable[[str], None]
) -> dict[str, list[ManagedServer]]:
    """Start every planned server at the same time; return them by group once all are ready.

    Raises:
        ServerError: the first one that failed; all others have been ended by then.
    """
    servers = {
        name: [ManagedServer(each, log=log_dir / f"{each.name}.log", progress=progress) for each in replicas]
        for name, replicas in plans.items()
    }
    everyone = [server for replicas in servers.values() for server in replicas]
    starts = [asyncio.create_task(server.start()) for server in everyone]
    try:
        await asyncio.gather(*starts)
    except BaseException:
        for task in starts:
            task.cancel()
        await asyncio.gather(*starts, return_exceptions=True)
        await stop_servers(everyone)
        raise
    return servers


async def stop_servers(servers: Sequence[ManagedServer]) -> None:
    """End every server, all at the same time."""
    await asyncio.gather(*(server.stop() for server in servers))
