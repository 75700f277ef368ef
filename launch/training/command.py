"""Any program as a trainer: ``kind: command``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from gavel.launch.config.schema import TrainConfig
from gavel.launch.training.trainer import Planned, Rows, Trainer, read_section
from gavel.launch.training.trainer_config import render_plain_config
from gavel.models.errors import ConfigError


def check_program(config: TrainConfig) -> Iterator[ConfigError]:
    """Yield an error where no program is named, or it is not here."""
    words = config.trainer.command
    if not words:
        yield ConfigError("no command is named", field="trainer.command", remedy="trainer.command=[WORD,…]")
    elif shutil.which(words[0]) is None:
        yield ConfigError("there is no such program", field="trainer.command", found=words[0])


def plan_program(values: Mapping[str, Any]) -> Planned:
    """Return the steps that the options name: a bound, for a program may take its number of steps from anywhere."""
    return Planned(read_max_steps(values), exact=False)


def read_max_steps(values: Mapping[str, Any]) -> int | None:
    """Return ``trainer.max_steps`` of a config of ours, None where it has none."""
    steps = read_section(values, "trainer").get("max_steps")
    return None if steps is None else int(steps)


def _describe_program(config: TrainConfig) -> Rows:
    words = config.trainer.command
    yield "the trainer's program", (shutil.which(words[0]) or f"no {words[0]}") if words else "none is named"


COMMAND = Trainer(
    check=check_program,
    render=render_plain_config,
    make_command=lambda config: config.trainer.command,
    plan_steps=plan_program,
    describe_install=_describe_program,
)
