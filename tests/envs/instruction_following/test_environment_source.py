"""Rows of the source become tasks or are refused, conflicts are reported, and the shipped samples keep their
promises.
"""

from __future__ import annotations

import runpy
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.envs.instruction_following.environment_support import VERIFIER, environment, instruction, question, row

from gavel.envs.instruction_following import checking
from gavel.envs.instruction_following.checks import punctuation as checks_punctuation
from gavel.envs.instruction_following.environment import NAME, InstructionFollowingConfig
from gavel.envs.instruction_following.instructions import INSTRUCTIONS, LanguageUnsupported
from gavel.envs.instruction_following.judged import check_text
from gavel.envs.instruction_following.languages import LANGUAGES
from gavel.envs.instruction_following.rewards import AGGREGATES
from gavel.envs.instruction_following.source import Verifif, find_conflicts
from gavel.envs.instruction_following.target import InstructionTarget, parse_target
from gavel.envs.preparing import prepare_tasks
from gavel.envs.source_files import SourceConfig
from gavel.envs.tasks import read_tasks
from gavel.envs.types import Task, TaskError
from gavel.judges.rubrics.gavel_instruction_following import PROFILE
from gavel.judges.types import BindingConfig, Judging, RubricConfig
from gavel.launch.compose.compose import compose_config
from gavel.models.codec import decode, dump, to_plain
from gavel.models.failures import FailureKind
from gavel.models.types import Message

COMMA = "punctuation:no_comma"
SOURCE = Verifif()


def test_a_row_becomes_a_task_with_its_messages_as_they_are() -> None:
    given = row(54585, [instruction(COMMA)], [question("Kurz?")], "de")
    given["responses_create_params"] = {
        "input": [{"role": "system", "content": " Sei kurz.\n"}, {"role": "user", "content": "Na?"}]
    }
    task = SOURCE.adapt(given, "instruction_following")
    assert (task.task_id, task.env, task.verifier) == ("54585", NAME, VERIFIER)
    assert task.messages == (Message("system", " Sei kurz.\n"), Message("user", "Na?"))
    assert isinstance(task.target, InstructionTarget)
    assert (task.target.language, task.metadata["domain"]) == ("de", "de")


@pytest.mark.parametrize(
    ("change", "content"),
    [
        ({"responses_create_params": {"input": "Say it."}}, "Say it."),
        (
            {
                "responses_create_params": {
                    "input": [{"role": "user", "content": [{"type": "input_text", "text": "Say"}, {"text": " it."}]}]
                }
            },
            "Say it.",
        ),
        ({"responses_create_params": None, "prompt": "Say it."}, "Say it."),
    ],
)
def test_each_form_of_a_request_is_read(change: dict[str, object], content: str) -> None:
    assert SOURCE.adapt({**row(1, [instruction(COMMA)]), **change}, "b").messages == (Message("user", content),)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"responses_create_params": {"input": []}}, "responses_create_params.input"),
        ({"responses_create_params": {}}, "responses_create_params.input"),
        (
            {"responses_create_params": {"input": [{"role": "robot", "content": "x"}]}},
            "responses_create_params.input.0.role",
        ),
        (
            {"responses_create_params": {"input": [{"role": "user", "content": " "}]}},
            "responses_create_params.input.0.content",
        ),
        (
            {"responses_create_params": {"input": [{"role": "assistant", "content": "x"}]}},
            "responses_create_params.input",
        ),
        ({"id": True}, "id"),
        ({"instructions": [{"instruction_id": COMMA}]}, "instructions.0.uid"),
    ],
)
def test_a_bad_row_is_refused_with_its_own_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(TaskError) as refused:
        SOURCE.adapt({**row(1, [instruction(COMMA)]), **change}, "b")
    assert refused.value.field == field


