"""What a job needs to know of its run, as ``launch.json``: written once by ``gavel train``, read by every process of
the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar

import orjson

from gavel.judges.probing.canary import CanaryRules
from gavel.launch.config.training_schema import PlacementMode, WatchRules
from gavel.models.codec import dump, load, record
from gavel.models.errors import InputError
from gavel.models.files import write_whole
from gavel.models.service import Service

PLAN, JUDGE_PLAN = "launch.json", "judge.json"


@record
class JudgePlan:
    """``judge.json`` of a judge's folder: the services served there; ``replicas`` of each per node; ``digest`` over
    what makes them.

    ``lease``: seconds it waits for runs that have not begun; None: it serves one job, and ends when the file ``done``
    appears.
    """

    SCHEMA: ClassVar[str] = "gavel.judge_plan/1"

    services: Mapping[str, Service]
    replicas: Mapping[str, int]
    nodes: int
    digest: str
    lease: float | None
    cache: str | None = None
    mirror: str | None = None
    offline: bool = False


@record
class RunPlan:
    """``launch.json``: ``config`` is the trainer's config in the run folder, in which the addresses of services under
    ``judge`` are placeholders until the judge is there. ``command`` may hold ``{config}`` and ``{run}``.
    ``judge_folder`` is absolute.

    ``min_replicas`` by service: with fewer the training is stopped. Seconds: ``ready_timeout`` for the judge, ``grace``
    for a trainer that was told to end, ``reserve`` between the last checkpoint and the end of the allocation.

    ``requeues``: the job of a shared judge's run may begin again by itself, so that a judge that is lost is waited for.

    ``qualified``: the judges had to show a certificate, so that a wrong golden control stops the start. ``baselines``
    by binding: the labels of its controls in that certificate. ``judged`` false: no task can ask a judge, so none is
    asked before the start.
    """

    SCHEMA: ClassVar[str] = "gavel.train/1"

    gavel: str
    created: float
    digest: str
    mode: PlacementMode
    config: str
    command: tuple[str, ...]
    cwd: str
    judge: JudgePlan | None
    judge_folder: str | None
    trainer_gpus: int
    judge_gpus: int
    min_replicas: Mapping[str, int]
    ready_timeout: float
    grace: float
    reserve: float
    unqualified: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    qualified: bool = True
    judged: bool = True
    canary: CanaryRules | None = None
    watch: WatchRules | None = None
    baselines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    requeues: bool = False


def write_plan(path: Path, plan: RunPlan | JudgePlan) -> None:
    """Write a plan whole."""
    write_whole(path, orjson.dumps(orjson.loads(dump(plan)), option=orjson.OPT_INDENT_2) + b"\n")


def read_plan(run: Path) -> RunPlan:
    """Read the plan of a run.

    Raises:
        InputError: there is none, or it is damaged.
    """
    return load(RunPlan, _read_json(run / PLAN), where=str(run / PLAN), error=InputError)


def read_judge_plan(folder: Path) -> JudgePlan:
    """Read the plan of a judge.

    Raises:
        InputError: there is none, or it is damaged.
    """
    return load(JudgePlan, _read_json(folder / JUDGE_PLAN), where=str(folder / JUDGE_PLAN), error=InputError)


def _read_json(path: Path) -> dict[str, object]:
    try:
        value = orjson.loads(path.read_bytes())
    except OSError as failed:
        raise InputError(
            "there is no training run here",
            where=str(path),
            found=failed.strerror or "",
            remedy="name a folder of `gavel train`",
        ) from None
    except orjson.JSONDecodeError as failed:
        raise InputError("this file is damaged", where=str(path), found=str(failed)) from None
    return value if isinstance(value, dict) else {}
