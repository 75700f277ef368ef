"""The worked example of docs/adding_an_environment.md runs as it stands there."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import server_process
from tests.support.runs import rows

from gavel.envs.registry import ENVIRONMENTS, REWARDS, Entry
from gavel.envs.types import EnvironmentInfo
from gavel.launch.cli.command_line import main

PAGE = (Path(__file__).parents[1] / "docs" / "adding_an_environment.md").read_text(encoding="utf-8")


def reply(body: dict[str, Any]) -> str:
    """Answer wrongly at first and rightly when asked again; judge by whether the candidate says Nairobi."""
    text = body["messages"][-1]["content"]
    if body["model"] == "judge":
        return "CORRECT" if "Nairobi" in text.rpartition("<candidate>")[2] else "INCORRECT"
    return "Nairobi" if len(body["messages"]) > 1 else "Mombasa"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_environment_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment, rewards = _blocks("python")
    (tmp_path / "two_tries_environment.py").write_text(environment)
    (tmp_path / "two_tries_rewards.py").write_text(rewards)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(ENVIRONMENTS, "two_tries", Entry("two_tries_environment", "TwoTriesConfig", "build"))  # type: ignore[arg-type]
    monkeypatch.setitem(REWARDS, "second_chance", Entry("two_tries_rewards", "SecondChanceConfig", "SecondChance"))  # type: ignore[arg-type]
    env_yaml, reward_yaml = _blocks("yaml")
    for group, name, text in (("env", "two_tries", env_yaml), ("reward", "second_chance", reward_yaml)):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text)
    (tmp_path / "tasks.jsonl").write_text(_blocks("json")[0])
    with server_process("--reply", "tests.test_docs_environment:reply") as url:
        code = main(
            [
                "rollout",
                "--config-dir",
                str(tmp_path / "conf"),
                "env=two_tries",
                f"tasks.path={tmp_path / 'tasks.jsonl'}",
                f"run.dir={tmp_path / 'run'}",
                "policy=external",
                f"policy.base_url={url}",
                "policy.model=policy",
                "judge=external",
                f"judge.base_url={url}",
                "judge.model=judge",
            ]
        )
    assert code == 0
    (row,) = rows(tmp_path / "run")
    assert row["outcome"]["label"] == "second_try"
    assert row["reward"]["value"] == 0.5
    assert [message["content"] for message in row["transcript"]["messages"]] == [
        "What is the capital of Kenya?",
        "Mombasa",
        "That is not right. Try once more.",
        "Nairobi",
    ]
    assert (
        orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())["metrics"]["two_tries/second_try"]["value"]
        == 1.0
    )
    sys.modules.pop("two_tries_environment", None)


def test_the_table_of_what_an_environment_declares_has_every_field_in_order() -> None:
    table = PAGE.partition("| field | default | means |")[2].partition("\n\n")[0]
    assert re.findall(r"^ *\| `(\w+)` \|", table, re.MULTILINE) == [one.name for one in fields(EnvironmentInfo)]
