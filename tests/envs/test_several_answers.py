"""Several accepted answers, none at all, and rows of tables: nothing that a row says about its answers is dropped
without a word.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.abstention_support import Script, environment, task, transcript
from tests.envs.test_preparing import PROFILES
from tests.envs.test_tasks import ENV, nemo

from gavel.envs.abstention.environment import AbstentionEnvironment
from gavel.envs.abstention.metrics import summarize
from gavel.envs.abstention.rewards import OmniscienceConfig, TieredConfig, make_omniscience, make_tiered
from gavel.envs.abstention.rules import NATIVE, STRICT
from gavel.envs.abstention.source import NemoAbstentionV1
from gavel.envs.abstention.target import AbstentionTarget, AnyOfTarget, NoAnswerTarget, parse_target
from gavel.envs.interfaces.nemo_gym.shapes import find_shape
from gavel.envs.preparing import PrepareError, PrepareReport, prepare_tasks
from gavel.envs.tasks import read_tasks
from gavel.envs.types import Digests, Finish, Result, Task, TaskError, Timing
from gavel.launch.commands.schema import make_task_schema
from gavel.models.codec import dump
from gavel.models.errors import ConfigError, InputError

REPORTS = Path(__file__).parents[3] / "shared" / "data" / "reports" / "judging.jsonl"


def adapted(**changes: Any) -> Task:
    row = {key: value for key, value in nemo(**changes).items() if value != "-"}
    return NemoAbstentionV1().adapt(row, "abstention")


@pytest.mark.parametrize(
    ("changes", "references"),
    [
        ({"answer": "Ulm", "aliases": ["Ulma"]}, ("Ulm", "Ulma")),
        ({"answer": ["Ulm", "Ulma"]}, ("Ulm", "Ulma")),
        ({"answer": '["Ulm", "Ulma"]'}, ("Ulm", "Ulma")),
        ({"answer": "['Ulm', \"L'Ulm\"]"}, ("Ulm", "L'Ulm")),
        ({"answer": "Ulm", "aliases": '["Ulma"]'}, ("Ulm", "Ulma")),
        ({"answer": "Ulm", "aliases": "Ulma"}, ("Ulm", "Ulma")),
        ({"answer": "-", "answers": ["Ulm", "Ulma"]}, ("Ulm", "Ulma")),
        ({"answer": "Ulm", "aliases": ["Ulm", "Ulma", "Ulm"]}, ("Ulm", "Ulma")),
        ({"answer": "Ulm", "aliases": []}, ("Ulm",)),
        ({"answer": "Ulm", "aliases": None}, ("Ulm",)),
        ({"answer": ["Ulm"]}, ("Ulm",)),
        ({"answer": 7}, ("7",)),
        ({"answer": 2.5}, ("2.5",)),
        ({"answer": True}, ("true",)),
        ({"answer": [1789, "MDCCLXXXIX"]}, ("1789", "MDCCLXXXIX")),
        ({"answer": "[1, 2, 3]"}, ("[1, 2, 3]",)),  # what a program prints
        ({"answer": "[IDK]"}, ("[IDK]",)),
        ({"answer": "['a' 'b']"}, ("['a' 'b']",)),  # Python would read it as one text, 'ab'
        ({"answer": ['["a", "b"]']}, ('["a", "b"]',)),  # in a list, a text is the answer itself
        ({"answer": "-", "answerable": False}, ()),
        ({"answer": "", "answerable": "false"}, ()),
        ({"answer": None, "answerable": False}, ()),
        ({"answer": "Ulm", "answerable": True}, ("Ulm",)),
    ],
)
def test_a_rows_accepted_answers_are_its_answer_and_its_aliases(
    changes: dict[str, Any], references: tuple[str, ...]
) -> None:
    assert adapted(**changes).target.references == references


@pytest.mark.parametrize("name", ["aliases-ignored", "answer-list"])
def test_the_reported_rows_have_both_their_answers(name: str) -> None:
    if not REPORTS.is_file():
        pytest.skip("the reports are not here (../shared/data/reports)")
    (given,) = [
        row["input"] for row in map(json.loads, REPORTS.read_text(encoding="utf-8").splitlines()) if row["id"] == name
    ]
    answer = given[given.index('"answer"') :].split("(")[0].split(',"responses')[0].strip().rstrip("}")
    assert adapted(**json.loads("{" + answer + "}")).target == AnyOfTarget(nemo()["question"], ("Ulm", "Ulma"))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"answer": {"value": "Ulm", "aliases": ["Ulma"]}}, "answer"),
        ({"answer": [["Ulm"], ["Ulma"]]}, "answer.0"),
        ({"answer": ["Ulm", " "]}, "answer.1"),
        ({"answer": []}, "answer"),
        ({"answer": None}, "answer"),
        ({"answer": "-"}, "answer"),
        ({"answer": "Ulm", "aliases": [None]}, "aliases.0"),
        ({"answer": "Ulm", "aliases": {"a": 1}}, "aliases"),
        ({"answer": "Ulm", "answerable": "perhaps"}, "answerable"),
        ({"answer": float("nan")}, "answer"),
    ],
)
def test_every_refused_form_says_how_several_answers_and_none_are_written(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError) as refused:
        adapted(**changes)
    assert refused.value.field == field
    assert '"answer": ["…", "…"]' in str(refused.value)
    assert '"answerable": false' in str(refused.value)


def test_an_answer_of_a_question_without_answer_is_refused() -> None:
    with pytest.raises(TaskError, match="said to have none"):
        adapted(answer="Ulm", answerable=False)


def test_digest_and_bytes_of_a_task_with_one_reference_are_those_of_before() -> None:
    made = adapted(question="Q?", answer="A", responses_create_params={"input": [{"role": "user", "content": "Q?"}]})
    assert made.digest == "sha256:2e284fd7b84acd8f4e9caecbfe23d9f983cfc13814db9878a18c88604776cf65"
    assert b'"target":{"question":"Q?","reference":"A"},' in dump(made)
    assert adapted(answer=["A"]).digest == adapted(answer="A").digest


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        ({"question": "q", "reference": "a"}, AbstentionTarget("q", "a")),
        ({"question": "q", "references": ["a", "b"]}, AnyOfTarget("q", ("a", "b"))),
        ({"question": "q", "references": ["a"]}, AbstentionTarget("q", "a")),
        ({"question": "q", "answerable": False}, NoAnswerTarget("q", answerable=False)),
    ],
)
def test_a_target_is_written_in_one_of_three_forms(raw: dict[str, Any], target: Any) -> None:
    assert parse_target(raw) == target
    assert parse_target(json.loads(orjson.dumps(target))) == target


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"question": "q", "references": []}, "target.references"),
        ({"question": "q", "references": ["a", " "]}, "target.references.1"),
        ({"question": "q", "reference": ["a"]}, "target.reference"),
        ({"question": "q", "reference": None}, "target.reference"),
        ({"question": "q", "reference": "a", "references": ["b"]}, "target.reference"),
        ({"question": "q", "answerable": True}, "target.answerable"),
    ],
)
def test_a_bad_target_is_refused_by_its_field(raw: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError) as refused:
        parse_target(raw)
    assert refused.value.field == field


def test_the_schema_of_a_task_takes_all_three_forms() -> None:
    forms = make_task_schema("abstention")["$defs"]["Target"]["anyOf"]
    assert len(forms) == 3


async def graded(profile: str, text: str, target: Any, *, says: str) -> tuple[Finish, list[str]]:
    model = Script(lambda _: says)
    made: AbstentionEnvironment = environment(profile, model)
    return await made.step(replace(task(), target=target), transcript(text)), model.asked


SEVERAL = AnyOfTarget("Where was Einstein born?", ("Ulm", "Ulma", "Ulm an der Donau"))
NONE = NoAnswerTarget("Who was king of Mars in 1802?", answerable=False)


async def test_equality_with_any_accepted_answer_is_right_without_a_call() -> None:
    for answer in SEVERAL.references:
        finish, asked = await graded(STRICT, rf"\boxed{{{answer}}}", SEVERAL, says="INCORRECT")
        assert (finish.outcome.label, asked) == ("correct", [])


async def test_the_strict_judge_sees_all_accepted_answers_and_the_native_one_a_sentence_of_them() -> None:
    _, (asked,) = await graded(STRICT, r"\boxed{In Ulm}", SEVERAL, says="CORRECT")
    assert all(f"\n- {reference}" in asked for reference in SEVERAL.references)
    _, (asked,) = await graded(NATIVE, r"\boxed{In Ulm}", SEVERAL, says="A")
    assert asked == "Where was Einstein born?|Ulm or Ulma or Ulm an der Donau|In Ulm"


async def test_a_wordless_answer_is_wrong_only_where_every_accepted_answer_has_words() -> None:
    finish, _ = await graded(STRICT, r"\boxed{+}", AnyOfTarget("Which sign?", ("plus", "+")), says="INCORRECT")
    assert finish.outcome.label == "correct"
    finish, asked = await graded(STRICT, r"\boxed{-}", AnyOfTarget("Which sign?", ("plus", "+")), says="INCORRECT")
    assert (finish.outcome.label, len(asked)) == ("incorrect", 1)


@pytest.mark.parametrize(
    ("profile", "text", "says", "label", "abstention"),
    [
        (STRICT, r"\boxed{[IDK]}", "INCORRECT", "correct", "explicit"),
        (STRICT, r"\boxed{Nobody was.}", "CORRECT", "correct", "judged"),
        (STRICT, r"\boxed{I cannot know}", "NOT_ATTEMPTED", "correct", "judged"),
        (STRICT, r"\boxed{Ares}", "INCORRECT", "incorrect", None),
        (STRICT, r"\boxed{}", "CORRECT", "incorrect", None),
        (NATIVE, r"\boxed{[IDK]}", "B", "correct", "explicit"),
        (NATIVE, r"\boxed{Nobody was.}", "C", "correct", "judged"),
        (NATIVE, r"\boxed{Ares}", "B", "incorrect", None),
        (STRICT, "", "CORRECT", "no_answer", None),
    ],
)
async def test_where_no_answer_is_right_to_abstain_is_right_and_to_answer_is_wrong(
    profile: str, text: str, says: str, label: str, abstention: str | None
) -> None:
    finish, _ = await graded(profile, text, NONE, says=says)
    assert (finish.outcome.label, (finish.outcome.details or {}).get("abstention")) == (label, abstention)
    value = make_tiered(TieredConfig()).reward(finish.outcome).value
    assert value == (1.0 if label == "correct" else 0.0)
    assert make_omniscience(OmniscienceConfig()).reward(finish.outcome).value == {
        "correct": 1.0,
        "incorrect": -1.0,
    }.get(label, 0.0)


async def test_an_abstention_that_is_right_is_no_attempt_and_counts_as_an_abstention() -> None:
    rows = [
        row(f"t{place}", (await graded(STRICT, text, NONE, says="INCORRECT"))[0])
        for place, text in enumerate(("[IDK]", "Ares"))
    ]
    metrics = summarize(rows).metrics
    found = {
        name: metrics[f"abstention/{name}"].value
        for name in ("accuracy", "abstention_rate", "attempted_accuracy", "hallucination_rate")
    }
    assert found == {"accuracy": 0.5, "abstention_rate": 0.5, "attempted_accuracy": 0.0, "hallucination_rate": 1.0}


def row(task_id: str, finish: Finish, **metadata: Any) -> Result:
    reward = make_tiered(TieredConfig()).reward(finish.outcome)
    return Result(
        task_id,
        "sha256:0",
        0,
        1,
        "graded",
        transcript(""),
        finish.outcome,
        reward,
        (),
        Timing(0.0, 0.0, 0.0, 0.0),
        Digests("sha256:0", {}),
        metadata,
    )


@pytest.mark.parametrize("references", [("Ulm",), ("Ulm", "Ulma"), ('["a", "b"]',), ()])
def test_a_row_of_nemo_gyms_form_keeps_its_accepted_answers(references: tuple[str, ...]) -> None:
    shape = find_shape("abstention")
    target = adapted(answer=list(references), **({} if references else {"answerable": False})).target
    assert shape.target(json.loads(orjson.dumps({"question": target.question, **shape.fields(target, "id")}))) == target


def prepared(tmp_path: Path, name: str, text: str | bytes, **options: Any) -> tuple[PrepareReport, list[str]]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    warned: list[str] = []
    report = prepare_tasks(
        {"name": "nemo_abstention_v1", "path": str(path), **options},
        tmp_path / "out",
        profiles=PROFILES,
        warn=warned.append,
    )
    return report, warned


def tasks(tmp_path: Path) -> list[Task]:
    return [planned.task for planned in read_tasks(tmp_path / "out" / "tasks.jsonl", ENV).tasks]


def test_the_rows_own_domain_is_its_slice_and_is_derived_only_where_there_is_none(tmp_path: Path) -> None:
    rows = [
        nemo(id="q1", domain="law"),
        nemo(id="health-2", domain="law"),
        nemo(id="health-3"),
        nemo(id="q4", domain=" "),
        nemo(id="q5", domain=3),
    ]
    report, _ = prepared(tmp_path, "x.jsonl", b"".join(orjson.dumps(item) + b"\n" for item in rows))
    assert report.domains == {"3": 1, "health": 1, "law": 2, "other": 1}


def test_fields_of_ones_own_slice_the_figures(tmp_path: Path) -> None:
    rows = [nemo(id="q1", level="hard", year=1990), nemo(id="q2", level="easy", year=1990), nemo(id="q3", year=1991)]
    prepared(tmp_path, "x.jsonl", b"".join(orjson.dumps(item) + b"\n" for item in rows), slice_fields=["level", "year"])
    made = tasks(tmp_path)
    assert [item.metadata["slices"] for item in made] == [
        {"level": "hard", "year": "1990"},
        {"level": "easy", "year": "1990"},
        {"level": "(none)", "year": "1991"},
    ]


async def test_figures_of_slices_are_named_by_field_and_value() -> None:
    finish, _ = await graded(STRICT, r"\boxed{Ulm}", SEVERAL, says="INCORRECT")
    metrics = summarize(
        [row("a", finish, slices={"level": "hard"}), row("b", finish, slices={"level": "easy"})]
    ).metrics
    assert metrics["abstention/accuracy@level=hard"].n == 1
    assert metrics["abstention/accuracy@level=easy"].value == 1.0


@pytest.mark.parametrize("options", [{"slice_fields": ["topic"]}, {"slice_fields": ["id"]}])
def test_a_field_that_slices_nothing_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    rows = b"".join(orjson.dumps(nemo(id=f"q{place}")) + b"\n" for place in range(120))
    with pytest.raises(ConfigError, match=r"source\.slice_fields"):
        prepared(tmp_path, "x.jsonl", rows, **options)


def test_a_field_with_a_list_is_no_slice(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match="tags: figures cannot be sliced by this"):
        prepared(tmp_path, "x.jsonl", orjson.dumps(nemo(tags=["a"])), slice_fields=["tags"])


def test_lists_that_are_read_out_of_texts_are_said(tmp_path: Path) -> None:
    _, warned = prepared(tmp_path, "x.jsonl", orjson.dumps(nemo(answer='["Ulm", "Ulma"]')))
    assert any("1 of the rows have a list" in text for text in warned)


HEADER = "id,question,answer,aliases,domain,prompt"


@pytest.mark.parametrize(("name", "sign"), [("x.csv", ","), ("x.tsv", "\t"), ("X.CSV", ",")])
def test_a_table_reads_like_the_same_rows_as_json(tmp_path: Path, name: str, sign: str) -> None:
    cells = ['"a1"', '"Where, ""exactly"",\nwas it?"', "Ulm", '"[""Ulma""]"', "law", "Where was it?"]
    text = (
        "\ufeff"
        + HEADER.replace(",", sign)
        + "\r\n"
        + sign.join(cells)
        + "\r\n\r\n"
        + sign.join(["2", "Q?", "7", "", "", "Q?"])
    )
    prepared(tmp_path, name, text)
    first, second = tasks(tmp_path)
    assert first.target == AnyOfTarget('Where, "exactly",\nwas it?', ("Ulm", "Ulma"))
    assert (first.task_id, first.metadata["domain"], second.metadata["domain"]) == ("a1", "law", "other")
    assert second.target == AbstentionTarget("Q?", "7")
    assert [message.content for message in second.messages] == ["Q?"]


def test_a_table_holds_objects_as_json_or_in_columns_with_dots(tmp_path: Path) -> None:
    messages = '"[{""role"": ""user"", ""content"": ""Q?""}]"'
    prepared(tmp_path, "a.csv", f"question,answer,responses_create_params.input\nQ?,A,{messages}\n")
    (dotted,) = tasks(tmp_path)
    whole = '"{""input"": [{""role"": ""user"", ""content"": ""Q?""}]}"'
    prepared(tmp_path, "b.csv", f"question,answer,responses_create_params\nQ?,A,{whole}\n")
    assert tasks(tmp_path) == [dotted]


def test_bad_rows_of_a_table_are_named_by_the_line_they_begin_on(tmp_path: Path) -> None:
    text = HEADER + '\nq1,"two\nlines",A,,,Q\nq2,Q?,A\nq3,,A,,,Q\nq4,Q?,A,,,Q,more\nq5,"a"b,A,,,Q\nq6,Q\xff,A,,,Q\n'
    with pytest.raises(PrepareError) as refused:
        prepared(tmp_path, "x.csv", text.encode("latin-1"))
    places = [str(error.where).rpartition(":")[2] for error in refused.value.errors]
    assert places == ["4", "5", "6", "7", "8"]
    assert [error.field for error in refused.value.errors][1::3] == ["question", "question"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("x.csv", "id;question;answer\n1;Q;A\n", "no commas"),
        ("x.csv", "id\tquestion\tanswer\n1\tQ\tA\n", "no commas"),
        ("x.tsv", "id,question,answer\n1,Q,A\n", "no tabs"),
        ("x.csv", "id,answer,answer\n1,Q,A\n", "twice"),
        ("x.csv", "id,,answer\n1,Q,A\n", "no name"),
        ("x.csv", "", "empty"),
        ("x.csv", "id,question\n", "empty"),
        ("x.csv", "id,question\n".encode("utf-16"), "UTF-16"),
        ("x.csv", b"PK\x03\x04\0\0", "binary"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(tmp_path: Path, name: str, text: str | bytes, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        prepared(tmp_path, name, text)


def test_the_table_that_the_page_shows_is_one_that_can_be_prepared(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "prepare.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```\n(id,.*?)```", page, re.DOTALL)
    prepared(tmp_path, "x.csv", table)
    (made,) = tasks(tmp_path)
    assert made.target.references == ("Nairobi", "Nairobi City")
    assert [message.role for message in made.messages] == ["system", "user"]


def test_protected_questions_may_stand_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "bench.csv").write_text("question,answer\nWho wrote it?,X\n")
    rows = b"".join(orjson.dumps(nemo(id=text, question=text)) + b"\n" for text in ("Who wrote it?", "Who did not?"))
    report, _ = prepared(tmp_path, "x.jsonl", rows, protected=[str(tmp_path / "bench.csv")])
    assert report.dropped == {"text": ("Who wrote it?",)}
