"""Which GPUs the policy gets and which the judge, before anything is asked of a cluster. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any

from gavel.launch.config.schema import TrainConfig
from gavel.launch.config.training_schema import JudgeJob, Placement, PlacementMode
from gavel.models.codec import record, to_plain
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.service import Service, get_config_key
from gavel.models.vllm import memory
from gavel.models.vllm.arguments import count_tensor_parallel
from gavel.models.vllm.fleet import Group, group_services
from gavel.models.vllm.gpus import check_split
from gavel.models.vllm.resolve import find_local_directory, find_shape

GB = 1e9


@record
class Layout:
    """GPUs of a node are ``trainer_gpus`` for the policy and, with ``same_node``, ``judge_gpus`` behind them;
    ``judge_nodes`` are the judge's own, with ``judge_gpus`` used of each. ``replicas`` per judge node, by service."""

    mode: PlacementMode
    nodes: int
    trainer_gpus: int
    judge_nodes: int
    judge_gpus: int
    replicas: Mapping[str, int]


def list_managed(services: Mapping[str, Service]) -> dict[str, Service]:
    """Return the services that we serve ourselves."""
    return {name: service for name, service in services.items() if service.mode == "managed"}


def choose_mode(config: TrainConfig, served: Mapping[str, Service]) -> PlacementMode:
    """Return where the judge runs: as configured; else on the same node if there is one to be served."""
    return config.placement.mode or ("same_node" if served else "external")


