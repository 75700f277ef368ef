"""``gavel prepare format=nemo_gym``: any task set as rows of Gym's form, and the same tasks again when they are read
back.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.runs import STRICT, source_row, write_tasks

from gavel.envs.tasks import dump_task, read_tasks
from gavel.envs.types import EnvironmentInfo
from gavel.launch.cli.command_line import main

ROOT = Path(__file__).resolve().parents[2]
WORDS = {
    "abstention": [STRICT],
    "instruction_following": [],
    "vera_mh": ["rubrics.vera_mh.profile=gavel/vera-mh-small"],
}


class AsItIs:
    """Reads a file of tasks without the environment."""

    info = EnvironmentInfo(speaks_first=True)

    def __init__(self, name: str) -> None:
        self.name = name

    def parse_target(self, raw: Any) -> Any:
        return raw


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("env", list(WORDS))
def test_every_task_that_we_ship_survives_the_way_to_gym_and_back(env: str, tmp_path: Path) -> None:
    tasks = ROOT / "envs" / env / "data" / "samples.jsonl"
    words = [
        "prepare",
        f"env={env}",
        *WORDS[env],
        "source=nemo_gym",
        f"source.path={tasks}",
        "format=nemo_gym",
        f"out={tmp_path}",
    ]
    assert main(words) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"nemo_gym.jsonl"}, "the tasks are there already"
    before = read_tasks(tasks, AsItIs(env))
    after = read_tasks(tmp_path / "nemo_gym.jsonl", AsItIs(env))
    assert (after.source, after.bad, before.bad) == ("nemo_gym", (), ())
    assert [dump_task(planned.task) for planned in after.tasks] == [dump_task(planned.task) for planned in before.tasks]
    assert [planned.task.digest for planned in after.tasks] == [planned.task.digest for planned in before.tasks]


def test_a_source_is_written_in_both_forms_and_read_back_to_the_same_folder(tmp_path: Path) -> None:
    source = write_tasks(tmp_path / "source.jsonl", 20)
    first, second = tmp_path / "first", tmp_path / "second"
    words = ["prepare", STRICT, "source.validation_fraction=0.5"]
    assert main([*words, f"source.path={source}", "format=nemo_gym", "agent=theirs", f"out={first}"]) == 0
    manifest = orjson.loads((first / "manifest.json").read_bytes())
    for name in ("nemo_gym.jsonl", "nemo_gym_validation.jsonl"):
        data = (first / name).read_bytes()
        assert manifest["files"][name] == {
            "sha256": f"sha256:{hashlib.sha256(data).hexdigest()}",
            "rows": len(rows_of(first / name)),
        }
        assert {row["agent_ref"]["name"] for row in rows_of(first / name)} == {"theirs"}
    assert main(["prepare", STRICT, "source=nemo_gym", f"source.path={first / 'nemo_gym.jsonl'}", f"out={second}"]) == 0
    for name in ("tasks.jsonl", "verifiers.json"):
        assert (second / name).read_bytes() == (first / name).read_bytes()


def test_vera_mhs_rows_hold_the_chatbots_instructions(tmp_path: Path) -> None:
    words = [
        "prepare",
        "env=vera_mh",
        *WORDS["vera_mh"],
        "env.chatbot_prompt=Be kind.",
        "format=nemo_gym",
        f"out={tmp_path}",
    ]
    assert main(words) == 0
    rows = rows_of(tmp_path / "nemo_gym.jsonl")
    assert len(rows) == len(rows_of(tmp_path / "tasks.jsonl")) > 0
    for row in rows:
        assert row["responses_create_params"] == {"input": [{"role": "system", "content": "Be kind."}]}
        assert row["agent_ref"]["name"] == "gavel_vera_mh_agent"


def test_bad_rows_and_the_wrong_environment_are_refused_and_a_dry_run_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(
        orjson.dumps({**source_row(1), "gavel": {"schema": "gavel.gym_row/1", "env": "abstention"}}) + b"\n"
    )
    assert main(["prepare", STRICT, "source=nemo_gym", f"source.path={bad}", f"out={out}"]) == 2
    assert "gavel.task_id" in capsys.readouterr().err
    tasks = ROOT / "envs" / "vera_mh" / "data" / "samples.jsonl"
    assert main(["prepare", STRICT, f"source.path={tasks}", "format=nemo_gym", f"out={out}"]) == 2
    assert "choose env=vera_mh" in capsys.readouterr().err
    tasks = ROOT / "envs" / "abstention" / "data" / "samples.jsonl"
    assert main(["prepare", STRICT, f"source.path={tasks}", "format=nemo_gym", "dry_run=true", f"out={out}"]) == 0
    assert not out.exists()
