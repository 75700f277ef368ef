"""Steps of single samples, gathered into few calls of an actor.

NeMo-RL's asynchronous rollouts call an environment once a sample, each from a thread of its own; a call of an actor
costs a millisecond of CPU on both sides, which bounds the judgements a second. Samples whose episode ends with this
step wait for one another at no loss: their batch ends with the last of them anyway. Longer episodes are not gathered: a
slow sample would hold up the next turn of the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from gavel.envs.interfaces.nemo_rl.stamps import FRAME, is_ours

MOST = 64
"""Samples in one call."""
WAIT_SECONDS = 0.01
"""How long the first of them waits for others."""

Waiting = list[tuple[Any, "Future[Any]"]]


class StepGatherer:
    """``calculate_rewards`` that gathers calls with a single sample each; see there.

    Args:
        original: NeMo-RL's.
    """

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original
        self._lock = threading.Lock()
        self._waiting: dict[int, Waiting] = {}

    def __call__(self, batch: Any, task_to_env: Any, *args: Any, **options: Any) -> Any:
        """Return what the environments answer to a batch."""
        if args or options or not _is_single(batch):
            return self._original(batch, task_to_env, *args, **options)
        answer: Future[Any] = Future()
        with self._lock:
            waiting = self._waiting.setdefault(id(task_to_env), [])
            waiting.append((batch, answer))
            first, full = len(waiting) == 1, len(waiting) >= MOST
            if full:
                del self._waiting[id(task_to_env)]
        if full:
            self._send(waiting, task_to_env)
        elif first:
            time.sleep(WAIT_SECONDS)
            with self._lock:
                due = self._waiting.get(id(task_to_env)) is waiting
                if due:
                    del self._waiting[id(task_to_env)]
            if due:
                self._send(waiting, task_to_env)
        return answer.result()

    def _send(self, waiting: Waiting, task_to_env: Any) -> None:
        """Step all samples that wait in one call, and give each its answer, or what the call has raised."""
        first = waiting[0][0]
        joined = type(first)({key: [batch[key][0] for batch, _ in waiting] for key in first})
        try:
            stepped = self._original(joined, task_to_env)
            answers = [_pick(stepped, place) for place in range(len(waiting))]
        except BaseException as failed:  # each of the threads that wait must learn of it
            for _, answer in waiting:
                answer.set_exception(failed)
            if not isinstance(failed, Exception):
                raise
            return
        for (_, answer), one in zip(waiting, answers, strict=True):
            answer.set_result(one)


def _is_single(batch: Any) -> bool:
    """Tell whether a batch is one sample of ours whose episode ends with its first reply."""
    infos = batch["extra_env_info"]
    return len(infos) == 1 and is_ours(infos[0]) and infos[0][FRAME] is None


def _pick(stepped: Any, place: int) -> Any:
    """Return an ``EnvironmentReturn`` of one of its samples."""
    return type(stepped)(*(_pick_field(value, place) for value in stepped))


def _pick_field(value: Any, place: int) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: column[place : place + 1] for name, column in value.items()}
    return value[place : place + 1]
