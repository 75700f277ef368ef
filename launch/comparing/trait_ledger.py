"""The samples of a training with their traits, read while its ledgers grow; only the first steps and the newest are
kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from gavel.envs.interfaces.nemo_rl.ledger import KEPT, read_start
from gavel.launch.comparing.ledgers import LedgerSample, make_sample
from gavel.launch.comparing.trait_changes import FIRST, LAST
from gavel.models.errors import InputError

_NEWEST = 4 * LAST
"""Newest steps that are kept: a trainer that begins again may do some of them a second time."""


class TraitLedger:
    """Args:
    folder: of the ledgers.
    clusters: the field whose value tasks share that are alike.
    """

    def __init__(self, folder: Path, clusters: str | None) -> None:
        self._folder, self._clusters = folder, clusters
        self._offsets: dict[Path, int] = {}
        self._steps: dict[int, dict[str, LedgerSample | None]] = {}
        self._step_of: dict[str, int] = {}
        self._waiting: OrderedDict[str, LedgerSample] = OrderedDict()
        self._start = ""

    @property
    def samples(self) -> list[LedgerSample]:
        """The samples of the steps that are kept, in the order of the steps."""
        return [sample for step in sorted(self._steps) for sample in self._steps[step].values() if sample is not None]

    def read_on(self) -> int:
        """Read what was appended; return the newest step, 0 before the first.

        Raises:
            InputError: a line is damaged.
        """
        for line in self._read_lines(self._folder / "steps.jsonl"):
            if line["split"] == "train":
                self._take_step(int(line["step"]), str(line["uid"]), read_start(line))
        for path in sorted(self._folder.glob("*.rows.jsonl")):
            for line in self._read_lines(path):
                self._take_row(line)
        self._drop_middle()
        return max(self._steps, default=0)

    def _take_step(self, step: int, uid: str, start: str) -> None:
        """Count a sample to a step; a new start takes the place of what an earlier one recorded from its step on."""
        if start != self._start:
            self._start = start
            for old in [old for old in self._steps if old >= step]:
                for known in self._steps.pop(old):
                    self._step_of.pop(known, None)
        waiting = self._waiting.pop(uid, None)
        self._steps.setdefault(step, {})[uid] = replace(waiting, step=step) if waiting is not None else None
        self._step_of[uid] = step

    def _take_row(self, row: dict[str, Any]) -> None:
        uid = str(row["uid"])
        step = self._step_of.get(uid)
        sample = make_sample(step or 0, row, self._clusters, traits=True)
        if step is not None:
            self._steps[step][uid] = sample
            return
        self._waiting[uid] = sample
        if len(self._waiting) > KEPT:
            self._waiting.popitem(last=False)

    def _drop_middle(self) -> None:
        for step in sorted(self._steps)[FIRST:-_NEWEST]:
            for uid in self._steps.pop(step):
                self._step_of.pop(uid, None)

    def _read_lines(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield whole lines; the writer may be in the middle of one."""
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    return
                offset = self._offsets.get(path, 0)
                self._offsets[path] = offset + len(line)
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError as failed:
                    raise InputError(
                        "this line of a ledger is damaged", where=f"{path} at byte {offset}", found=str(failed)
                    ) from None
