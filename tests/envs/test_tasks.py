"""Task files: good rows are kept as they are, bad rows are named by file, line and field."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from gavel.envs.abstention.source import NemoAbstentionV1, find_domain
from gavel.envs.abstention.target import AbstentionTarget, Target, parse_target
from gavel.envs.tasks import BadRow, TaskFile, dump_task, read_tasks
from gavel.envs.types import EnvironmentInfo
from gavel.models.errors import ConfigError, InputError

EXAMPLE = Path(__file__).parents[3] / "shared" / "data" / "abstention" / "example.jsonl"


class Abstention:
    name = "abstention"
    info = EnvironmentInfo(binding="abstention")

    def parse_target(self, raw: Any) -> Target:
        return parse_target(raw)


ENV = Abstention()


def own(task_id: str = "a", **changes: Any) -> dict[str, Any]:
    row = {
        "schema": "gavel.task/1",
        "task_id": task_id,
        "env": "abstention",
        "verifier": "nemo_abstention_v1/abstention",
        "messages": [{"role": "user", "content": "Capital of France?"}],
        "target": {"question": "Capital of France?", "reference": "Paris"},
        "metadata": {"domain": "general"},
    }
    return {key: value for key, value in {**row, **changes}.items() if value is not None}


def nemo(**changes: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Answer.\n"}, {"role": "user", "content": "Who wrote “Faust”? "}]
    row = {
        "id": "law-1",
        "question": "Who wrote “Faust”?",
        "answer": "Goethe",
        "responses_create_params": {"input": messages, "tools": [], "parallel_tool_calls": False},
        "agent_ref": {"type": "responses_api_agents", "name": "abstention_simple_agent"},
    }
    return {key: value for key, value in {**row, **changes}.items() if value is not None}


def read(tmp_path: Path, *rows: dict[str, Any] | str | bytes, **options: Any) -> TaskFile:
    path = tmp_path / "tasks.jsonl"
    lines = [
        row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else orjson.dumps(row) for row in rows
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return read_tasks(path, ENV, **options)


def only_bad(found: TaskFile) -> BadRow:
    (bad,) = found.bad
    return bad


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="the five real rows are not here (../shared/data/abstention)")
def test_the_five_real_rows_are_adapted_byte_for_byte() -> None:
    found = read_tasks(EXAMPLE, ENV)
    rows = [orjson.loads(line) for line in EXAMPLE.read_bytes().splitlines()]
    assert (found.source, found.bad, len(found.tasks)) == ("nemo_abstention_v1", (), 5)
    for planned, row in zip(found.tasks, rows, strict=True):
        task, given = planned.task, row["responses_create_params"]["input"]
        assert [{"role": m.role, "content": m.content} for m in task.messages] == given
        assert task.target == AbstentionTarget(row["question"], row["answer"])
        assert task.metadata["judge_query"] == given
        assert (task.task_id, task.metadata["id"], task.verifier) == (
            row["id"],
            row["id"],
            "nemo_abstention_v1/abstention",
        )
    assert [planned.task.metadata["domain"] for planned in found.tasks] == [
        "law",
        "software",
        "general",
        "health",
        "software",
    ]
    assert [planned.line for planned in found.tasks] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("task_id", "domain"),
    [
        ("law-wiki-00040", "law"),
        ("health-wiki-00476", "health"),
        ("go-swe-00484", "software"),
        ("rust-swe-1", "software"),
        ("5ac38c75554299741d48a28a", "general"),
        ("17", "other"),
        ("flaw-1", "other"),
        ("", "other"),
        ("outlaw-wiki-1", "other"),
    ],
)
def test_the_id_tells_the_domain(task_id: str, domain: str) -> None:
    assert find_domain(task_id) == domain


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"question": None}, "question"),
        ({"answer": None}, "answer"),
        ({"answer": {"value": "Goethe"}}, "answer"),
        ({"answer": ["Goethe", None]}, "answer.1"),
        ({"answer": []}, "answer"),
        ({"answer": "  "}, "answer"),
        ({"id": [1]}, "id"),
        ({"id": True}, "id"),
        ({"responses_create_params": None}, "responses_create_params.input"),
        ({"responses_create_params": {"input": []}}, "responses_create_params.input"),
        ({"responses_create_params": {"input": "Who?"}}, "responses_create_params.input"),
        ({"responses_create_params": {"input": [{"role": "user"}]}}, "responses_create_params.input.0.content"),
        (
            {"responses_create_params": {"input": [{"role": "user", "content": 3}]}},
            "responses_create_params.input.0.content",
        ),
        (
            {"responses_create_params": {"input": [{"role": "tool", "content": "x"}]}},
            "responses_create_params.input.0.role",
        ),
        ({"responses_create_params": {"input": [{"role": "system", "content": "x"}]}}, "responses_create_params.input"),
    ],
)
def test_a_bad_source_row_is_named_by_file_line_and_field(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    found = read(tmp_path, nemo(id="ok"), nemo(**changes))
    bad = only_bad(found)
    assert (bad.line, bad.error.field, bad.error.where) == (2, field, f"{tmp_path / 'tasks.jsonl'}:2")
    assert [planned.task.task_id for planned in found.tasks] == ["ok"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"target": {"question": "q"}}, "target.reference"),
        ({"target": {"question": 3, "reference": "r"}}, "target.question"),
        ({"target": "q"}, "target"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages.0.content"),
        ({"env": "vera_mh"}, "env"),
        ({"verifier": "abstention"}, "verifier"),
        ({"task_id": 5}, "task_id"),
        ({"task_id": " "}, "task_id"),
        ({"extra": 1}, "extra"),
        ({"schema": "gavel.task/2"}, "schema"),
    ],
)
def test_a_bad_row_of_ours_is_named_by_file_line_and_field(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    bad = only_bad(read(tmp_path, own("ok"), own(**{"task_id": "b", **changes})))
    assert (bad.line, bad.error.field, bad.error.where) == (2, field, f"{tmp_path / 'tasks.jsonl'}:2")


def test_a_line_that_is_not_json_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    found = read(tmp_path, own("a"), own("b"), '{"task_id": "c", oops}', own("d"), "[1, 2]")
    assert [(bad.line, bad.task_id) for bad in found.bad] == [(3, "line:3"), (5, "line:5")]
    assert "not JSON" in found.bad[0].error.problem
    assert "oops" in found.bad[0].error.found
    assert [planned.task.task_id for planned in found.tasks] == ["a", "b", "d"]


def test_a_duplicate_id_names_both_lines_and_keeps_the_first(tmp_path: Path) -> None:
    found = read(tmp_path, own("a"), own("b"), own("a"))
    bad = only_bad(found)
    assert "lines 1 and 3" in bad.error.problem
    assert (bad.task_id, bad.error.found) == ("line:3", "a")
    assert [planned.line for planned in found.tasks] == [1, 2]


def test_the_id_of_a_bad_row_is_its_own_unless_another_row_has_it(tmp_path: Path) -> None:
    found = read(tmp_path, own("a"), own("bad", target={}), own("a", target={}))
    assert [bad.task_id for bad in found.bad] == ["bad", "line:3"]


def test_a_number_as_id_is_kept_in_the_metadata_and_clashes_with_its_text(tmp_path: Path) -> None:
    found = read(tmp_path, nemo(id=7), nemo(id="7"))
    assert (found.tasks[0].task.task_id, found.tasks[0].task.metadata["id"]) == ("7", 7)
    assert "lines 1 and 2" in only_bad(found).error.problem


def test_a_row_without_an_id_is_called_by_its_content(tmp_path: Path) -> None:
    found = read(tmp_path, nemo(id=None), nemo(id=None, answer="Schiller"), nemo(id=None))
    assert [planned.task.task_id for planned in found.tasks] == [planned.task.digest for planned in found.tasks]
    assert "lines 1 and 3" in only_bad(found).error.problem


def test_a_task_of_ours_survives_writing_and_reading(tmp_path: Path) -> None:
    task = read(tmp_path, nemo()).tasks[0].task
    again = read(tmp_path, dump_task(task))
    assert (again.source, again.tasks[0].task) == (None, task)
    assert again.tasks[0].task.digest == task.digest


def test_the_first_rows_settle_the_format_even_after_a_bad_one(tmp_path: Path) -> None:
    found = read(tmp_path, "not json", {"something": "else"}, nemo())
    assert (found.source, len(found.tasks), [bad.line for bad in found.bad]) == ("nemo_abstention_v1", 1, [1, 2])


def test_byte_order_mark_crlf_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + orjson.dumps(own("a")) + b"\r\n\r\n  \n" + orjson.dumps(own("b")))
    found = read_tasks(path, ENV)
    assert [(planned.task.task_id, planned.line) for planned in found.tasks] == [("a", 1), ("b", 4)]


def test_a_line_that_is_not_utf_8_is_one_bad_row(tmp_path: Path) -> None:
    found = read(tmp_path, own("a"), b'{"task_id": "\xff\xfe"}', own("b"))
    assert (only_bad(found).line, len(found.tasks)) == (2, 2)


def test_limit_takes_the_first_rows_bad_ones_included(tmp_path: Path) -> None:
    found = read(tmp_path, own("a"), own("b", target={}), own("c"), limit=2)
    assert ([planned.task.task_id for planned in found.tasks], [bad.task_id for bad in found.bad]) == (["a"], ["b"])
    with pytest.raises(ConfigError, match="must be positive"):
        read(tmp_path, own("a"), limit=0)


def test_adapted_rows_are_judged_by_the_environments_binding(tmp_path: Path) -> None:
    assert read(tmp_path, nemo(), binding="strict").tasks[0].task.verifier == "nemo_abstention_v1/strict"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match="empty"):
        read_tasks(path, ENV)


def test_a_missing_file_is_refused_with_the_nearest_names(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("{}")
    with pytest.raises(InputError) as refused:
        read_tasks(tmp_path / "task.jsonl", ENV)
    assert str(tmp_path / "tasks.jsonl") in refused.value.remedy
    with pytest.raises(InputError) as refused:
        read_tasks(tmp_path / "nowhere" / "tasks.jsonl", ENV)
    assert "does not exist either" in refused.value.found


def test_a_directory_is_refused_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("{}")
    with pytest.raises(InputError, match="directory") as refused:
        read_tasks(tmp_path, ENV)
    assert "tasks.jsonl" in refused.value.remedy


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PAR1\0\0\0", "binary"),
        (b"\x7fELF\0\0\n{}", "binary"),
        (b"\x1f\x8b\x08\0\0\0", "binary"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16"),
        (b'[\n {"task_id": "a"}\n]', "JSON array"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=problem):
        read_tasks(path, ENV)


def test_a_nul_byte_in_a_line_spoils_that_line_only(tmp_path: Path) -> None:
    spoilt = orjson.dumps(own("c")).replace(b"France", b"Fra\0nce")
    found = read(tmp_path, own("a"), own("b"), spoilt, own("d"))
    assert ([planned.line for planned in found.tasks], only_bad(found).line) == ([1, 2, 4], 3)
    assert str(only_bad(found).error).startswith(f"{tmp_path / 'tasks.jsonl'}:3: this line is not JSON")
    first = read(tmp_path, spoilt, own("a"), own("b"), own("d"))
    assert ([planned.line for planned in first.tasks], only_bad(first).line) == ([2, 3, 4], 1)


REPLY = {"text": "\\boxed{Paris}", "finish_reason": "stop", "model": "m"}
RECEIPT = {"call_id": "0", "role": "policy", "service": "s", "requested_model": "m", "prompt_digest": "d"}


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "reply": REPLY}], "messages.1.reply"),
        ([{"role": "user", "content": "Q", "reply": REPLY}], "messages.0.reply"),
        (
            [{"role": "user", "content": "Q"}, {"role": "user", "content": "R", "receipts": [RECEIPT]}],
            "messages.1.receipts",
        ),
        ([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}], "messages"),
        ([{"role": "system", "content": "Answer."}], "messages"),
    ],
)
def test_a_task_may_not_bring_its_own_answer(tmp_path: Path, messages: list[Any], field: str) -> None:
    bad = only_bad(read(tmp_path, own("a", messages=messages), own("b")))
    assert (bad.error.field, str(bad.error.kind), bad.task_id) == (field, "gavel:task_schema", "a")


def test_a_task_written_by_us_is_read_again_and_earlier_turns_may_be_of_the_assistant(tmp_path: Path) -> None:
    turns = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]
    (planned,) = read(tmp_path, own(messages=turns)).tasks
    raw = dump_task(planned.task)
    assert raw["messages"][2] == {"role": "assistant", "content": "assistant", "reply": None, "receipts": []}
    assert read(tmp_path, raw).tasks[0].task == planned.task


def test_rows_of_no_known_format_are_refused_with_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no format") as refused:
        read(tmp_path, {"prompt": "x"})
    assert (refused.value.found, "nemo_abstention_v1" in refused.value.allowed) == ("the fields prompt", True)


def test_a_named_source_is_taken_without_recognising(tmp_path: Path) -> None:
    bad = only_bad(read(tmp_path, {"prompt": "x"}, source="nemo_abstention_v1"))
    assert bad.error.field == "question"
    with pytest.raises(ConfigError, match="no such source"):
        read(tmp_path, nemo(), source="nemo")


def test_a_parquet_file_reads_like_the_same_rows_as_json(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra data)")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        nemo(id="law-1"),
        nemo(id="health-1", responses_create_params={"input": [{"role": "user", "content": " Who?\n"}]}),
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "tasks.parquet")
    from_parquet = read_tasks(tmp_path / "tasks.parquet", ENV)
    assert from_parquet.tasks == read(tmp_path, *rows).tasks
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="Parquet"):
        read_tasks(tmp_path / "broken.parquet", ENV)


def test_the_adapter_recognises_its_rows_even_where_a_field_is_missing() -> None:
    adapter = NemoAbstentionV1()
    assert all(
        adapter.recognises(nemo(**{field: None})) for field in ("question", "answer", "responses_create_params", "id")
    )
    assert not adapter.recognises(own())
