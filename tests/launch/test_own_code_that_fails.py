"""A bug in an environment or a reward policy costs its own rows, is named, and never ends a run as an internal
error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import server_process
from tests.support.runs import arguments, rows, write_tasks

from gavel.envs.abstention.environment import AbstentionEnvironment
from gavel.envs.abstention.rewards import LabelRewards
from gavel.envs.types import Finish, Outcome, Reward, Task, TaskError, Transcript
from gavel.launch.cli.command_line import main


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_process("--reply", "tests.support.runs:reply") as url:
        yield url


def run(url: str, folder: Path, *words: str) -> int:
    return main(arguments(write_tasks(folder / "tasks.jsonl", 4), folder / "run", url, *words))


def test_a_bug_in_a_reward_policy_is_a_failed_row_that_names_policy_and_exception(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paid = LabelRewards.reward

    def reward(self: LabelRewards, outcome: Outcome) -> Reward:
        return paid(self, outcome) if outcome.label != "incorrect" else {}["no such key"]  # type: ignore[no-any-return]

    monkeypatch.setattr(LabelRewards, "reward", reward)
    assert run(url, tmp_path) == 3
    (failed,) = rows(tmp_path / "run", "errors.jsonl")
    assert (failed["status"], failed["task_id"], failed["fallback_reward"]) == ("judge_error", "q-1", 0.0)
    reason = "the reward policy LabelRewards failed on the label 'incorrect': KeyError: 'no such key'"
    assert failed["outcome"]["failure"] == {"kind": "verifier_error", "stage": "reward", "reason": reason}
    assert len(rows(tmp_path / "run")) == 3
    assert reason in capsys.readouterr().out
    monkeypatch.setattr(LabelRewards, "reward", paid)
    assert main(["rollout", str(tmp_path / "run")]) == 0  # mended, the row is rewarded from its journal
    metrics = orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())
    assert metrics["rows"] == {"planned": 4, "graded": 4, "ungraded": 0, "invalid": 0, "missing": 0}
    assert metrics["services"]["policy"]["calls"] == 4


def test_a_row_that_its_environment_refuses_is_invalid_alone_and_is_not_played_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step, played = AbstentionEnvironment.step, list[str]()

    async def refuse_one(self: AbstentionEnvironment, task: Task, transcript: Transcript) -> Finish:
        played.append(task.task_id)
        if task.task_id == "q-2":
            raise TaskError("this row has no unit", field="target.unit")
        return await step(self, task, transcript)

    monkeypatch.setattr(AbstentionEnvironment, "step", refuse_one)
    assert run(url, tmp_path) == 3
    (refused,) = rows(tmp_path / "run", "errors.jsonl")
    assert (refused["status"], refused["task_id"], refused["fallback_reward"]) == ("invalid_task", "q-2", None)
    assert refused["outcome"]["failure"] == {
        "kind": "gavel:task_schema",
        "stage": "task",
        "reason": "target.unit: this row has no unit",
    }
    assert "target.unit: this row has no unit" in capsys.readouterr().out
    metrics: dict[str, Any] = orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())
    assert (metrics["rows"]["graded"], metrics["rows"]["ungraded"], metrics["rows"]["missing"]) == (3, 1, 0)
    assert main(["rollout", str(tmp_path / "run")]) == 3
    assert played.count("q-2") == 1, "graded rows are made again from their stored replies, a refused one is not"