def test_a_file_of_good_and_bad_rows_gives_both_with_their_kinds_and_places(tmp_path: Path) -> None:
    rows = [
        row(1, [instruction(COMMA)]),
        row(2, [instruction(COMMA)], language="nl"),
        row(3, []),
        row(4, [], [question("Short?")], "fr"),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in rows))
    read = read_tasks(path, environment())
    assert read.source == "verifif"
    assert [(task.task.task_id, task.line) for task in read.tasks] == [("1", 1), ("4", 4)]
    assert [(bad.task_id, bad.line, bad.error.kind) for bad in read.bad] == [
        ("2", 2, FailureKind.LANGUAGE_UNSUPPORTED),
        ("3", 3, FailureKind.TASK_SCHEMA),
    ]
    assert isinstance(read.bad[0].error, LanguageUnsupported)
    assert read.bad[0].error.where == f"{path}:2"


def test_a_task_of_ours_reads_as_what_the_source_gave(tmp_path: Path) -> None:
    task = SOURCE.adapt(
        row(1, [instruction("change_case:case_ratio", min_fraction="1/2", max_fraction="inf")]), "instruction_following"
    )
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(dump(task) + b"\n")
    again = read_tasks(path, environment()).tasks[0].task
    assert (again.target, again.digest) == (task.target, task.digest)


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        ("change_case:all_caps", "change_case:lowercase", True),
        ("change_case:lowercase", "change_case:last_letter", True),
        ("change_case:alternating", "change_case:alternating_target", True),
        ("change_case:alternating", "change_case:last_letter", False),
        ("startend:wrap_checker", "startend:quotation", True),
        ("punctuation:no_period", "detectable_format:numbered_list", True),
        ("punctuation:no_period", COMMA, False),
        (COMMA, COMMA, False),
    ],
)
def test_conflicting_instructions_are_reported(first: str, second: str, conflict: bool) -> None:
    arguments = {name: value for name in (first, second) for name, value in ARGUMENTS.get(name, {}).items()}
    target = parse_target(
        {"instructions": [instruction(first, uid=1, **arguments), instruction(second, uid=2, **arguments)]}
    )
    assert find_conflicts(target) == ((f"{first} + {second}",) if conflict else ())


ARGUMENTS = {
    "change_case:last_letter": {"case": "digit"},
    "change_case:alternating_target": {"target_string": "x"},
    "startend:wrap_checker": {"wrap_phrase": "x"},
    "detectable_format:numbered_list": {"relation": "at least", "num_numbered_items": 1},
}


def test_an_instruction_against_misalignment_conflicts_with_nothing() -> None:
    against = instruction("change_case:lowercase", uid=2, source="user", misalignment=True)
    assert find_conflicts(parse_target({"instructions": [instruction("change_case:all_caps"), against]})) == ()


@pytest.mark.parametrize("name", [name for name, entry in INSTRUCTIONS.items() if entry.kind == "judged"])
def test_every_judged_instruction_has_a_check_in_words_with_its_values_defined(name: str) -> None:
    entry = INSTRUCTIONS[name]
    arguments = {argument.name: next(iter(argument.values), None) for argument in entry.arguments}
    arguments |= {key: "at least" if key == "relation" else 3 for key, value in arguments.items() if value is None}
    text = check_text(parse_target({"instructions": [instruction(name, **arguments)]}).items[0])
    assert text is not None
    assert entry.definition in text
    for argument in entry.arguments:
        if argument.values:
            assert argument.values[arguments[argument.name]] in text
    assert ("at least 3" in text) == (entry.mode == "counts")


@pytest.fixture(scope="module")
def samples() -> list[Task]:
    path = Path(str(files("gavel.envs") / "instruction_following" / "data" / "samples.jsonl"))
    read = read_tasks(path, environment())
    assert read.bad == ()
    return [planned.task for planned in read.tasks]


def test_there_are_at_least_three_samples_in_each_of_the_eleven_languages(samples: list[Task]) -> None:
    counts = Counter(task.target.language for task in samples)
    assert set(counts) == set(LANGUAGES)
    assert min(counts.values()) >= 3
    assert len({task.digest for task in samples}) == len({task.task_id for task in samples}) == len(samples)


