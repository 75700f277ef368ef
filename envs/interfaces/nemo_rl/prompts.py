"""Whether the tokenizer can render the tasks, asked as soon as there is a tokenizer: before actors are made and GPUs
used.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from gavel.envs.interfaces.nemo_rl.processor import TaskProcessor
from gavel.envs.interfaces.nemo_rl.register import DATASET
from gavel.envs.interfaces.nemo_rl.tasks import (
    encode_task,
    find_shared_prompts,
    load_tasks,
    make_loose_key,
    make_shared_prompt_error,
)
from gavel.envs.types import Task
from gavel.models.errors import ConfigError, GavelError


def list_gavel_entries(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (config key, entry) of each dataset of ours in a ``data`` section."""
    for split in ("train", "validation"):
        entries = data.get(split) or []
        for place, entry in enumerate(entries if isinstance(entries, list | tuple) else [entries]):
            if isinstance(entry, Mapping) and entry.get("dataset_name") == DATASET:
                yield f"data.{split}[{place}]", entry


def check_prompts(tokenizer: Any, data: Mapping[str, Any], *, apart: bool) -> None:
    """Render one task of each succession of roles that stands in our files.

    Args:
        tokenizer: the trainer's.
        data: the trainer's ``data`` section.
        apart: whether the trainer keeps the groups of different environments apart.

    Raises:
        ConfigError: the chat template refuses it, or cannot frame the turns of a conversation.
        InputError: a file does not fit.
    """
    trained: list[tuple[str, str, Task]] = []
    for key, entry in list_gavel_entries(data):
        process = TaskProcessor("train", bool(entry.get("multi_turn")))
        tasks = load_tasks(entry["data_path"], entry["env"], binding=entry.get("binding"), limit=entry.get("limit"))
        trained += [(key, str(entry["env_name"]), task) for task in tasks if key.startswith("data.train")]
        kinds = {tuple(message.role for message in task.messages): task for task in reversed(tasks)}
        for roles, task in kinds.items():
            try:
                process({"task": encode_task(task), "task_name": key}, None, tokenizer, None, 0)
            except GavelError:
                raise
            except Exception as failed:  # templates are programs of others and raise what they like
                raise ConfigError(
                    "the tokenizer cannot render this task",
                    where=key,
                    field="policy.tokenizer",
                    remedy=(
                        "use a model whose tokenizer has a chat template for these roles, or name one "
                        "(policy.tokenizer.chat_template)"
                    ),
                    found=f"task {task.task_id} ({', '.join(roles)}): {type(failed).__name__}: {failed}",
                ) from failed

    _check_merged(tokenizer, trained, apart=apart)


def _check_merged(tokenizer: Any, trained: list[tuple[str, str, Task]], *, apart: bool) -> None:
    """Compare the tokens of prompts that look alike: what a template or a tokenizer changes can make two of them one
    group.

    Raises:
        InputError: two are one, and are graded by different things.
    """
    alike: dict[Hashable, list[tuple[str, str, Task]]] = defaultdict(list)
    for row in trained:
        alike[make_loose_key(row[2])].append(row)
    for rows in alike.values():
        if len(rows) > 1:
            for pair in find_shared_prompts(rows, lambda task: _tokenize_prompt(tokenizer, task), apart=apart):
                raise make_shared_prompt_error(*pair)


def _tokenize_prompt(tokenizer: Any, task: Task) -> Hashable:
    row = {"task": encode_task(task), "task_name": ""}
    return tuple(
        TaskProcessor("train", multi_turn=False)(row, None, tokenizer, None, 0)["message_log"][0]["token_ids"].tolist()
    )


def wrap_setup(original: Callable[..., Any], *, apart: bool) -> Callable[..., Any]:
    """Return NeMo-RL's ``setup_response_data``, which makes actors and datasets, with ``check_prompts`` before it."""
    signature = inspect.signature(original)

    @functools.wraps(original)  # its signature, for whoever wraps once more
    def setup_response_data(*args: Any, **options: Any) -> Any:
        arguments = signature.bind(*args, **options).arguments
        check_prompts(arguments["tokenizer"], arguments["data_config"], apart=apart)
        return original(*args, **options)

    return setup_response_data
