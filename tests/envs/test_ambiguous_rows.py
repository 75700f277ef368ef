"""Rows of which nobody could tell what is meant are refused, with line and field; nothing is taken silently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.envs.test_criteria import criteria_rubric
from tests.support.rubric_files import write_rubric

from gavel.envs.judged.source import PlainRows
from gavel.envs.rows import read_rows
from gavel.envs.types import TaskError
from gavel.launch.cli.command_line import main
from gavel.models.texts.json_keys import find_repeated_key

USER = [{"role": "user", "content": "Two?"}]


@pytest.mark.parametrize(
    ("row", "field", "said"),
    [
        ({"prompt": "One?", "question": "Two?"}, "question", "prompt and in question"),
        ({"messages": USER, "prompt": "One?"}, "prompt", "messages and in prompt"),
        ({"messages": USER, "question": "One?"}, "question", "messages and in question"),
        ({"prompt": "Two?", "question": [{"role": "assistant", "content": "Two?"}]}, "question", "two things"),
        ({"prompt": "One?", "reference": "a", "answer": "b"}, "answer", "twice"),
    ],
)
def test_a_row_that_says_two_things_is_refused(row: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as failed:
        PlainRows().adapt(row, "a")
    assert failed.value.field == field


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Two?", "question": "Two?"},
        {"messages": [{"role": "system", "content": "Be brief."}, *USER], "prompt": "Two?"},
        {"messages": USER, "prompt": None},
        {"prompt": "Two?", "reference": "a", "answer": "a"},
    ],
)
def test_a_row_that_says_one_thing_twice_is_taken(row: dict[str, Any]) -> None:
    task = PlainRows().adapt(row, "a")
    assert task.messages[-1].content == "Two?"
    assert task.target.get("reference", "a") == "a"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"id": "a", "id": "b"}', "id"),
        ('{"id": "a", "target": {"x": 1, "x": 1}}', "x"),
        ('{"list": [{"role": "user", "content": "a", "content": "b"}]}', "content"),
        ('{"a": 1, "\\u0061": 2}', "a"),
        ('{"id" : "a",\t"id"\t: "b", "text": "{\\"id\\": 1}"}', "id"),
        ('{"text": "\\"a\\": 1, \\"a\\": 2", "a": 1}', None),
        ('{"a": {"x": 1}, "b": {"x": 1}}', None),
        ('{"text": "she said \\"so\\": yes", "x": [1, {"x": 2}]}', None),
        ("[1, 2]", None),
    ],
)
def test_a_key_that_stands_twice_in_one_object_is_found(text: str, key: str | None) -> None:
    assert find_repeated_key(text.encode(), json.loads(text)) == key


def test_a_row_with_a_repeated_key_is_named_by_line_and_key(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "x", "prompt": "y"}\n')
    good, bad = read_rows(tmp_path / "rows.jsonl")
    assert good.error is None
    assert bad.error is not None
    assert (bad.number, bad.error.field) == (2, "prompt")


@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_prepare_refuses_rows_without_what_the_rubric_needs(
    dry_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    criteria_rubric(tmp_path, 1)
    words = ["prepare", f"rubrics.helpful.file={tmp_path / 'helpful.yaml'}", f"dry_run={dry_run}"]
    words += [f"source.path={tmp_path / 'rows.jsonl'}", f"out={tmp_path / 'out'}"]
    good = {"id": "a", "prompt": "x", "criteria": [{"id": "c", "text": "Says x", "points": 1}]}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(good)}\n" + '{"id": "b", "prompt": "x"}\n')
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "rows.jsonl:2" in said
    assert "criteria" in said
    assert not (tmp_path / "out").exists()
    (tmp_path / "rows.jsonl").write_text(json.dumps(good))
    assert main(words) == 0


def test_prepare_refuses_rows_without_a_field_that_must_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slots = {"question": "task.last_user", "reference": "target.reference", "candidate": "reply.visible"}
    controls = [
        {"name": f"c{place}", "question": f"q{place}", "reference": "x", "candidate": "x", "expected": expected}
        for place, expected in enumerate(["good", "fair", "bad"] * 3)
    ]
    path = write_rubric(tmp_path, slots=slots, controls=controls)
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "prompt": "x", "answer": "y"}\n{"id": "b", "prompt": "x"}\n')
    words = [f"rubrics.helpful.file={path}", f"source.path={tmp_path / 'rows.jsonl'}", f"out={tmp_path / 'out'}"]
    assert main(["prepare", *words]) == 2
    assert "target.reference" in capsys.readouterr().err
