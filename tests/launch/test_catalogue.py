"""`gavel list` and `gavel schema`: what can be chosen, and what a task must be."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from gavel.envs.plugins import find_added
from gavel.envs.registry import ENVIRONMENTS, REWARDS, SOURCES
from gavel.judges.rubrics.table import PROFILES
from gavel.launch.cli.command_line import main
from gavel.launch.commands.list import KINDS, list_items
from gavel.launch.commands.schema import make_task_schema
from gavel.launch.config.groups import CONF, list_choices, search_path

ENVS = sorted(ENVIRONMENTS)


def _listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["list", *words, "format=json"]) == 0
    found: list[dict[str, Any]] = orjson.loads(capsys.readouterr().out)
    return found


def test_everything_that_can_be_chosen_is_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    items = _listed(capsys)
    by_kind = {kind: {item["name"] for item in items if item["kind"] == kind} for kind in KINDS}
    assert by_kind["environments"] == set(ENVIRONMENTS) | set(find_added("env"))  # plugins may be installed
    assert by_kind["rewards"] == set(REWARDS) | set(find_added("reward"))
    assert by_kind["sources"] >= set(SOURCES)
    assert by_kind["rubrics"] == set(PROFILES) | set(find_added("rubric"))
    for kind, group in KINDS.items():
        if group is not None:
            assert by_kind[kind] == set(list_choices(group, search_path(())))
    assert [item["name"] for item in items if len(item["summary"]) < 10] == []
    assert {item["name"]: item["of"] for item in items if item["kind"] == "rewards"}["omniscience"] == "abstention"


def test_one_kind_is_listed_as_text_with_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "rewards"]) == 0
    out = capsys.readouterr().out
    assert "reward=tiered" in out
    assert "judge=" not in out
    assert "The v1 objective is 1, 0.5, 0" in " ".join(out.split())


def test_descriptions_are_whole_sentences_and_say_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    items = {item["choose"]: item["summary"] for item in _listed(capsys)}
    assert (
        items["experiment=abstention_qwen3_1p7b"] == "Qwen3-1.7B learns to answer or to abstain, judged by Qwen3-32B."
    )
    assert items["experiment=reward_ablation"] == "The same training under several rewards."
    assert items["reward=any"] == "1 if at least one item passed, else 0."
    assert items["trainer=cpu_smoke"].endswith("before GPUs are spent.")
    assert {choose: text for choose, text in items.items() if not text.endswith((".", ".)"))} == {}


def test_choices_of_a_folder_of_ones_own_are_listed_and_take_the_place_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "mine.yaml").write_text("# Our judge on the second floor.\nmode: external\n")
    (tmp_path / "judge" / "external.yaml").write_text(
        "# @package _global_\n# Another one,\n# on two lines. And more.\n\njudge: {}\n"
    )
    (tmp_path / "judge" / "silent.yaml").write_text("mode: external\n# not a description\n")
    found = {item["name"]: item for item in _listed(capsys, "judges", "--config-dir", str(tmp_path))}
    assert found["mine"]["summary"] == "Our judge on the second floor."
    assert found["mine"]["choose"] == "judge=mine"
    assert found["external"]["summary"] == "Another one, on two lines."
    assert found["external"]["file"] == str(tmp_path / "judge" / "external.yaml")
    assert found["silent"]["summary"] == ""
    assert "qwen3_32b" in found


def test_what_is_no_config_file_is_no_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "judge" / "folder.yaml").mkdir(parents=True)
    (tmp_path / "judge" / "gone.yaml").symlink_to("nowhere")
    (tmp_path / "judge" / "circle.yaml").symlink_to("circle.yaml")
    (tmp_path / "judge" / "bytes.yaml").write_bytes(b"# \xff\x00")
    names = {item["name"] for item in _listed(capsys, "judges", "--config-dir", str(tmp_path))}
    assert names == {"bytes", *list_choices("judge", [CONF])}


def test_an_unknown_kind_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "reward"]) == 2
    assert "did you mean `gavel list rewards`?" in capsys.readouterr().err
    assert main(["list", "rewards", "judges"]) == 2
    assert "judges" in capsys.readouterr().err


def _samples(env: str) -> list[dict[str, Any]]:
    text = resources.files("gavel").joinpath("envs", env, "data", "samples.jsonl").read_bytes()
    return [orjson.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("env", [env for env in ENVS if env != "judged"])  # whose rows and targets are the user's own
def test_the_schema_takes_every_shipped_row_and_refuses_a_wrong_one(env: str) -> None:
    schema = make_task_schema(env)
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema)
    rows = _samples(env)
    assert rows
    for row in rows:
        valid.validate(row)
    row = rows[0]
    wrong: list[dict[str, Any]] = [
        {**row, "schema": "gavel.task/2"},
        {**row, "env": "another"},
        {**row, "task_id": " "},
        {**row, "verifier": "none"},
        {**row, "messages": []},
        {**row, "surplus": 1},
        {key: value for key, value in row.items() if key != "target"},
        {**row, "target": {}},
        {**row, "target": {**row["target"], "surplus": 1}},
        {**row, "messages": [{"role": "robot", "content": "Hello"}]},
        {**row, "messages": [{**row["messages"][0], "reply": {"text": "I know it already"}}]},
    ]
    if env != "vera_mh":  # whose persona speaks first
        wrong.append({**row, "messages": [{"role": "system", "content": "Be brief."}]})
    for bad in wrong:
        assert not valid.is_valid(bad), bad


def test_every_field_of_a_target_is_in_the_schema() -> None:
    abstention = make_task_schema("abstention")["$defs"]
    forms = [abstention[form["$ref"].rpartition("/")[2]] for form in abstention["Target"]["anyOf"]]
    assert [set(form["properties"]) - {"question"} for form in forms] == [{"reference"}, {"references"}, {"answerable"}]
    items = make_task_schema("instruction_following")["$defs"]
    assert set(items["QuestionItem"]["properties"]) == {
        "uid",
        "content",
        "source",
        "is_misalignment_check",
        "pass_criteria",
        "weight",
    }
    assert set(make_task_schema("vera_mh")["$defs"]["Target"]["properties"]) == {"persona", "simulator"}


def test_the_schema_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "abstention"]) == 0
    assert orjson.loads(capsys.readouterr().out) == make_task_schema("abstention")
    assert main(["schema", "vera_mh", f"out={tmp_path / 's.json'}"]) == 0
    assert orjson.loads((tmp_path / "s.json").read_bytes()) == make_task_schema("vera_mh")
    capsys.readouterr()
    assert main(["schema", "vera_mh", f"out={tmp_path / 'new' / 's.json'}"]) == 0
    assert main(["schema", "vera_mh", "out="]) == 0
    for wrong in (tmp_path, tmp_path / "s.json" / "below"):
        capsys.readouterr()
        assert main(["schema", "vera_mh", f"out={wrong}"]) == 2
        assert "out: " in capsys.readouterr().err
    assert main(["schema", "abstinence"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert main(["schema"]) == 2
    assert "abstention" in capsys.readouterr().err


def test_a_part_of_the_catalogue_reads_no_other_part() -> None:
    assert {item.kind for item in list_items([CONF], ["trainers"])} == {"trainers"}
