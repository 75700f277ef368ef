"""How far a training is, and what its end means: judged by the steps it reached, not by its exit code alone.

NeMo-RL ends with code 0 for three reasons: its last step, the end of its epochs, and the time until its last checkpoint
(``checkpointing.checkpoint_must_save_by``). Only the first two finish a run.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import orjson

from gavel.launch.training.trainer import SECTION, Planned, read_section
from gavel.launch.training.trainers import TRAINERS
from gavel.models.codec import record

End = Literal["finished", "interrupted", "failed"]
DEFAULT = "grpo"
"""The kind of a config written by hand that names none."""
_CHECKPOINT = re.compile(r"step_([0-9]+)$")


@record
class TrainingProgress:
    """What became of a training: its state, the newest step it reached (None: none), the plan, and why it is not
    finished.
    """

    state: End
    step: int | None
    planned: Planned
    reason: str | None = None


def judge_progress(run: Path, config: Mapping[str, Any], code: int, *, out_of_time: bool = False) -> TrainingProgress:
    """Judge a training whose trainer has ended by itself.

    Args:
        run: the run folder, with its ledger and checkpoints.
        config: what the trainer was given, read: ``nemo_rl.yaml`` or ``trainer.yaml``.
        code: the trainer's exit code.
        out_of_time: the time until the last checkpoint had come; decides where the number of steps is not known
            exactly.
    """
    planned, step = plan_steps(config), read_step(run, config)
    if code != 0:
        return TrainingProgress(
            "failed", step, planned, f"the trainer ended with exit code {code}{_describe_step(step, planned)}"
        )
    if planned.steps == 0:
        reason = (
            "it can make no step: an epoch has fewer prompts than a step takes, and NeMo-RL drops what does "
            "not fill one"
        )
        return TrainingProgress("failed", step, planned, reason)
    missing = planned.steps is not None and (step or 0) < planned.steps
    if missing and (out_of_time or (planned.exact and (step is not None or planned.traced))):
        return TrainingProgress(
            "interrupted",
            step,
            planned,
            f"it ended{_describe_step(step, planned)}; the next start goes on from its last checkpoint",
        )
    return TrainingProgress("finished", step, planned)


def _describe_step(step: int | None, planned: Planned) -> str:
    total = f" of {planned.steps}" if planned.steps is not None else ""
    return f" at step {step or 0}{total}"


def plan_steps(config: Mapping[str, Any]) -> Planned:
    """Return the steps that a trainer's config asks for; of a kind that is not known, nothing is."""
    kind = str(read_section(config, SECTION).get("kind", DEFAULT))
    return TRAINERS[kind].plan_steps(config) if kind in TRAINERS else Planned(None, exact=False)


def read_step(run: Path, config: Mapping[str, Any] | None = None) -> int | None:
    """Return the newest step of a run: the last one in its ledger, which goes back where a start resumed from an older
    checkpoint; without a ledger the newest checkpoint (``checkpointing.checkpoint_dir`` of ``config``). None where
    there is neither."""
    newest = next(iter(deque(read_steps(run), maxlen=1)), None)
    kept = read_section(config or {}, "checkpointing").get("checkpoint_dir") or run / "checkpoints"
    return newest if newest is not None else find_newest_checkpoint(Path(kept))


def read_steps(run: Path) -> Iterator[int]:
    """Yield the numbers of the training steps in a run's ledger, in the order they were done; lines without one are
    left out.
    """
    for row in read_rows(run / "ledger" / "steps.jsonl"):
        step = row.get("step")
        if row.get("split", "train") == "train" and isinstance(step, int):
            yield step


def find_newest_checkpoint(folder: Path) -> int | None:
    """Return the newest step that NeMo-RL has kept whole."""
    found = (_CHECKPOINT.match(path.name) for path in folder.glob("step_*"))
    return max((int(match[1]) for match in found if match), default=None)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a ledger; its writer may be in the middle of one, and a full disk may have left half of
    one.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            with contextlib.suppress(orjson.JSONDecodeError):
                row = orjson.loads(line) if line.endswith(b"\n") else None
                if isinstance(row, dict):
                    yield row
