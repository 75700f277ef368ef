"""What must hold of each stored row, whoever reads it: where it stands, that it stands once, its task, its reward.

It shows accidents and careless edits. It is no signature: who can write the folder can write digests, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gavel.envs.types import Outcome, Result, RewardPolicy
from gavel.launch.runs.files import Tell
from gavel.launch.runs.journal import RowKey
from gavel.models.errors import GavelError, RecordError, make_visible

_CLOSE = 1e-9
_REMEDY = "put the file back as it was; `gavel verify RUN` lists all of them"


Fault = tuple[str, str, str]
"""Field, what is found, what is right."""


def find_reward_faults(
    outcome: Outcome, value: float, components: Mapping[str, float], reward: RewardPolicy
) -> Iterator[Fault]:
    """Yield (field, found, right) for each number of a stored reward that is not what the policy gives the outcome."""
    try:
        right = reward.reward(outcome)
    except GavelError as failed:
        yield "reward", f"{value:g}", f"none, the policy refuses: {str(failed).splitlines()[0]}"
        return
    stored = {"reward.value": value, **{f"reward.components.{name}": number for name, number in components.items()}}
    made = {
        "reward.value": right.value,
        **{f"reward.components.{name}": number for name, number in right.components.items()},
    }
    for name in {**made, **stored}:
        found, wanted = stored.get(name), made.get(name)
        if found is None or wanted is None or not math.isclose(found, wanted, rel_tol=_CLOSE, abs_tol=_CLOSE):
            yield name, "none" if found is None else f"{found:g}", "none" if wanted is None else f"{wanted:g}"


@dataclass(slots=True)
class RowChecks:
    """Looks at the rows of one file in turn; ``reward`` and ``planned`` are looked at where they are given."""

    name: str
    reward: RewardPolicy | None
    planned: Mapping[RowKey, str] | None
    tell: Tell
    _seen: set[tuple[RowKey, int]] = field(default_factory=set)

    def check_row(self, result: Result, where: str) -> None:
        """Tell what is wrong with a row."""
        for name, found, right in self._iter_faults(result):
            self.tell(make_fault(result, where, name, found, right))

    def _iter_faults(self, result: Result) -> Iterator[Fault]:
        graded, key = self.name == "results.jsonl", (result.task_id, result.rollout_index)
        if (result.status == "graded") != graded:
            yield "status", result.status, "graded" if graded else "any but graded, whose rows stand in results.jsonl"
        place = (key, 0 if graded else result.attempt)
        if place in self._seen and result.task_digest:
            yield (
                "task_id",
                "a row that stands here twice",
                "one line for each row" if graded else "one line for each attempt",
            )
        self._seen.add(place)
        if self.planned is not None and result.task_digest:
            planned = self.planned.get(key)
            if planned is None:
                yield "task_id", "a row that was never planned", "a row of inputs.jsonl"
            elif planned != result.task_digest:
                yield "task_digest", result.task_digest, f"{planned}, of inputs.jsonl"
        if self.reward is not None and result.reward is not None:
            yield from find_reward_faults(result.outcome, result.reward.value, result.reward.components, self.reward)


def describe_fault(fault: RecordError) -> str:
    """Return what is not as it was written in one line: where, which row and field, what is found and what is right."""
    right = f", right is {fault.allowed}" if fault.allowed else ""
    about = (
        f"{fault.field}: found {fault.found or 'none'}{right}" if fault.field else fault.found or "it cannot be read"
    )
    return make_visible(f"{fault.where}: {fault.problem}: {about}")


def make_fault(result: Result, where: str, name: str, found: str, right: str) -> RecordError:
    """Return what is wrong with a row as an error that names the row."""
    return RecordError(
        f"{result.task_id} (rollout {result.rollout_index}) is not as it was written",
        where=where,
        field=name,
        found=found,
        allowed=right,
        remedy=_REMEDY,
    )
