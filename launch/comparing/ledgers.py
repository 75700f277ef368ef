"""The samples of a training run, read from its ledgers: which step used them, and what they came to.

A run that was ended and started again may do steps a second time; what it recorded of them before does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from gavel.envs.interfaces.nemo_rl.ledger import read_start
from gavel.envs.traits import measure_traits
from gavel.models.errors import InputError

LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class LedgerSample:
    """One sample that a step used: ``task`` is (task_id, task_digest), the id behind its environment's
    name in a training of several; ``rollout`` tells the rollouts of one task in
    one step apart.

    ``reward`` None: it was not graded, ``failure`` says of what kind, and ``label``, ``components`` and ``checks`` are
    empty. ``checks`` is the share of its checks that passed, None where the environment makes none. ``cluster`` is what
    its task shares with others that are alike, empty where the task stands for itself. ``traits`` are those of its
    replies (``gavel.envs.traits``), empty where they were not asked for, or nothing was said.
    """

    step: int
    task: tuple[str, str]
    rollout: int
    reward: float | None
    label: str = ""
    components: Mapping[str, float] | None = None
    checks: float | None = None
    failure: str | None = None
    cluster: str = ""
    traits: tuple[float, ...] = ()


def read_samples(
    run: Path, split: str = "train", clusters: str | None = None, *, traits: bool = False
) -> tuple[LedgerSample, ...]:
    """Return the samples of a training run in the order of its steps; a sample without a row was cut off, and is
    ungraded.

    Args:
        run: the run folder.
        split: ``train`` or ``validation``.
        clusters: the field whose value tasks share that are alike (``EnvironmentInfo.clusters``).
        traits: measure what the replies are like; this reads every word of them.

    Raises:
        InputError: a line of a ledger cannot be read.
    """
    folder = run / LEDGER
    steps = _read_steps(folder / "steps.jsonl", split)
    paths = sorted(folder.glob("*.rows.jsonl"))
    made = {
        uid: make_sample(steps[uid], row, clusters, traits=traits, several=len(paths) > 1)
        for path in paths
        for row in _read_rows(path)
        if (uid := row["uid"]) in steps
    }
    cut = LedgerSample(0, ("", ""), 0, None, failure="gavel:episode_cut")
    return tuple(
        made.get(uid) or replace(cut, step=step) for uid, step in sorted(steps.items(), key=lambda item: item[1])
    )


def _read_steps(path: Path, split: str) -> dict[str, int]:
    """Return the step of each uid. A new start of the trainer takes the place of what an earlier one recorded from that
    step on."""
    found: dict[str, int] = {}
    start = ""
    for row in _read_rows(path):
        if row["split"] != split:
            continue
        uid, step = str(row["uid"]), int(row["step"])
        if (name := read_start(row)) != start:
            start = name
            found = {known: at for known, at in found.items() if at < step}
        found[uid] = step
    return found


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield whole lines; the writer may be in the middle of one."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as failed:
                raise InputError(
                    "this line of a ledger is damaged", where=f"{path}:{number}", found=str(failed)
                ) from None


def make_sample(
    step: int, row: Mapping[str, Any], clusters: str | None, *, traits: bool = False, several: bool = False
) -> LedgerSample:
    """Return the sample of a line of a ledger's rows; where a training is in ``several`` environments, the same task is
    another one in each: its reward is another.
    """
    verdict, result = row["verdict"], row["result"]
    name = f"{verdict['env']}: {result['task_id']}" if several else str(result["task_id"])
    task = (name, str(result["task_digest"]))
    failure = verdict["failure"]
    if failure is not None:
        return LedgerSample(step, task, int(result["rollout_index"]), None, failure=str(failure["kind"]))
    return LedgerSample(
        step,
        task,
        int(result["rollout_index"]),
        float(verdict["reward"]),
        str(verdict["label"]),
        dict(verdict["components"]),
        _compute_passed(result["outcome"]["checks"]),
        cluster=_find_cluster(result, clusters),
        traits=measure_row(result) if traits else (),
    )


def measure_row(result: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the traits of what the policy said in a stored result; empty where it said nothing."""
    messages = result["transcript"]["messages"]
    said = [str(message["content"]) for message in messages if message["reply"] is not None]
    asked = [str(message["content"]) for message in messages if message["reply"] is None]
    return measure_traits("\n\n".join(said), "\n\n".join(asked)) if said else ()


def _find_cluster(result: Mapping[str, Any], field: str | None) -> str:
    if field is None:
        return ""
    known = (result.get("metadata") or {}).get(field, (result["outcome"].get("details") or {}).get(field))
    return "" if known is None else str(known)


def _compute_passed(checks: Any) -> float | None:
    known = [float(check["score"]) for check in checks if check["passed"] is not None]
    return sum(known) / len(known) if known else None
