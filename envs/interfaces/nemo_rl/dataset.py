"""Our tasks as a NeMo-RL dataset, named by its dotted path in ``data.train`` and ``data.validation``; imports NeMo-RL.

``data/datasets/raw_dataset.py`` and ``data/processors.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from nemo_rl.data.datasets.raw_dataset import RawDataset

from gavel.envs.interfaces.nemo_rl.processor import TaskProcessor
from gavel.envs.interfaces.nemo_rl.tasks import encode_task, load_tasks
from gavel.models.codec import compute_digest


class GavelTasks(RawDataset):  # type: ignore[misc]  # NeMo-RL has no types for us
    """A task file.

    Args:
        data_path: the file.
        env_name: the environment's name in the trainer's config; with ``env`` it makes ``task_name``, which binds rows
            to an actor.
        env: the environment's own name (``abstention``).
        binding: what judges rows that are adapted on the fly.
        split: ``train`` or ``validation``; stands in the ledger.
        multi_turn: whether episodes go on after the first reply, so that turns must be framed.
        limit: takes the first so many rows.
        weight: of each of its samples in the loss, beside those of other data sets.
        agent: the agent that plays the rows where NeMo Gym rolls out; None: NeMo-RL itself does.
        others: further keys of NeMo-RL's own.

    Raises:
        InputError: the file does not fit.
    """

    def __init__(
        self,
        data_path: str,
        env_name: str,
        env: str,
        binding: str | None = None,
        split: str = "train",
        multi_turn: bool = False,
        limit: int | None = None,
        weight: float = 1.0,
        agent: str | None = None,
        **others: Any,  # noqa: ARG002
    ) -> None:
        path = Path(data_path).expanduser().resolve()
        tasks = load_tasks(path, env, binding=binding, limit=limit)
        key = compute_digest([str(path), limit]).removeprefix("sha256:")[:8]
        self.task_name = f"{env_name}/{split}/{path.stem}-{key}"
        self.dataset = Dataset.from_list([{"task_name": self.task_name, "task": encode_task(task)} for task in tasks])
        self.val_dataset = None
        self._make_processor = partial(TaskProcessor, split, multi_turn, weight, agent)

    def set_processor(self) -> None:
        """Use our own processor, which needs no registration."""
        self.processor = self._make_processor()
