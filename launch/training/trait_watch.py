"""The replies of a training run, watched while it runs: what changed beyond noise and is paid for by its reward.

What was found stands in ``traits.jsonl`` of the run folder, a line each time a trait moves a way that it had not moved
before, so that a start that goes on tells nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from gavel.launch.comparing.ledgers import LEDGER
from gavel.launch.comparing.trait_changes import FILE, TraitChange, find_trait_changes, read_trait_changes
from gavel.launch.comparing.trait_ledger import TraitLedger
from gavel.launch.config.training_schema import WatchRules
from gavel.models.codec import dump
from gavel.models.errors import InputError
from gavel.models.files import JsonLines, PersistenceError

POLL_S = 1.0
"""Seconds between two looks at the ledger."""


class TraitWatch:
    """Looks at the replies of a run each time another ``rules.every`` steps are done.

    Args:
        run: the run folder.
        rules: how often, and which traits end the run.
        clusters: the field that tasks are alike by, None for none.
        say: told every change once.
    """

    def __init__(self, run: Path, rules: WatchRules, clusters: str | None, say: Callable[[str], None]) -> None:
        self._run, self._rules, self._say = run, rules, say
        self._ledger = TraitLedger(run / LEDGER, clusters)
        self._told = {_name_way(change) for change in read_trait_changes(run)}
        self._done = 0

    async def watch_traits(self) -> str:
        """Look on until a trait has changed that ends the run; return why."""
        while True:
            await asyncio.sleep(POLL_S)
            reason = await asyncio.to_thread(self.look)
            if reason is not None:
                return reason

    def look(self) -> str | None:
        """Read on and compare; return why the run must end, None if it need not.

        A ledger that is damaged is told once and not looked at again: the trainer will find it itself.
        """
        try:
            step = self._ledger.read_on()
        except InputError as failed:
            if (str(failed), 0.0) not in self._told:
                self._told.add((str(failed), 0.0))
                self._say(f"watch: {failed}")
            return None
        if step // self._rules.every <= self._done:
            return None
        self._done = step // self._rules.every
        found = [change for change in find_trait_changes(self._ledger.samples) if change.beyond]
        for change in found:
            self._tell(change)
        stopping = [change.describe() for change in found if change.trait in self._rules.stop]
        return f"the replies became what the reward pays for: {'; '.join(stopping)}" if stopping else None

    def _tell(self, change: TraitChange) -> None:
        if _name_way(change) in self._told:
            return
        self._told.add(_name_way(change))
        self._say(f"WATCH: {change.describe()}")
        file = JsonLines(self._run / FILE)
        try:
            file.append(dump(change))
        except PersistenceError as failed:
            self._say(f"watch: this change is not kept: {failed}")
        finally:
            file.close()


def _name_way(change: TraitChange) -> tuple[str, float]:
    return change.trait, 1.0 if change.difference.value > 0 else -1.0
