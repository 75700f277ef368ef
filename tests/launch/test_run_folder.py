"""Run folders: extended in any order, resumed after a kill at any step of their making, damage named by file, line and
field.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, essence, gavel, reply, rows, source_row, without_digests, write_tasks


async def test_more_rollouts_of_tasks_in_another_order_extend_a_run(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 6), tmp_path / "run"]
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(*words, server.base_url))).code == 0
        lines = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "t.jsonl").write_bytes(b"".join([orjson.dumps(source_row(9)) + b"\n", *reversed(lines)]))
        done = await gavel(*arguments(*words, server.base_url, "rollouts_per_task=2"))
        assert done.code == 0, done.out + done.err
        assert (await gavel("rescore", str(tmp_path / "run"), "reward.abstain=0.1")).code == 0
    assert len(essence(tmp_path / "run")) == 14
    inputs = rows(tmp_path / "run", "inputs.jsonl")
    assert [line["rollout_index"] for line in inputs] == [0, 1] * 7
    assert all((line["task"] is not None) == (line["rollout_index"] == 0) for line in inputs)


@pytest.mark.parametrize(
    "left", [(), ("config.yaml",), ("config.yaml", "transcripts.jsonl", "results.jsonl", "errors.jsonl", ".lock")]
)
async def test_what_a_kill_left_before_the_manifest_stood_is_no_obstacle(tmp_path: Path, left: tuple[str, ...]) -> None:
    (tmp_path / "run").mkdir()
    for name in left:
        (tmp_path / "run" / name).touch()
    async with FaultServer(reply=reply) as server:
        done = await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url))
    assert done.code == 0, done.err


async def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").touch()
    async with FaultServer(reply=reply) as server:
        done = await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url))
        assert server.count == 0
    assert done.code == 2
    assert "thesis.tex" in done.err
    assert [item.name for item in (tmp_path / "run").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("manifest.json", lambda text: text.replace('"lease"', '"leash"'), "lease"),
        ("manifest.json", lambda text: "", "not a JSON object"),
        ("manifest.json", lambda text: text.replace('"created": ', '"created": "x" , "x": '), "created"),
        ("inputs.jsonl", lambda text: text.replace('"task_digest"', '"task_digset"', 1), "inputs.jsonl:1: task_dig"),
        (
            "inputs.jsonl",
            lambda text: text.replace('"rollout_index":0', '"rollout_index":"x"', 1),
            "inputs.jsonl:1: rollout_index",
        ),
        ("inputs.jsonl", lambda text: text.replace('"task":{', '"task":null,"x":{', 1), "inputs.jsonl:1"),
        ("transcripts.jsonl", lambda text: text.replace('"event"', '"evnt"', 1), "transcripts.jsonl:1: ev"),
        (
            "transcripts.jsonl",
            lambda text: text.replace('"rollout_index":0', '"rollout_index":"x"', 1),
            "transcripts.jsonl:1: rollout_index",
        ),
        (
            "transcripts.jsonl",
            lambda text: text.replace('"rollout_index":0', '"rollout_index":[]', 1),
            "sonl:1: rollout_index",
        ),
        (
            "results.jsonl",
            lambda text: text.replace('"status":"graded"', '"status":"fine"', 1),
            "results.jsonl:1: status",
        ),
    ],
)
async def test_damage_is_named_with_file_line_and_field(tmp_path: Path, name: str, change: object, told: str) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run"]
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(*words, server.base_url))).code == 0
        file = tmp_path / "run" / name
        if name == "transcripts.jsonl":  # rows that are done are not read in the journal
            (tmp_path / "run" / "results.jsonl").write_bytes(b"")
        file.write_text(change(without_digests(file.read_text())))  # type: ignore[operator]
        done = await gavel(*arguments(*words, server.base_url))
    assert done.code == 2, done.out + done.err
    assert told in done.err
    assert "Traceback" not in done.err
    assert "internal" not in done.err


async def test_a_run_at_another_address_remembers_it(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 3), tmp_path / "run"]
    async with FaultServer(reply=reply) as first:
        assert (await gavel(*arguments(*words, first.base_url))).code == 0
    async with FaultServer(reply=reply) as second:
        assert (await gavel(*arguments(*words, second.base_url))).code == 0
        assert second.base_url in (tmp_path / "run" / "config.yaml").read_text()


async def test_skipped_rows_are_shown_with_their_line(tmp_path: Path) -> None:
    write_tasks(tmp_path / "t.jsonl", 2)
    with (tmp_path / "t.jsonl").open("ab") as file:
        file.write(b"not json\n")
    async with FaultServer(reply=reply) as server:
        done = await gavel(*arguments(tmp_path / "t.jsonl", tmp_path / "run", server.base_url))
    assert done.code == 3
    assert "t.jsonl:3" in done.out
