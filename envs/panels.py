"""What panels of judges said, as outcomes keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.judges.panels import PANEL
from gavel.judges.types import Grade, JudgeFailure

PANELS = "panels"
"""The detail of an outcome that holds, by binding, ``combine`` and ``labels`` (all the rubric has), and ``votes``: for
each thing that was asked about, each member's label.
"""
WHOLE = "verdict"
"""What the one thing is called that a rubric without criteria is asked about."""


class PanelVotes:
    """Collects what panels said while one reply is graded; a judge that is no panel leaves nothing."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}

    def add(self, binding: str, said: Grade | JudgeFailure, names: Mapping[str, str] | None = None) -> None:
        """Take what a judge said.

        Args:
            binding: the judge's binding.
            said: its grade or failure.
            names: what the things are called that were asked about, by their number; one that is not here is left
                out. None: there is one.
        """
        panel = said.details.get(PANEL) if isinstance(said, Grade) else said.panel
        if panel is None:
            return
        kept = self._found.setdefault(binding, {**panel, "votes": {}})["votes"]
        for item, votes in panel["votes"].items():
            name = WHOLE if names is None else names.get(item or "1")
            if name is not None:
                kept[name] = {**kept.get(name, {}), **votes}

    def make_details(self) -> dict[str, Any]:
        """Return the detail of an outcome; empty without a panel."""
        return {PANELS: self._found} if self._found else {}


def describe_panel(binding: str, said: Grade | JudgeFailure) -> dict[str, Any]:
    """Return the detail of an outcome that rests on one question."""
    votes = PanelVotes()
    votes.add(binding, said)
    return votes.make_details()