def compute_layout(config: TrainConfig, services: Mapping[str, Service]) -> Layout:
    """Work out a layout; it may be an impossible one, see ``list_findings``."""
    served, cluster = list_managed(services), config.cluster
    mode = choose_mode(config, served)
    own = config.placement.nodes if mode in ("het", "shared") else 0
    each = max(own, 1)
    replicas = {name: -(-service.replicas // each) for name, service in served.items()}
    used = sum(one.service.gpus * replicas[one.names[0]] for one in group_services(served) if not one.service.cpu)
    trainer = cluster.gpus_per_node - (used if mode == "same_node" else 0)
    return Layout(mode, cluster.nodes, trainer, own, used, replicas)


def describe_layout(
    config: TrainConfig, layout: Layout, services: Mapping[str, Service], *, judged: bool = True, on_cpu: bool = False
) -> list[tuple[str, str]]:
    """Return the arithmetic as pairs of what and how much; of a judge elsewhere that nothing asks (``judged`` false)
    there is none.
    """
    gpus = f"{layout.nodes} x {layout.trainer_gpus} GPUs = {layout.nodes * layout.trainer_gpus}"
    lines = [("policy", f"{'the CPU' if on_cpu else gpus} ({config.trainer.model})")]
    for one in group_services(list_managed(services)):
        service = one.service
        where = (
            f"{layout.judge_nodes} x {config.cluster.make_judge_cluster().gpus_per_node} GPUs"
            if layout.judge_nodes
            else "the policy's node"
        )
        cards = (
            "the CPU" if service.cpu else f"{service.gpus} GPUs each, tensor parallel {count_tensor_parallel(service)}"
        )
        lines.append((one.name, f"{service.replicas} replicas of {service.model} on {where}: {cards}"))
        found = _estimate_memory(config, one)
        if found is not None:
            lines.append(("", memory.describe_memory(one.name, service, found)))
    for name, service in services.items():
        if service.mode == "external" and (judged or not service.is_none):
            lines.append((get_config_key(name), f"{service.model} at {', '.join(service.base_urls)}"))
    return [*lines, ("placement", layout.mode)] if judged or list_managed(services) else lines


def list_findings(config: TrainConfig, layout: Layout, services: Mapping[str, Service]) -> Iterator[ConfigError]:
    """Yield what cannot work, with the numbers."""
    yield from _check_mode(config, layout, services)
    yield from _judge_findings(config, layout, services)
    yield from _list_unread(config, layout)


def _list_unread(config: TrainConfig, layout: Layout) -> Iterator[ConfigError]:
    """Name the keys that were set and that a run with this layout never reads."""
    values: Any = to_plain(config)
    slurm, own, shared = config.cluster.kind == "slurm", layout.judge_nodes > 0, layout.mode == "shared"
    apart, sharing = (
        ("a judge on nodes of its own", "placement.mode=het or shared"),
        ("a shared judge", "placement.mode=shared"),
    )
    for key, unset, is_read, (reader, chosen) in (
        *((f"cluster.judge.{name}", None, own and slurm, apart) for name in to_plain(JudgeJob())),
        ("placement.nodes", Placement().nodes, own, apart),
        ("placement.folder", None, shared, sharing),
        ("placement.lease", Placement().lease, shared, sharing),
        ("cluster.hf_home", None, slurm, ("a job on Slurm", "cluster=slurm")),
    ):
        value = reduce(getitem, key.split("."), values)
        if value != unset and not is_read:
            yield ConfigError(
                f"this key has no effect here: only {reader} reads it",
                field=key,
                found=shorten_value(value),
                remedy=f"remove it, or choose {chosen}",
            )


def _check_mode(config: TrainConfig, layout: Layout, services: Mapping[str, Service]) -> Iterator[ConfigError]:
    served, cluster = list_managed(services), config.cluster
    if layout.mode == "external" and served:
        yield ConfigError(
            "this judge is to be served, but nowhere",
            field="placement.mode",
            found="external",
            allowed="same_node, het, shared",
            remedy=f"choose one, or name a server: {get_config_key(next(iter(served)))}.mode=external and its base_url",
        )
    if layout.mode in ("same_node", "het", "shared") and not served:
        yield ConfigError(
            "there is no judge to be placed",
            field="placement.mode",
            found=layout.mode,
            allowed="external",
            remedy="choose a managed judge, such as judge=qwen3_32b",
        )
    if layout.mode == "het" and cluster.kind != "slurm":
        yield ConfigError(
            "only Slurm has parts of a job",
            field="placement.mode",
            found="het",
            remedy="cluster=slurm, or another mode",
        )
    if layout.mode == "shared" and not config.placement.folder:
        yield ConfigError(
            "a shared judge publishes itself in a folder",
            field="placement.folder",
            found="null",
            remedy="name a folder that every node sees; a sweep (-m) makes one",
        )
    if layout.mode == "shared" and cluster.kind == "local" and layout.judge_gpus:
        yield ConfigError(
            f"a shared judge on this machine would take {layout.judge_gpus} GPUs that the policy takes too",
            field="placement.mode",
            found="shared",
            allowed="same_node, external",
            remedy="serve it with `CUDA_VISIBLE_DEVICES=… gavel judge`, show the others to the training, and set "
            "judge=external",
        )
    yield from _check_gpus(config, layout)


def _check_gpus(config: TrainConfig, layout: Layout) -> Iterator[ConfigError]:
    cluster = config.cluster
    if layout.mode == "same_node" and cluster.nodes > 1 and layout.judge_gpus:
        yield ConfigError(
            f"the judge's {layout.judge_gpus} GPUs would be missing on each of {cluster.nodes} nodes: NeMo-RL wants "
            f"equal nodes",
            field="placement.mode",
            found="same_node",
            allowed="het, shared, external",
            remedy="placement.mode=het",
        )
    if layout.mode == "same_node" and layout.trainer_gpus < 1 and layout.judge_gpus:
        yield ConfigError(
            f"the node has {cluster.gpus_per_node} GPUs, the judge takes {layout.judge_gpus}: none is left for "
            f"the policy",
            field="cluster.gpus_per_node",
            found=str(cluster.gpus_per_node),
            allowed=f"at least {layout.judge_gpus + 1}",
            remedy="more GPUs, a judge on the CPU or elsewhere, or placement.mode=het",
        )


def _judge_findings(config: TrainConfig, layout: Layout, services: Mapping[str, Service]) -> Iterator[ConfigError]:
    per_node = config.cluster.make_judge_cluster().gpus_per_node if layout.judge_nodes else config.cluster.gpus_per_node
    for one in group_services(list_managed(services)):
        key, service = one.keys[0], one.service
        try:
            check_split(key, service)
            found = _estimate_memory(config, one)
            if found is not None:
                memory.check_memory(key, service, found)
        except ConfigError as failed:
            yield failed
        if service.cpu:
            continue
        if per_node and per_node % count_tensor_parallel(service):
            yield ConfigError(
                f"tensor parallel {count_tensor_parallel(service)} does not divide the node's {per_node} GPUs",
                field=f"{key}.gpus",
                found=str(service.gpus),
                allowed=", ".join(str(n) for n in range(1, per_node + 1) if per_node % n == 0),
            )
        if layout.judge_nodes and service.replicas % layout.judge_nodes:
            yield ConfigError(
                f"{service.replicas} replicas cannot be shared out evenly over {layout.judge_nodes} nodes",
                field=f"{key}.replicas",
                found=str(service.replicas),
                allowed=f"a multiple of {layout.judge_nodes}",
            )
    if layout.judge_nodes and layout.judge_gpus > per_node:
        yield ConfigError(
            f"a judge node needs {layout.judge_gpus} GPUs and has {per_node}",
            field="placement.nodes",
            found=str(layout.judge_nodes),
            allowed=f"at least {-(-layout.judge_gpus * layout.judge_nodes // max(per_node, 1))}",
            remedy="more nodes, or fewer replicas",
        )


def _estimate_memory(config: TrainConfig, one: Group) -> memory.Memory | None:
    try:
        shape = find_shape(one.service, find_local_directory(one.keys[0], one.service), {})
    except ConfigError:
        return None  # the directory is only on the cluster
    if shape is None or one.service.cpu:
        return None
    return memory.estimate_memory(one.service, shape, config.cluster.gpu_memory_gb * GB)
