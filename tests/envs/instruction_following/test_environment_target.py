"""Rows that are not valid are refused before anything is graded, with the field, what was found and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.envs.instruction_following.environment_support import instruction, question

from gavel.envs.instruction_following.instructions import LanguageUnsupported
from gavel.envs.instruction_following.target import InstructionTarget, parse_target
from gavel.envs.types import TaskError
from gavel.models.codec import to_plain
from gavel.models.failures import FailureKind

COMMA = "punctuation:no_comma"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "instruction_following"


def target(*instructions: Any, questions: Any = (), **more: Any) -> dict[str, Any]:
    return {"instructions": list(instructions), "llm_judge": list(questions), **more}


def without(item: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != field}


GOOD = instruction(COMMA)
ASKED = question("Is it short?")

# One row for each schema error of the row form, and where its error must point.
SCHEMA = [
    (target("text"), "target.instructions.0"),
    (target(without(GOOD, "instruction_id")), "target.instructions.0.instruction_id"),
    (target({**GOOD, "instruction_id": ""}), "target.instructions.0.instruction_id"),
    (target({**GOOD, "instruction_id": ["x"]}), "target.instructions.0.instruction_id"),
    (target({**GOOD, "instruction_id": "punctuation:no_comas"}), "target.instructions.0.instruction_id"),
    (target(instruction("length_constraints:number_words", relation="at least")), "target.instructions.0.num_words"),
    (
        target(instruction("length_constraints:number_words", relation="at most", num_words=3)),
        "target.instructions.0.relation",
    ),
    (target(without(GOOD, "uid")), "target.instructions.0.uid"),
    (target({**GOOD, "uid": None}), "target.instructions.0.uid"),
    (target({**GOOD, "uid": [1]}), "target.instructions.0.uid"),
    (target({**GOOD, "uid": True}), "target.instructions.0.uid"),
    (target(GOOD, instruction(COMMA, uid=1)), "target.instructions.1.uid"),
    (target(GOOD, questions=[question("Is it short?", uid=1)]), "target.llm_judge.0.uid"),
    (target(without(GOOD, "source")), "target.instructions.0.source"),
    (target({**GOOD, "source": "assistant"}), "target.instructions.0.source"),
    (target(without(GOOD, "is_misalignment_check")), "target.instructions.0.is_misalignment_check"),
    (target({**GOOD, "is_misalignment_check": 1}), "target.instructions.0.is_misalignment_check"),
    (target({**GOOD, "weight": -1}), "target.instructions.0.weight"),
    (target({**GOOD, "weight": 10**400}), "target.instructions.0.weight"),
    (target({**GOOD, "weight": float("inf")}), "target.instructions.0.weight"),
    (target({**GOOD, "weight": float("nan")}), "target.instructions.0.weight"),
    (target({**GOOD, "weight": True}), "target.instructions.0.weight"),
    (target({**GOOD, "weight": 0}), "target.instructions"),
    (target(GOOD, questions=["text"]), "target.llm_judge.0"),
    (target(questions=[without(ASKED, "content")]), "target.llm_judge.0.content"),
    (target(questions=[{**ASKED, "content": "  "}]), "target.llm_judge.0.content"),
    (target(questions=[{**ASKED, "pass_criteria": "MAYBE"}]), "target.llm_judge.0.pass_criteria"),
    (target(questions=[without(ASKED, "uid")]), "target.llm_judge.0.uid"),
    (target(questions=[without(ASKED, "source")]), "target.llm_judge.0.source"),
    (target(questions=[without(ASKED, "is_misalignment_check")]), "target.llm_judge.0.is_misalignment_check"),
    ({"instructions": {"a": 1}}, "target.instructions"),
    (target(GOOD, language=3), "target.language"),
    (target(GOOD, prompt=["x"]), "target.prompt"),
    (target(), "target.instructions"),
    ({}, "target.instructions"),
]


@pytest.mark.parametrize(("raw", "field"), SCHEMA)
def test_every_schema_error_names_its_field_and_what_is_allowed(raw: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError) as refused:
        parse_target(raw)
    assert (refused.value.field, refused.value.kind) == (field, FailureKind.TASK_SCHEMA)
    assert refused.value.allowed
    assert not isinstance(refused.value, LanguageUnsupported)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (target(GOOD, language="EN"), "target.language"),
        (target(GOOD, language="nl"), "target.language"),
        (target(GOOD, language=""), "target.language"),
        (
            target(GOOD, instruction("change_case:all_caps", uid=2), language="ja"),
            "target.instructions.1.instruction_id",
        ),
        (
            target(instruction("keywords:vowel_count", relation="at least", num_vowels=1), language="ar"),
            "target.instructions.0.instruction_id",
        ),
    ],
)
def test_every_language_error_is_a_kind_of_its_own(raw: dict[str, Any], field: str) -> None:
    with pytest.raises(LanguageUnsupported) as refused:
        parse_target(raw)
    assert (refused.value.field, refused.value.kind) == (field, FailureKind.LANGUAGE_UNSUPPORTED)
    assert refused.value.allowed


def test_a_bad_schema_is_reported_before_a_bad_language() -> None:
    with pytest.raises(TaskError) as refused:
        parse_target(target({**GOOD, "source": "x"}, language="nl"))
    assert refused.value.kind is FailureKind.TASK_SCHEMA


def test_all_problems_of_a_task_are_named_one_for_each_item() -> None:
    with pytest.raises(TaskError) as refused:
        parse_target(
            target({**GOOD, "source": "x", "weight": -1}, GOOD, {**GOOD, "uid": 2, "is_misalignment_check": "no"})
        )
    text = str(refused.value)
    assert refused.value.field == "target.instructions.0.source"
    # the uid of the first item was taken before it failed, so the second one repeats it
    assert [name in text for name in ("instructions.1.uid", "instructions.2.is_misalignment_check")] == [True, True]
    assert "instructions.0.weight" not in text


def test_a_row_of_the_peers_form_is_read_whatever_else_it_holds() -> None:
    given = instruction(
        "length_constraints:number_words",
        uid="a",
        relation="at_least",
        num_words=5,
        keyword=None,
        note="surplus",
        weight=2,
    )
    read = parse_target(target(given, questions=[{**ASKED, "pass_criteria": None}], language="pt"))
    item = read.instructions[0]
    assert (item.uid, item.weight, dict(item.arguments)) == ("a", 2.0, {"relation": "at_least", "num_words": 5})
    assert (read.language, read.llm_judge[0].pass_criteria, read.items[1].name) == ("pt-BR", "YES", "llm_judge_9")


def test_uids_1_and_text_1_are_two_uids_and_zero_is_one() -> None:
    assert (
        len(
            parse_target(
                target(instruction(COMMA, uid=1), instruction(COMMA, uid="1"), instruction(COMMA, uid=0))
            ).items
        )
        == 3
    )


def test_a_target_reads_back_what_it_was_stored_as() -> None:
    read = parse_target(
        target(
            instruction("change_case:case_ratio", min_fraction="1/2", max_fraction="inf"),
            questions=[ASKED],
            prompt="Go",
        )
    )
    assert parse_target(orjson.loads(orjson.dumps(to_plain(read)))) == read
    assert parse_target(read) is read  # type: ignore[arg-type]


def test_no_language_is_english() -> None:
    assert parse_target({"instructions": [GOOD]}).language == "en"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared vectors are not here")
def test_the_known_bad_arguments_are_refused_and_the_good_ones_accepted() -> None:
    lines = [
        orjson.loads(line)
        for name in ("cases", "defects")
        for line in (SHARED / f"{name}.jsonl").read_bytes().splitlines()
    ]
    seen = 0
    for line in lines:
        raw = target(instruction(line["instruction_id"], **line["kwargs"]), language=line["language"])
        if line["upstream_verdict"] == "unsupported" != line["right_verdict"]:
            continue  # whether such an instruction exists is the instruction table's choice
        wanted = {"schema_error": TaskError, "unsupported": LanguageUnsupported}.get(line["right_verdict"])
        if wanted is None:
            assert isinstance(parse_target(raw), InstructionTarget), line
            continue
        seen += 1
        with pytest.raises(wanted) as refused:
            parse_target(raw)
        assert type(refused.value) is wanted, line
    assert seen > 20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=8,
)  # fmt: skip
FIELDS = st.sampled_from(
    [
        "instruction_id",
        "uid",
        "source",
        "is_misalignment_check",
        "weight",
        "content",
        "pass_criteria",
        "arguments",
        "num_words",
    ]
)


@given(st.dictionaries(FIELDS, JSON, max_size=6), st.dictionaries(FIELDS, JSON, max_size=6), JSON)
def test_whatever_a_row_holds_it_is_read_or_refused(
    first: dict[str, Any], second: dict[str, Any], language: Any
) -> None:
    raw = {"instructions": [{**GOOD, **first}], "llm_judge": [{**ASKED, **second}], "language": language}
    try:
        read, field = parse_target(raw), "target."
    except TaskError as refused:
        read, field = None, refused.field
    assert read is None or read.items
    assert field.startswith("target.")


def test_a_target_that_was_read_before_is_told_from_one_that_only_looks_like_it() -> None:
    def raw(value: object) -> dict[str, object]:
        item = {"uid": 1, "instruction_id": "length:max_word_count", "source": "user", "is_misalignment_check": False}
        return {"instructions": [{**item, "max_words": value}]}

    assert parse_target(raw(1)) == parse_target(raw(1))
    for value in (True, 1.0, float("nan"), None, "1"):
        with pytest.raises(TaskError):
            parse_target(raw(value))
    changed = raw(1)
    parse_target(changed)
    changed["language"] = "de"
    assert parse_target(changed).language == "de"
