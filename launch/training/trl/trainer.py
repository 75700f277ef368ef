"""TRL on the CPU, as ``gavel train`` sees it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gavel.launch.config.schema import TrainConfig
from gavel.launch.training.command import read_max_steps
from gavel.launch.training.trainer import Planned, Rows, Trainer
from gavel.launch.training.trainer_config import render_plain_config
from gavel.launch.training.trl.preflight import NEEDED, ask_modules, list_findings, list_machine_findings


def _make_command(config: TrainConfig) -> tuple[str, ...]:
    python = config.trainer.python or config.cluster.python or sys.executable
    return (python, "-m", "gavel.launch.training.trl.main", "--config", "{config}")


def _plan_steps(values: Mapping[str, Any]) -> Planned:
    return Planned(read_max_steps(values), exact=True)


def _describe_install(config: TrainConfig) -> Rows:
    missing, version = ask_modules(_make_command(config)[0], NEEDED)
    yield "TRL", version or "none"
    yield "the trainer's interpreter", f"it lacks {missing}" if missing else "it has what the trainer needs"


TRL = Trainer(
    check=list_machine_findings,
    render=render_plain_config,
    make_command=_make_command,
    plan_steps=_plan_steps,
    check_config=lambda training, _: list_findings(training.config, training.assembly),
    describe_install=_describe_install,
    on_cpu=True,
)
