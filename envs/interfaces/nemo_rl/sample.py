"""What travels in a sample's ``extra_env_info``: the task, who the sample is, what was said, and how the newest reply
ended.

Other processes carry it, some without this package, so it is plain data. NeMo-RL drops what a terminal step returns
here; nothing that must come out of an episode may be put into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gavel.envs.interfaces.nemo_rl.framing import Frame
from gavel.envs.interfaces.nemo_rl.stamps import ENDING, FRAME, HISTORY, ROLLOUT, SPLIT, TASK, TOO_LONG, TURN, UID
from gavel.models.codec import decode, to_plain
from gavel.models.types import Message


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout at one turn. ``task`` is the task's JSON; ``history`` what was said after the opening; ``turn``
    counts from 0; ``uid`` None where no driver stamped it; ``ending`` None where no driver told how the reply ended."""

    task: str
    split: str
    uid: str | None
    rollout: int
    turn: int
    history: tuple[Message, ...]
    frame: Frame | None
    ending: Mapping[str, Any] | None
    too_long: str | None


def make_next_info(info: Mapping[str, Any], said: Sequence[Message]) -> dict[str, Any]:
    """Return the info of the next turn: ``said`` is the reply and what answered it."""
    kept = {key: value for key, value in info.items() if key != ENDING}
    return {**kept, HISTORY: [*info[HISTORY], *(to_plain(message) for message in said)], TURN: info[TURN] + 1}


def read_sample(info: Mapping[str, Any]) -> Sample:
    """Read a sample's info.

    Raises:
        KeyError: it is not one of ours.
    """
    frame = info[FRAME]
    return Sample(
        task=info[TASK],
        split=info[SPLIT],
        uid=info.get(UID),
        rollout=info.get(ROLLOUT, 0),
        turn=info[TURN],
        history=decode(tuple[Message, ...], info[HISTORY]) if info[HISTORY] else (),
        frame=Frame(**frame) if frame is not None else None,
        ending=info.get(ENDING),
        too_long=info[TOO_LONG],
    )
