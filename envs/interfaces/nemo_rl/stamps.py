"""The marks of a sample that travel in its ``extra_env_info``, and how many samples are told apart.

Trainers carry these into interpreters of their own, with PyTorch and little else: this module, ``endings``,
``processor``, ``threads`` and ``masking`` import nothing but the standard library and this package's like.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from gavel.envs.interfaces.nemo_rl.framing import Frame

PREFIX = "gavel_"
"""Our environments' names within NeMo-RL start with it; the built-in ones do not."""
TASK, UID, ENDING, SPLIT, FRAME, HISTORY, TURN, ROLLOUT, TOO_LONG, PREFILLED = (
    f"gavel_{name}"
    for name in ("task", "uid", "ending", "split", "frame", "history", "turn", "rollout", "too_long", "prefilled")
)
VERDICT, RESULT, UNDRAWN = "gavel_verdict", "gavel_result", "gavel_undrawn"
"""The fields of an answer of our NeMo Gym agent, as JSON texts: a sample's verdict, its result, and whether no token of
it was drawn, so that it has one in their place."""


def make_info(task: str, split: str, frame: Frame | None, too_long: str | None) -> dict[str, Any]:
    """Return the info that a dataset's row starts with; ``too_long`` says why the prompt does not fit, if it does
    not.
    """
    plain = asdict(frame) if frame is not None else None
    return {TASK: task, SPLIT: split, FRAME: plain, HISTORY: [], TURN: 0, TOO_LONG: too_long}


def stamp_info(info: Mapping[str, Any], uid: str, rollout: int) -> dict[str, Any]:
    """Return the info of one of several rollouts of a row, told apart from its siblings."""
    return {**info, UID: uid, ROLLOUT: rollout}


def make_gym_row(
    info: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], agent: str, *, prefilled: bool
) -> dict[str, Any]:
    """Return a dataset's info as a row of NeMo Gym's form.

    Args:
        info: of ``make_info``.
        messages: the prompt's, ``role`` and ``content`` each.
        agent: the name of the agent that plays the row.
        prefilled: whether the rendered prompt opens the thinking block.
    """
    agent_ref = {"type": "responses_api_agents", "name": agent}
    params = {"input": [dict(message) for message in messages]}
    return {**info, PREFILLED: prefilled, "responses_create_params": params, "agent_ref": agent_ref}


def with_ending(info: Mapping[str, Any], ending: Mapping[str, Any]) -> dict[str, Any]:
    """Return the info with how the newest reply ended (see ``endings.make_ending``)."""
    return {**info, ENDING: dict(ending)}


def is_ours(info: Any) -> bool:
    """Tell whether a sample's info is one of ours."""
    return isinstance(info, Mapping) and TASK in info


@dataclass(slots=True)
class Samples:
    """Numbers samples: unique over all processes of a run and all its restarts."""

    token: str = field(default_factory=lambda: os.urandom(6).hex())
    numbers: Iterator[int] = field(default_factory=count)

    def stamp_infos(self, infos: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """Return the infos, ours stamped; ``rows`` says which are rollouts of one row."""
        seen: Counter[Any] = Counter()
        found = []
        for info, row in zip(infos, rows, strict=True):
            if is_ours(info):
                info = stamp_info(info, f"{self.token}-{next(self.numbers):09x}", seen[row])
                seen[row] += 1
            found.append(info)
        return found


def list_rows(batch: Any) -> Sequence[Any]:
    """Return what tells a batch's rows apart; repeated rows have one number."""
    return [(name, row) for name, row in zip(batch["task_name"], batch["idx"], strict=True)]
