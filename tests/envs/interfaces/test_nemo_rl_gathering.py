"""Steps of single samples are gathered into few calls, and each sample gets its own answer."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from gavel.envs.interfaces.nemo_rl.framing import Frame
from gavel.envs.interfaces.nemo_rl.gathering import MOST, StepGatherer
from gavel.envs.interfaces.nemo_rl.stamps import make_info


class Answer(NamedTuple):
    """As NeMo-RL's ``EnvironmentReturn``; lists stand in for tensors."""

    observations: list[str]
    rewards: dict[str, list[int]] | list[int]
    answers: list[str] | None


def batch(*numbers: int, frame: Frame | None = None) -> dict[str, list[Any]]:
    """Samples of ours whose message is their number."""
    return {
        "message_log": list(numbers),
        "extra_env_info": [make_info("{}", "train", frame, None) for _ in numbers],
        "task_name": ["t"] * len(numbers),
    }


class Environment:
    """Answers each sample with its number, and counts the calls."""

    def __init__(self, *, parts: bool = False, failing: bool = False) -> None:
        self.sizes: list[int] = []
        self._parts, self._failing, self._lock = parts, failing, threading.Lock()

    def __call__(self, asked: dict[str, list[Any]], task_to_env: Any) -> Answer:
        with self._lock:
            self.sizes.append(len(asked["message_log"]))
        if self._failing:
            raise RuntimeError("the actor is gone")
        numbers = asked["message_log"]
        rewards: Any = {"reward/a": list(numbers)} if self._parts else list(numbers)
        return Answer([str(number) for number in numbers], rewards, None)


def step_all(gatherer: StepGatherer, count: int) -> list[Answer]:
    """Step so many samples at once, each from a thread of its own."""
    together, handles = threading.Barrier(count), dict[str, Any]()

    def step(number: int) -> Answer:
        together.wait(10)
        found: Answer = gatherer(batch(number), handles)
        return found

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(step, range(count)))


@pytest.mark.parametrize("count", [1, 7, MOST, 3 * MOST + 5])
@pytest.mark.parametrize("parts", [False, True])
def test_each_sample_gets_its_own_answer_out_of_few_calls(count: int, parts: bool) -> None:
    environment = Environment(parts=parts)
    found = step_all(StepGatherer(environment), count)
    for number, one in enumerate(found):
        rewards: Any = {"reward/a": [number]} if parts else [number]
        assert one == Answer([str(number)], rewards, None)
    assert sum(environment.sizes) == count
    assert max(environment.sizes) <= MOST
    assert len(environment.sizes) <= 1 + count // 4


def test_what_a_call_raises_is_raised_for_each_of_its_samples() -> None:
    with ThreadPoolExecutor(8) as pool:
        gatherer, handles = StepGatherer(Environment(failing=True)), {}
        futures = [pool.submit(gatherer, batch(number), handles) for number in range(8)]
        assert [str(future.exception(10)) for future in futures] == ["the actor is gone"] * 8


@pytest.mark.parametrize(
    "asked",
    [
        batch(1, 2),
        batch(1, frame=Frame("", 0, "", "")),
        {"message_log": [1], "extra_env_info": [{"of": "another"}], "task_name": ["t"]},
    ],
    ids=["a batch", "a conversation", "another's"],
)
def test_batches_conversations_and_samples_of_others_are_stepped_as_they_come(asked: dict[str, list[Any]]) -> None:
    environment = Environment()
    gatherer, handles = StepGatherer(environment), {}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: gatherer(asked, handles), range(4)))
    assert environment.sizes == [len(asked["message_log"])] * 4
