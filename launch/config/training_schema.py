"""The config of ``gavel train`` below the verb: the trainer, where its judge runs, the machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from gavel.envs.traits import TRAITS
from gavel.judges.types import Judging, RubricConfig
from gavel.models.codec import FieldError, record, to_plain

PlacementMode = Literal["external", "same_node", "het", "shared"]


@record
class TrainerOptions:
    """What is trained and how. ``kind`` is one of the table ``gavel.launch.training.trainers``: a script of NeMo-RL,
    ``trl`` (a small GRPO training on the CPU), or ``command``, whose words may hold ``{config}`` and ``{run}``.

    ``recipe`` is a YAML of the checkout to start from, named below its ``examples/configs`` (None: its exemplar for
    GRPO); the keys here are laid over it. ``python`` is the interpreter that has the trainer (None: ours).
    ``overrides`` are further keys of NeMo-RL, checked against the exemplar of the checkout unless they begin with
    ``+``; a ``command`` gets them as they are, and ``trl`` has three of its own
    (``gavel.envs.interfaces.trl.config.Extras``). Lengths in tokens, ``step_deadline`` in seconds.
    """

    kind: str = "grpo"
    nemo_rl_root: str | None = None
    recipe: str | None = None
    python: str | None = None
    command: tuple[str, ...] = ()
    model: str | None = None
    async_rollouts: bool = False
    prompts_per_step: int = 32
    generations_per_prompt: int = 16
    max_steps: int = 1000
    max_total_tokens: int = 4096
    max_new_tokens: int = 2048
    learning_rate: float = 5e-6
    val_period: int = 10
    step_deadline: float = 900.0
    check_workers: int = 0
    overrides: Mapping[str, Any] | None = None


@record
class WatchRules:
    """``every`` so many steps the replies of a training are measured (``gavel.envs.traits``); a change beyond noise
    that the reward pays for is told, and ends the run where its trait is among ``stop``.
    """

    every: int = 1
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.every < 1:
            raise FieldError("every", self.every, "at least 1")
        if unknown := [name for name in self.stop if name not in TRAITS]:
            raise FieldError("stop", unknown, f"some of {', '.join(TRAITS)}")


@record
class TrainedOptions:
    """One of several environments of a training: ``env`` and ``reward`` with their options, what it binds, its task
    files, and the ``weight`` of its samples in the loss beside the others'.
    """

    env: Mapping[str, Any]
    reward: Mapping[str, Any]
    rubrics: Mapping[str, RubricConfig]
    judging: Judging
    tasks: str | None = None
    limit: int | None = None
    validation: str | None = None
    validation_limit: int | None = None
    weight: float = 1.0


@record
class Placement:
    """Where managed judges run. ``mode`` None: ``same_node`` for a managed judge (in a sweep ``shared``), else
    ``external``.

    ``nodes`` of the judge's own (``het``, ``shared``). ``folder``: where a shared judge publishes itself, seen by every
    node; None lets a sweep make one. Seconds: ``ready_timeout`` until the judge is there, ``lease`` for which a shared
    judge waits for runs that have not begun.
    """

    mode: PlacementMode | None = None
    nodes: int = 1
    folder: str | None = None
    ready_timeout: float = 1800.0
    lease: float = 86400.0


@record
class JudgeJob:
    """What Slurm is asked for a judge on nodes of its own: the whole job with ``shared``, its part of the job with
    ``het``, where
    ``time`` is the training's. None takes what the training asks for; ``gpus`` are those of a node, ``signal_seconds``
    as for a training: so long before its limit a judge that is still needed begins anew.
    """

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    time: str | None = None
    gpus: int | None = None
    cpus_per_task: int | None = None
    memory: str | None = None
    exclusive: bool | None = None
    directives: tuple[str, ...] | None = None
    signal_seconds: int | None = None


@record
class ClusterConfig:
    """The machines. ``nodes`` and ``gpus_per_node`` are those of the training part; with ``same_node`` the judge's are
    among them.

    ``python`` runs gavel in a job (None: the one that submits); ``setup`` are lines of bash before anything else
    (modules, a venv); ``directives`` further options of sbatch, without ``#SBATCH``; ``hf_home`` is where every node
    finds models of the Hugging Face Hub (None: as the environment has it). ``signal_seconds`` before the time limit the
    job is told to end; ``setup_seconds`` is what NeMo-RL takes until its own clock starts.
    """

    kind: Literal["local", "slurm"] = "local"
    nodes: int = 1
    gpus_per_node: int = 1
    gpu_memory_gb: float = 80.0
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    time: str | None = None
    cpus_per_task: int | None = None
    memory: str | None = None
    exclusive: bool = False
    comment: str | None = None
    container: str | None = None
    mounts: tuple[str, ...] = ()
    python: str | None = None
    setup: tuple[str, ...] = ()
    directives: tuple[str, ...] = ()
    hf_home: str | None = None
    requeue: bool = True
    signal_seconds: int = 120
    setup_seconds: int = 900
    judge: JudgeJob = JudgeJob()

    def make_judge_cluster(self) -> ClusterConfig:
        """Return the machines of a judge on nodes of its own: what ``judge`` names, else what the training asks for."""
        own, wanted = self.judge, to_plain(self.judge)
        named = {key: value for key, value in wanted.items() if value is not None and key not in ("gpus", "directives")}
        gpus = self.gpus_per_node if own.gpus is None else own.gpus
        return replace(
            self, **named, gpus_per_node=gpus, directives=self.directives if own.directives is None else own.directives
        )
