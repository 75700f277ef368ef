"""The arithmetic of a launch: samples a step, steps an epoch, GPUs, calls of the judge; and what does not add up.

Read off the config that NeMo-RL is given (``data/``, ``algorithms/grpo.py``, ``models/policy/lm_policy.py`` of
NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909 say what is divided by what). Pure; task files are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gavel.launch.training.nemo_rl.config import settle_config
from gavel.launch.training.nemo_rl.steps import count_prompts_per_batch, count_rows, plan_steps
from gavel.launch.training.nemo_rl.wrong_values import find_wrong_values
from gavel.models.codec import record
from gavel.models.errors import ConfigError
from gavel.models.service import Service

CALL_SECONDS = 2.0
"""What a judge's call is taken to last where a number of seconds is stated; a planning figure, not a measurement."""
UNBOUNDED = 1_000_000
"""NeMo-RL's own ``max_num_steps`` where the epochs alone are meant to bound a training."""


@record
class Gpus:
    """How a cluster is divided: ``policy`` and ``generation`` GPUs (the same ones where ``shared``); ``ranks``:
    data-parallel ranks of the policy, 0 where its model parallelism does not fit its GPUs; ``per_rank``: GPUs of
    one."""

    policy: int
    generation: int
    shared: bool
    ranks: int
    per_rank: int


def divide_gpus(config: Mapping[str, Any]) -> Gpus:
    """Return how a trainer's config divides its cluster."""
    cluster, policy = config.get("cluster") or {}, config.get("policy") or {}
    nodes, each = int(cluster.get("num_nodes") or 1), int(cluster.get("gpus_per_node") or 0)
    colocated = (policy.get("generation") or {}).get("colocated") or {}
    shared = bool(colocated.get("enabled", True))
    generation = nodes * each
    if not shared:
        resources = colocated.get("resources") or {}
        generation = int(resources.get("gpus_per_node") or (each if nodes > 1 else 0)) * int(
            resources.get("num_nodes") or 1
        )
    taken = (
        0
        if shared
        else generation
        if nodes == 1
        else int((colocated.get("resources") or {}).get("num_nodes") or 1) * each
    )
    trained = nodes * each - taken
    per_rank = _count_model_parallel(policy)
    ranks = trained // per_rank if trained > 0 and trained % per_rank == 0 else 0
    return Gpus(trained, generation, shared, ranks, per_rank)


def _count_model_parallel(policy: Mapping[str, Any]) -> int:
    """Return the GPUs that hold one copy of the policy."""
    megatron, tensors = policy.get("megatron_cfg") or {}, policy.get("dtensor_cfg") or {}
    names = (
        ("tensor_model_parallel_size", "pipeline_model_parallel_size")
        if megatron.get("enabled")
        else ("tensor_parallel_size",)
    )
    chosen, product = megatron if megatron.get("enabled") else tensors, 1
    for name in (*names, "context_parallel_size"):
        product *= int(chosen.get(name) or 1)
    return product


def find_contradictions(config: Mapping[str, Any]) -> list[ConfigError]:
    """Return what does not add up in a trainer's config, each with its numbers and a remedy; nothing where it has wrong
    values.
    """
    if find_wrong_values(config) or not isinstance(config.get("grpo"), Mapping):
        return []
    return [*_check_steps(config), *_check_batches(config), *_check_placement(config), *_check_budgets(config)]


