"""The tasks of a dataset, checked without NeMo-RL: openings there, no prompt with two answers."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gavel.envs.tasks import dump_task, read_tasks
from gavel.envs.types import EnvironmentInfo, Task
from gavel.models.codec import encode_canonical, to_plain
from gavel.models.errors import InputError


@dataclass(frozen=True, slots=True)
class RawTargets:
    """Reads tasks and leaves their targets as they are: the actor parses them.

    Openings are checked here, with a trainer's remedy.
    """

    name: str
    binding: str | None = None

    @property
    def info(self) -> EnvironmentInfo:
        """What reading the tasks needs; whether somebody must have asked something is the environment's own affair."""
        return EnvironmentInfo(speaks_first=True, binding=self.binding)

    def parse_target(self, raw: Mapping[str, Any]) -> Any:
        """Return the target as it is."""
        return dict(raw)


def load_tasks(path: str | Path, env: str, *, binding: str | None = None, limit: int | None = None) -> tuple[Task, ...]:
    """Return the tasks of a file, each fit to open an episode.

    Args:
        path: a ``tasks.jsonl`` of ours, or a source's file.
        env: the environment's own name (``abstention``).
        binding: what judges tasks that are adapted on the fly.
        limit: takes the first so many rows.

    Raises:
        InputError: the file cannot be read, a row is bad, an opening is missing, or one prompt stands there with two
            targets.
    """
    file = read_tasks(path, RawTargets(env, binding), limit=limit)
    if file.bad:
        raise InputError(f"{len(file.bad)} rows are not valid tasks; the first:\n{file.bad[0].error}", where=str(path))
    tasks = tuple(item.task for item in file.tasks)
    for item in file.tasks:
        _check_opening(item.task, f"{path}:{item.line}")
    _check_prompts(tasks, str(path))
    return tasks


def encode_task(task: Task) -> str:
    """Return a task as one JSON text: nested columns would be given one schema by the data set."""
    return orjson.dumps(dump_task(task)).decode()


def find_shared_prompts(
    tasks: Iterable[tuple[str, str, Task]], key_of: Callable[[Task], Hashable], *, apart: bool = False
) -> list[tuple[tuple[str, Task], tuple[str, Task]]]:
    """Return pairs of tasks that a trainer would take for one prompt and that are graded by different things.

    Args:
        tasks: where each stands, the environment it belongs to, and the task; of all files and environments of a
            training.
        key_of: what tells prompts apart.
        apart: whether the trainer keeps the groups of different environments apart.
    """
    known: dict[Hashable, tuple[str, Task, bytes]] = {}
    found = []
    for where, env, task in tasks:
        graded_by = encode_canonical([env, task.verifier, to_plain(task.target)])
        first = known.setdefault((env if apart else "", key_of(task)), (where, task, graded_by))
        if first[2] != graded_by:
            found.append(((first[0], first[1]), (where, task)))
    return found


def make_prompt_key(task: Task) -> Hashable:
    """Return what is left of a prompt after templates that strip their texts and tokenizers that compose their
    characters.
    """
    return tuple((message.role, unicodedata.normalize("NFC", message.content).strip()) for message in task.messages)


def make_loose_key(task: Task) -> Hashable:
    """Return what no two prompts that a tokenizer merges can differ in; others may share it."""
    return tuple(
        (message.role, "".join(unicodedata.normalize("NFKC", message.content).casefold().split()))
        for message in task.messages
    )


def make_shared_prompt_error(first: tuple[str, Task], second: tuple[str, Task]) -> InputError:
    """Return what is said of a pair that ``find_shared_prompts`` has found."""
    one, other = (f"{task.task_id} ({where})" for where, task in (first, second))
    return InputError(
        "two tasks have one prompt and different targets: GRPO would compare their replies with one another",
        where=second[0],
        found=f"{one} and {other}",
        remedy="remove one of the two, or word their prompts differently",
    )


def _check_opening(task: Task, where: str) -> None:
    if not task.messages or task.messages[-1].role != "user":
        raise InputError(
            "this task has no opening: a trainer's prompt must end with a user's message",
            where=where,
            field="messages",
            found=f"the last message is the {task.messages[-1].role}'s" if task.messages else "no message",
            remedy="let `gavel prepare` write the openings (env=vera_mh: source.openings=true)",
        )


def _check_prompts(tasks: tuple[Task, ...], where: str) -> None:
    """GRPO puts rows of equal prompts into one group, whatever they are graded by."""
    for pair in find_shared_prompts(((where, "", task) for task in tasks), make_prompt_key):
        raise make_shared_prompt_error(*pair)
