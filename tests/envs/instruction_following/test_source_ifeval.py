"""Rows that list instructions by id, as IFEval and those that follow it write them, become tasks of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.runs import gavel

from gavel.envs.instruction_following.checking import check_document
from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import LANGUAGES
from gavel.envs.instruction_following.source_ifeval import DIFFERENT, SAME, IfEval
from gavel.envs.types import TaskError

REPORTS = Path(__file__).parents[4] / "shared" / "data" / "reports" / "command.jsonl"
ROW: dict[str, Any] = {
    "key": 1001,
    "prompt": "Write about rivers.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{"relation": None, "num_words": None}, {"relation": "at least", "num_words": 5}],
}


def adapt(**changes: Any) -> Any:
    return IfEval().adapt({**ROW, **changes}, "instruction_following")


def test_nulls_that_pad_a_row_are_no_arguments_and_its_key_is_its_id() -> None:
    task = adapt()
    assert (task.task_id, task.verifier) == ("1001", "verifif/instruction_following")
    assert [(one.instruction_id, dict(one.arguments)) for one in task.target.instructions] == [
        ("punctuation:no_comma", {}),
        ("length_constraints:number_words", {"relation": "at least", "num_words": 5}),
    ]
    assert [(one.role, one.content) for one in task.messages] == [("user", "Write about rivers.")]


@pytest.mark.parametrize(
    ("name", "given", "check", "good", "bad"),
    [
        ("change_case:english_capital", {}, "change_case:all_caps", "RIVERS RUN", "Rivers run"),
        ("change_case:english_lowercase", {}, "change_case:lowercase", "rivers run", "Rivers run"),
        (
            "length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"},
            "detectable_format:sentence_count", "One.", "One. Two. Three.",
        ),
        (
            "detectable_format:number_bullet_lists", {"num_bullets": 2}, "detectable_format:number_bullet_lists",
            "* one\n* two", "* one\n* two\n* three",
        ),
        (
            "detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 2},
            "detectable_format:multiple_sections", "Part 1\n\na\n\nPart 2\n\nb\n\nPart 3\n\nc", "Part 1\n\na",
        ),
        (
            "detectable_content:number_placeholders", {"num_placeholders": 2}, "detectable_content:number_placeholders",
            "[name] and [town] and [day]", "[name] alone",
        ),
    ],
)  # fmt: skip
def test_what_is_called_or_written_otherwise_means_the_same(
    name: str, given: dict[str, Any], check: str, good: str, bad: str
) -> None:
    (item,) = adapt(instruction_id_list=[name], kwargs=[given]).target.instructions
    assert item.instruction_id == check
    for reply, passed in ((good, True), (bad, False)):
        assert check_document(Document(reply, LANGUAGES["en"]), check, item.arguments).passed is passed


def test_lists_may_be_texts_of_json_and_a_conversation_a_request() -> None:
    row = {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "an answer that was there"}],
        "instruction_id_list": json.dumps(["punctuation:no_comma"]),
        "kwargs": json.dumps([None]),
    }
    task = IfEval().adapt({"id": "a", **row}, "instruction_following")
    assert (task.task_id, [one.content for one in task.messages]) == ("a", ["Hi"])


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        (
            {"instruction_id_list": ["combination:two_responses"], "kwargs": [{}]},
            "instruction_id_list",
            "two_responses",
        ),
        ({"instruction_id_list": [next(iter(DIFFERENT))], "kwargs": [{}]}, "instruction_id_list", "paragraph_length"),
        ({"kwargs": [{}]}, "kwargs", "1 beside 2"),
        ({"kwargs": "x"}, "kwargs", "a list of objects"),
        ({"instruction_id_list": []}, "instruction_id_list", "one or more"),
        ({"kwargs": [{}, {"num_words": "5", "relation": "at least"}]}, "num_words", "whole number"),
        ({"prompt": " "}, "prompt", ""),
    ],
)
def test_what_cannot_be_graded_is_refused_by_its_field(changes: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(TaskError) as failed:
        adapt(**changes)
    assert field in str(failed.value)
    assert told in str(failed.value)


async def test_a_row_as_it_was_reported_is_played_and_prepare_says_which_rows_are_left_out(tmp_path: Path) -> None:
    row = {"key": 1, "prompt": "P", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    if REPORTS.is_file():
        rows = map(orjson.loads, REPORTS.read_bytes().splitlines())
        row = next(one["input"] for one in rows if one["id"] == "ifeval-row")
        row = orjson.loads(row) if isinstance(row, str) else row
    other = {**ROW, "instruction_id_list": ["combination:two_responses"], "kwargs": [{}]}
    (tmp_path / "x.jsonl").write_bytes(orjson.dumps(row) + b"\n" + orjson.dumps(other) + b"\n")
    done = await gavel(
        "prepare", "env=instruction_following", "source=ifeval", "source.path=x.jsonl", "out=tasks", cwd=tmp_path
    )
    assert done.code == 3, done.err
    assert "2 rows: 1 tasks" in done.out
    assert "combination:two_responses" in done.out
    shown = await gavel(
        "rollout", "env=instruction_following", "tasks.path=x.jsonl", "judge=none", "policy=external",
        "policy.base_url=http://127.0.0.1:1/v1", "policy.model=m", "dry_run=true", cwd=tmp_path,
    )  # fmt: skip
    assert shown.code == 0, shown.err


def test_every_instruction_that_is_called_otherwise_has_a_check_here() -> None:
    for name in SAME:
        given = {"num_sentences": 1, "relation": "at least"} if "sentences" in name else {}
        assert adapt(instruction_id_list=[name], kwargs=[given])