def _check_steps(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    grpo, planned = config["grpo"], plan_steps(config)
    per_batch, rows = count_prompts_per_batch(grpo), count_rows(config)
    needed = count_asynchronous_prompts(config)
    if rows is not None and needed is not None and rows < needed:
        left = rows // per_batch - (needed // per_batch - int(grpo["max_num_steps"]))
        least = f"trainer.max_steps={left}, or " if left > 0 else ""
        yield ConfigError(
            f"{grpo['max_num_steps']} asynchronous steps of {per_batch} prompts draw up to {needed} prompts in one "
            f"pass over the tasks, steps ahead included, and there are {rows} tasks: where they end before the last "
            "step, NeMo-RL waits for ever or fails, and it reads no max_num_epochs",
            field="grpo.max_num_steps",
            remedy=f"{least}at least {needed} tasks, and more for each restart",
        )
        return
    if rows is not None and rows < per_batch:
        yield ConfigError(
            f"{per_batch}, and there are {rows} tasks: NeMo-RL drops what does not fill a step, so that the training "
            "would make 0 steps and end well",
            field="grpo.num_prompts_per_step",
            remedy=f"trainer.prompts_per_step of at most {rows}, or more tasks",
        )
    bound = int(grpo.get("max_num_steps", UNBOUNDED))
    if "max_num_epochs" in grpo and planned.steps and planned.per_epoch and planned.steps < bound < UNBOUNDED:
        epochs = -(-bound // planned.per_epoch)
        yield ConfigError(
            f"{planned.epochs}, and an epoch of {rows} tasks is {planned.per_epoch} steps of {per_batch} prompts: the "
            f"training would end after {planned.steps} of {bound} steps",
            field="grpo.max_num_epochs",
            remedy=f"trainer.overrides.grpo.max_num_epochs={epochs}, or trainer.max_steps={planned.steps}",
        )


def count_asynchronous_prompts(config: Mapping[str, Any]) -> int | None:
    """Return the prompts that an asynchronous training may draw from its one pass over the tasks; None for another.

    ``async_utils/trajectory_collector.py``: each step takes a batch, and so does each step ahead; what is rolled out
    at the end and what a restart leaves unfinished is drawn, too.
    """
    if not settle_config(config).overlapping:
        return None
    grpo = config["grpo"]
    age = int((grpo.get("async_grpo") or {}).get("max_trajectory_age_steps") or 1)
    return (int(grpo.get("max_num_steps", UNBOUNDED)) + age + 2) * count_prompts_per_batch(grpo)


def _check_batches(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    grpo, policy, gpus = config["grpo"], config.get("policy") or {}, divide_gpus(config)
    samples = count_samples_per_step(config)
    if gpus.policy > 0 and not gpus.ranks:
        yield ConfigError(
            f"one copy takes {gpus.per_rank} GPUs (tensor x pipeline x context parallel), and {gpus.policy} GPUs are "
            "no multiple of it",
            field="policy",
            remedy="another cluster.nodes or cluster.gpus_per_node, or parallel sizes that divide them",
        )
        return
    if samples is None or not gpus.ranks:
        return
    batch = int(policy.get("train_global_batch_size") or samples)
    if samples % batch:
        yield ConfigError(
            f"{batch}, and a step has {grpo.get('num_prompts_per_step')} x {grpo.get('num_generations_per_prompt')} = "
            f"{samples} samples, which is no multiple of it",
            field="policy.train_global_batch_size",
        )
    if batch % gpus.ranks:
        yield ConfigError(
            f"{batch} samples do not divide over {gpus.ranks} data-parallel ranks ({gpus.policy} GPUs, {gpus.per_rank} "
            "for a copy of the policy)",
            field="policy.train_global_batch_size",
            remedy=f"trainer.prompts_per_step x trainer.generations_per_prompt as a multiple of {gpus.ranks}",
        )
    elif not any((policy.get(name) or {}).get("enabled") for name in ("dynamic_batching", "sequence_packing")):
        micro = int(policy.get("train_micro_batch_size") or 1)
        if batch // gpus.ranks % micro:
            yield ConfigError(
                f"{micro}, and each of {gpus.ranks} ranks has {batch // gpus.ranks} samples, no multiple of it",
                field="policy.train_micro_batch_size",
                remedy="trainer.overrides.policy.train_micro_batch_size=1, or another number of samples",
            )


def _check_placement(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    cluster, gpus = config.get("cluster") or {}, divide_gpus(config)
    if gpus.shared:
        return
    nodes, each = int(cluster.get("num_nodes") or 1), int(cluster.get("gpus_per_node") or 0)
    key, total = "policy.generation.colocated.resources", nodes * each
    if gpus.generation < 1 or gpus.policy < 1:
        yield ConfigError(
            f"{gpus.generation} GPUs for generation leave {gpus.policy} of {total} for the policy; both need some",
            field=key,
            remedy=f"trainer.overrides.{key}.gpus_per_node=… and .num_nodes=…, or more GPUs",
        )
        return
    resources = ((config["policy"]["generation"]).get("colocated") or {}).get("resources") or {}
    given = int(resources.get("gpus_per_node") or each)
    if nodes > 1 and given < each:
        yield ConfigError(
            f"{given} of the {each} GPUs of {resources.get('num_nodes') or 1} node for generation; the others of that "
            f"node would be idle, and {gpus.policy} GPUs train",
            field=f"{key}.gpus_per_node",
            remedy=f"trainer.overrides.{key}.gpus_per_node={each}",
        )
    elif nodes == 1 and total > 2 and gpus.generation * 8 < total:
        yield ConfigError(
            f"{given} of {total} GPUs for generation, which the policy's {gpus.policy} would wait for",
            field=f"{key}.gpus_per_node",
        )


def _check_budgets(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    if settle_config(config).keeps_steps:
        return
    failure = ((config.get("async_rl") or {}).get("rollout_failure")) or {}
    for name, lost in (
        ("max_consecutive_dropped_prompts", "whose judge did not answer"),
        ("max_skipped_prompts", "that can never be graded"),
    ):
        if name in failure and not failure[name]:
            yield ConfigError(
                f"0: the first prompt {lost} within its attempts ends the run; with 2 % of samples lost that is a "
                "matter of some steps",
                field=f"async_rl.rollout_failure.{name}",
                remedy=f"trainer.overrides.async_rl.rollout_failure.{name}=16",
            )


def count_samples_per_step(config: Mapping[str, Any]) -> int | None:
    """Return the samples that a step trains on; None where the config does not say."""
    grpo = config.get("grpo") or {}
    prompts, generations = grpo.get("num_prompts_per_step"), grpo.get("num_generations_per_prompt")
    return int(prompts) * int(generations) if prompts and generations else None


def describe_arithmetic(
    config: Mapping[str, Any], services: Mapping[str, Service], *, judged: bool = True
) -> list[tuple[str, str]]:
    """Return the arithmetic as pairs of what and how much.

    Args:
        config: what NeMo-RL is given.
        services: those that grading calls.
        judged: whether any task asks a judge.
    """
    samples = count_samples_per_step(config) if not find_wrong_values(config) else None
    if samples is None:
        return []
    grpo, planned, gpus = config["grpo"], plan_steps(config), divide_gpus(config)
    lines = [
        (
            "a step",
            f"{grpo['num_prompts_per_step']} prompts x {grpo['num_generations_per_prompt']} replies = "
            f"{samples} samples",
        )
    ]
    if (needed := count_asynchronous_prompts(config)) is not None:
        lines.append(("prompts", f"up to {needed} of {count_rows(config)} tasks, drawn once"))
    if planned.per_epoch is not None:
        lines.append(
            ("an epoch", f"{count_rows(config)} tasks = {planned.per_epoch} steps; at most {planned.epochs} epochs")
        )
    lines.append(
        ("steps", f"{'' if planned.exact else 'at most '}{planned.steps} of {grpo.get('max_num_steps', UNBOUNDED)}")
    )
    ranks = (
        f"{gpus.ranks} ranks of {gpus.per_rank} GPUs, {samples // gpus.ranks} samples each"
        if gpus.ranks
        else "no whole rank"
    )
    where = "the same GPUs" if gpus.shared else f"{gpus.generation} GPUs of its own"
    lines += [("policy", f"{gpus.policy} GPUs: {ranks}"), ("generation", where)]
    if judged:
        lines += [("judge", _describe_calls(config, samples, name, service)) for name, service in services.items()]
    return lines


def _describe_calls(config: Mapping[str, Any], samples: int, name: str, service: Service) -> str:
    """Say how long a step's calls take: one a reply, as many at once as the service allows, at its limit a minute where
    it has one.
    """
    calls = samples * int((config.get("grpo") or {}).get("max_rollout_turns") or 1)
    rate = service.max_in_flight / CALL_SECONDS
    how = f"{service.max_in_flight} at once, {CALL_SECONDS:g} s each"
    if service.rpm is not None and service.rpm / 60 < rate:
        rate, how = service.rpm / 60, f"{service.rpm} a minute"
    return f"{name}: {calls} calls a step at one a reply, about {calls / rate:.0f} s ({how})"
