"""The files of examples/ run as they stand, and the README's five lines do what they say."""

from __future__ import annotations

import asyncio
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.interfaces.http_support import FOLLOWING, rule_item
from tests.support.fault_server import server_process
from tests.support.runs import arguments, write_tasks
from tests.support.serving import NOWHERE, serving

from gavel.launch.cli.command_line import main

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
TASK = orjson.dumps(rule_item()["task"]).decode()


def run(name: str, *words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *words])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name), run_name="example")


def test_each_example_has_a_test_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text()))


def test_a_reply_is_graded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("grade_a_reply.py", monkeypatch=monkeypatch)
    assert capsys.readouterr().out == "graded followed 1.0\n"


def test_the_readmes_lines_print_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    section = (ROOT / "README.md").read_text().partition("### From Python\n")[2]
    code, said = re.findall(r"```(?:python|text)\n(.*?)```", section, re.DOTALL)[:2]
    assert len(code.splitlines()) <= 5
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == said


def test_an_environment_of_ones_own_is_played_and_graded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("own_environment.py", monkeypatch=monkeypatch)
    assert "n-10 found 1.0" in capsys.readouterr().out


def test_trl_gets_a_reward_for_each_completion_and_none_where_there_is_no_grade() -> None:
    reward_reply = load("trl_reward.py")["reward_reply"]
    said = ["a b", "a, b", [{"role": "assistant", "content": "a b"}], "a b"]
    assert reward_reply(completions=said, task=[TASK, TASK, TASK, "{}"], prompts=[""] * 4, trainer_state=None) == [
        1.0,
        0.0,
        1.0,
        None,
    ]


async def test_verl_gets_a_score_and_an_error_where_there_is_no_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        monkeypatch.setenv("GAVEL_URL", service.url)
        example = load("verl_compute_score.py")
        compute_score, open_client = example["compute_score"], example["open_client"]
        good = await asyncio.to_thread(compute_score, "instruction_following", "a b", TASK, {"index": 1})
        assert good == {"score": 1.0, "label": "followed"}
        with pytest.raises(RuntimeError, match="not graded"):
            await asyncio.to_thread(compute_score, "instruction_following", "a b", "{}")
        await asyncio.to_thread(open_client("instruction_following").close)


def test_a_run_is_analysed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with server_process("--reply", "tests.support.runs:reply") as url:
        assert main(arguments(write_tasks(tmp_path / "tasks.jsonl", 4), tmp_path / "run", url, "report=false")) == 0
    capsys.readouterr()
    run("analyse_a_run.py", str(tmp_path / "run"), monkeypatch=monkeypatch)
    out = capsys.readouterr().out
    assert "4 graded, 0 without a grade, 4 planned" in out
    assert re.search(r"abstained +2\n", out)
