"""The table of trainers. Another that needs code is a module with its ``Trainer``, and one entry here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gavel.launch.training.command import COMMAND
from gavel.launch.training.nemo_rl.trainer import NEMO_RL
from gavel.launch.training.trainer import Trainer
from gavel.launch.training.trl.trainer import TRL
from gavel.models.errors import ConfigError, find_nearest

TRAINERS: Mapping[str, Trainer] = MappingProxyType(
    {
        **NEMO_RL,  # its scripts and ways to roll out
        "trl": TRL,
        "command": COMMAND,
    }
)
"""By ``trainer.kind``."""


def find_trainer(kind: str) -> Trainer:
    """Return the trainer of a kind.

    Raises:
        ConfigError: there is none; names the kinds.
    """
    if (found := TRAINERS.get(kind)) is not None:
        return found
    near = find_nearest(kind, TRAINERS)
    raise ConfigError(
        "there is no such trainer",
        field="trainer.kind",
        found=kind,
        allowed=", ".join(TRAINERS),
        remedy=f"did you mean `{near[0]}`?" if near else "",
    )
