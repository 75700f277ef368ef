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
from gavel.models.codec import decode, to_plain
from gavel.models.types import Message

TASK = "gavel_task"
UID = "gavel_uid"
ENDING = "gavel_ending"
_SPLIT, _FRAME, _HISTORY, _TURN, _ROLLOUT, _TOO_LONG = (
    f"gavel_{name}" for name in ("split", "frame", "history", "turn", "rollout", "too_long")
)  # fmt: skip


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


def make_info(task: str, split: str, frame: Frame | None, too_long: str | None) -> dict[str, Any]:
    """Return the info that a dataset's row starts with; ``too_long`` says why the prompt does not fit, if it does
    not.
    """
    return {TASK: task, _SPLIT: split, _FRAME: to_plain(frame), _HISTORY: [], _TURN: 0, _TOO_LONG: too_long}


def stamp_info(info: Mapping[str, Any], uid: str, rollout: int) -> dict[str, Any]:
    """Return the info of one of several rollouts of a row, told apart from its siblings."""
    return {**info, UID: uid, _ROLLOUT: rollout}


def with_ending(info: Mapping[str, Any], ending: Mapping[str, Any]) -> dict[str, Any]:
    """Return the info with how the newest reply ended (see ``endings.make_ending``)."""
    return {**info, ENDING: dict(ending)}


def make_next_info(info: Mapping[str, Any], said: Sequence[Message]) -> dict[str, Any]:
    """Return the info of the next turn: ``said`` is the reply and what answered it."""
    kept = {key: value for key, value in info.items() if key != ENDING}
    return {**kept, _HISTORY: [*info[_HISTORY], *(to_plain(message) for message in said)], _TURN: info[_TURN] + 1}


def read_sample(info: Mapping[str, Any]) -> Sample:
    """Read a sample's info.

    Raises:
        KeyError: it is not one of ours.
    """
    frame = info[_FRAME]
    return Sample(
        task=info[TASK],
        split=info[_SPLIT],
        uid=info.get(UID),
        rollout=info.get(_ROLLOUT, 0),
        turn=info[_TURN],
        history=decode(tuple[Message, ...], info[_HISTORY]) if info[_HISTORY] else (),
        frame=Frame(**frame) if frame is not None else None,
        ending=info.get(ENDING),
        too_long=info[_TOO_LONG],
    )


def is_ours(info: Any) -> bool:
    """Tell whether a sample's info is one of ours."""
    return isinstance(info, Mapping) and TASK in info