def test_the_samples_use_every_kind_of_item_in_every_language(samples: list[Task]) -> None:
    for code in LANGUAGES:
        items = [item for task in samples if task.target.language == code for item in task.target.items]
        kinds = {INSTRUCTIONS[item.name].kind if item.name in INSTRUCTIONS else "custom" for item in items}
        assert kinds == {"fast", "judged", "custom"}, code
    assert any(item.is_misalignment_check and item.source == "user" for task in samples for item in task.target.items)


def test_the_samples_are_stored_byte_for_byte_as_the_codec_writes_them(samples: list[Task]) -> None:
    data = (files("gavel.envs") / "instruction_following" / "data" / "samples.jsonl").read_bytes()
    assert b"".join(dump(task) + b"\n" for task in samples) == data
    assert {(task.verifier, task.metadata["licence"], task.metadata["source"]) for task in samples} == {
        (VERIFIER, "CC0-1.0", "gavel")
    }
    assert not [task.task_id for task in samples if find_conflicts(task.target)]


CONF = Path(__file__).parents[3] / "conf"


def config(group: str, name: str) -> Any:
    return yaml.safe_load((CONF / group / f"{name}.yaml").read_text())


def test_the_configs_hold_every_option_at_its_default() -> None:
    loaded = config("env", "instruction_following")
    assert loaded["env"] == {"name": NAME, **to_plain(InstructionFollowingConfig())}
    rubric = decode(RubricConfig, loaded["rubrics"]["instruction_following"])
    assert (rubric, set(loaded["rubrics"]["instruction_following"])) == (
        RubricConfig(PROFILE, 512, 0.0),
        set(to_plain(rubric)),
    )
    assert decode(Judging, loaded["judging"]).bindings == {
        "instruction_following": BindingConfig("general", "instruction_following")
    }
    assert decode(SourceConfig, config("source", "verifif")) == SourceConfig("verifif", binding="instruction_following")
    assert set(config("source", "verifif")) == set(to_plain(SourceConfig("x")))
    for name in AGGREGATES:
        assert config("reward", name) == {"name": name}


@pytest.mark.parametrize(
    ("verb", "words", "section", "expected"),
    [
        ("rollout", ["env=instruction_following"], "reward", "all"),
        ("rollout", ["env=instruction_following", "reward=mean"], "reward", "mean"),
        ("rollout", ["experiment=demo_instruction_following"], "reward", "mean"),
        ("rollout", ["experiment=demo_instruction_following", "reward=min"], "reward", "min"),
        ("rollout", ["env=abstention"], "reward", "tiered"),
        ("prepare", ["env=instruction_following"], "source", "verifif"),
        ("prepare", ["env=abstention"], "source", "nemo_abstention_v1"),
    ],
)
def test_the_environment_chooses_its_reward_and_source_unless_somebody_else_does(
    verb: str, words: list[str], section: str, expected: str
) -> None:
    models = [] if verb == "prepare" or "experiment" in words[0] else ["policy=smollm2", "judge=smollm2"]
    assert getattr(compose_config(verb, [*words, *models]), section)["name"] == expected


def test_preparing_says_how_many_misalignment_checks_of_the_system_are_not_flipped(tmp_path: Path) -> None:
    told: list[str] = []
    given = [
        row(1, [{**instruction(COMMA), "source": "system", "is_misalignment_check": True}]),
        row(2, [{**instruction(COMMA), "source": "user", "is_misalignment_check": True}]),
    ]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in given))
    source = {"name": "verifif", "path": str(tmp_path / "rows.jsonl")}
    prepare_tasks(source, tmp_path / "out", profiles={"instruction_following": PROFILE}, warn=told.append)
    assert [text for text in told if text.startswith("misalignment: 1 instructions")]


def test_an_instruction_of_the_table_without_a_function_is_refused_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = {name: check for name, check in checks_punctuation.PUNCTUATION.items() if name != COMMA}
    with monkeypatch.context() as patched:
        patched.setattr(checks_punctuation, "PUNCTUATION", lacking)
        with pytest.raises(ImportError, match=COMMA):
            runpy.run_path(str(checking.__file__), run_name="checking_again")
