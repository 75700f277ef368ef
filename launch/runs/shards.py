"""One part of a run that several processes share: shard ``i/n`` plays the tasks whose place in the file leaves ``i -
1`` over n.

All rollouts of a task are in one shard, so that figures over a task's rollouts hold. Places do not depend on how many
tasks there are:
raising ``tasks.limit`` gives each shard its part of what is new.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gavel.envs.tasks import BadRow
from gavel.launch.runs.inputs import PlannedRow
from gavel.models.errors import ConfigError, shorten_value

MOST = 10_000


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard ``index`` (from 1) of ``of``."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def contains(self, place: int) -> bool:
        """Whether the task at this place of its file, from 0, belongs here."""
        return place % self.of == self.index - 1

    def select_rows(self, rows: Sequence[PlannedRow]) -> list[PlannedRow]:
        """Return this shard's part of a plan."""
        return [row for row in rows if self.contains(row.task_index)]

    def select_bad(self, rows: Sequence[BadRow]) -> list[BadRow]:
        """Return this shard's part of the skipped rows, so that each is stored once."""
        return [row for row in rows if self.contains(row.line - 1)]


WHOLE = Shard(1, 1)
"""A run in one piece."""


def read_shard(text: str | None, key: str = "shard") -> Shard:
    """Read ``i/n``; None is the whole.

    Raises:
        ConfigError: it is not ``i/n`` with i from 1 to n.
    """
    if text is None:
        return WHOLE
    found = re.fullmatch(r"\s*([0-9]{1,6})\s*/\s*([0-9]{1,6})\s*", text)
    index, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= index <= of <= MOST:
        raise ConfigError(
            "this is no shard",
            field=key,
            found=shorten_value(text),
            allowed=f"i/n with i from 1 to n, n at most {MOST}: 1/4, 2/4, 3/4, 4/4",
            remedy=f"shards count from 1: {key}={index + 1}/{of}" if found and index == 0 < of else "",
        )
    return Shard(index, of)
