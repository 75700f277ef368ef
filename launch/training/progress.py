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

from gavel.envs.interfaces.nemo_rl.modes import settle_kind
from gavel.envs.interfaces.nemo_rl.prompts import list_gavel_entries
from gavel.envs.interfaces.nemo_rl.tasks import load_tasks
from gavel.launch.training.nemo_rl.wrong_values import find_wrong_values
from gavel.models.codec import record
from gavel.models.errors import GavelError

End = Literal["finished", "interrupted", "failed"]
_CHECKPOINT = re.compile(r"step_([0-9]+)$")


@record
class Planned:
    """The steps a training takes. ``steps``: at most so many, None where its config does not say. ``exact``: it also
    takes no fewer.
    ``per_epoch``: steps of one pass over the tasks, ``epochs`` the passes; None where they do not bound it or are not
    known."""

    steps: int | None
    exact: bool
    per_epoch: int | None = None
    epochs: int | None = None


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
    if missing and (out_of_time or (planned.exact and (step is not None or _has_steps(config)))):
        return TrainingProgress(
            "interrupted",
            step,
            planned,
            f"it ended{_describe_step(step, planned)}; the next start goes on from its last checkpoint",
        )
    return TrainingProgress("finished", step, planned)


def _read_kind(config: Mapping[str, Any]) -> str:
    return settle_kind(config, str(_read_section(config, "gavel").get("kind", "grpo")))


def _read_section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def _has_steps(config: Mapping[str, Any]) -> bool:
    """Whether a training of this kind leaves its steps behind: SingleController has no ledger of steps, only
    checkpoints.
    """
    return _read_kind(config) != "single_controller" or bool(_read_section(config, "checkpointing").get("enabled"))


def _describe_step(step: int | None, planned: Planned) -> str:
    total = f" of {planned.steps}" if planned.steps is not None else ""
    return f" at step {step or 0}{total}"


def plan_steps(config: Mapping[str, Any]) -> Planned:
    """Return the steps that a trainer's config asks for.

    The number is exact where neither dynamic sampling nor an early stop by a validation metric can end a training
    before it. A config with values that cannot be read, which the preflight refuses, has none.
    """
    kind = _read_kind(config)
    if kind in ("trl", "command"):
        steps = _read_section(config, "trainer").get("max_steps")
        # A program of the user's own may take its number of steps from anywhere.
        return Planned(int(steps) if steps is not None else None, exact=kind == "trl")
    if find_wrong_values(config):
        return Planned(None, exact=False)
    grpo, data = _read_section(config, "grpo"), _read_section(config, "data")
    bound = int(grpo.get("max_num_steps", 1_000_000))
    exact = not grpo.get("use_dynamic_sampling") and grpo.get("stop_at_validation_metric") is None
    epochs = grpo.get("max_num_epochs", 1)
    if kind == "grpo_async":
        return Planned(bound, exact)  # it reads no epochs, and fails where its one pass over the tasks ends too soon
    if data.get("use_multiple_dataloader") or epochs is None:
        return Planned(bound, exact)  # the loaders begin again without end
    rows = count_rows(config)
    if rows is None:
        return Planned(bound, exact=False)
    per_epoch = rows // count_prompts_per_batch(grpo)
    most = per_epoch * int(epochs)
    # SingleController skips prompts that fail, so that its epochs may hold fewer steps.
    exact = exact and (kind == "grpo" or bound < most)
    return Planned(min(bound, most), exact, per_epoch, int(epochs))


def count_prompts_per_batch(grpo: Mapping[str, Any]) -> int:
    """Return the prompts of one batch of the loader; dynamic sampling draws more than a step needs."""
    prompts = int(grpo.get("num_prompts_per_step", 32))
    return max(
        int(prompts * float(grpo.get("batch_multiplier", 1))) if grpo.get("use_dynamic_sampling") else prompts, 1
    )


def count_rows(config: Mapping[str, Any]) -> int | None:
    """Return the rows of ``data.train``; None where a data set is not one of ours or cannot be read."""
    data = _read_section(config, "data")
    stated = data.get("train")
    entries = [entry for key, entry in list_gavel_entries(data) if key.startswith("data.train")]
    if not entries or len(entries) != (len(stated) if isinstance(stated, list) else 1):
        return None
    try:
        return sum(
            len(load_tasks(one["data_path"], one["env"], binding=one.get("binding"), limit=one.get("limit")))
            for one in entries
        )
    except (GavelError, KeyError):
        return None  # a finding of the preflight


def read_step(run: Path, config: Mapping[str, Any] | None = None) -> int | None:
    """Return the newest step of a run: the last one in its ledger, which goes back where a start resumed from an older
    checkpoint; without a ledger the newest checkpoint (``checkpointing.checkpoint_dir`` of ``config``). None where
    there is neither."""
    newest = next(iter(deque(read_steps(run), maxlen=1)), None)
    kept = _read_section(config or {}, "checkpointing").get("checkpoint_dir") or run / "checkpoints"
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
