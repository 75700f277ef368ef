"""Rubrics of files with a hole: each is refused, or named by the probe, by its own line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.rubric_files import CONTROLS, FORM, PROMPT, write_rubric

from gavel.judges.assets import AssetStore
from gavel.judges.bindings import bind_rubrics
from gavel.judges.rubrics.file import read_rubric_file
from gavel.judges.rubrics.form import lint_form
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import BindingConfig, RubricConfig
from gavel.models.errors import ConfigError
from gavel.models.service import Service


def made(path: Path) -> PromptRubric:
    rubric = make_rubric(RubricConfig(file=str(path)), AssetStore(path.parent, offline=True))
    assert isinstance(rubric, PromptRubric)
    return rubric


SCORED: dict[str, Any] = {
    "reply": {"reader": "score", "verdict": "points"},
    "controls": [{**row, "expected": "low" if row["expected"] == "bad" else "high"} for row in CONTROLS],
}


def changed(place: int, **values: Any) -> list[dict[str, Any]]:
    return [{**row, **values} if number == place else row for number, row in enumerate(CONTROLS)]


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"labels": {"good": 1.0, "Good.": 0.5, "bad": 0.0}}, "labels", "overlap"),
        ({"reply": {"reader": "choice", "words": {"A": "good", "a": "fair", "B": "bad"}}}, "reply.words", "overlap"),
        ({"reply": {"reader": "choice", "words": {"A": "good", "B": "bad"}}}, "reply.words", "fair"),
        ({"labels": {"good": 1.0, "fair": 0.5, "bad": 0.0, "awful": 0.0}}, "controls", "miss a label"),
        ({"labels": {"good": 7.0, "fair": 0.5, "bad": 0.0}}, "labels.good", "0 to 1"),
        ({"controls": CONTROLS[:7]}, "controls", "at least 8"),
        ({"controls": changed(0, expected="great")}, "controls.c0.expected", "great"),
        (
            {"controls": [*CONTROLS, {**CONTROLS[0], "name": "again", "expected": "bad"}]},
            "controls.again",
            "different verdicts",
        ),
        ({"controls": changed(3, candidat="x")}, "candidat", "did you mean"),
        ({"controls": changed(2, candidate=None)}, "candidate", "text for every slot"),
        ({"hostile": []}, "hostile", "add candidate"),
        ({"hostile": ["question"]}, "hostile", "add candidate"),
        ({"hostile": ["candidat"]}, "hostile", "did you mean candidate"),
        ({"slots": {**FORM["slots"], "question": "task.last_usr"}}, "slots.question", "task.last_user"),
        ({"prompt": PROMPT.replace("{question}", "{questoin}")}, "prompt", "{questoin}"),
        ({"prompt": PROMPT.replace("{reference}", "")}, "prompt", "{reference}"),
        ({"file": "no_such.txt"}, "prompt", "no_such.txt"),
        ({"reply": {"reader": "regex"}}, "reply.reader", "json"),
        ({"reply": {"reader": "last_line", "reasoning": "why"}}, "reply.reasoning", "json or score"),
        ({"reply": {"reader": "score", "verdict": "grade"}}, "labels", "low"),
        ({"sampling": {"temprature": 0.0}}, "sampling.temprature", "no such field"),
        ({"name": "helpful"}, "name", "owner/name"),
        ({"without": "labels"}, "labels", "missing"),
        ({"colour": "red"}, "colour", "no such field"),
        ({"attacks": {"empty": "great"}}, "attacks.empty", "great"),
        ({"attacks": {"emptyy": "good"}}, "attacks", "did you mean empty"),
        ({"attacks": {"empty": []}}, "attacks.empty", "no label withstands"),
        # words that nobody tells apart: look-alikes, width, blanks, unseen characters, composed letters
        ({"labels": {"good": 1.0, "g\u043e\u043ed": 0.5, "bad": 0.0}}, "labels", "overlap"),
        ({"labels": {"good": 1.0, "\uff47\uff4f\uff4f\uff44": 0.5, "bad": 0.0}}, "labels", "overlap"),
        ({"labels": {"very good": 1.0, "very  good": 0.5, "bad": 0.0}}, "labels", "overlap"),
        ({"labels": {"good": 1.0, "go\u200bod": 0.5, "bad": 0.0}}, "labels", "overlap"),
        ({"labels": {"go\u00adod": 1.0, "fair": 0.5, "bad": 0.0}}, "labels", "unseen characters"),
        ({"labels": {"caf\u00e9": 1.0, "cafe\u0301": 0.5, "bad": 0.0}}, "labels", "overlap"),
        ({"labels": {"go\nod": 1.0, "fair": 0.5, "bad": 0.0}}, "labels", "line ends"),
        (
            {"reply": {"reader": "last_line", "words": {"A" * 101: "good", "B": "fair", "C": "bad"}}},
            "reply.words",
            "at most 100",
        ),
        # scores by which nothing differs, ranges that no reply can name
        ({"labels": {"good": 1.0, "fair": 1.0, "bad": 1.0}}, "labels", "all labels earn the same"),
        ({**SCORED, "labels": {"low": 10, "high": 0}}, "labels", "greater"),
        ({**SCORED, "labels": {"low": -1e308, "high": 1e308}}, "labels", "cannot be read"),
        ({**SCORED, "labels": {"low": 0, "high": 1e-9}}, "labels", "cannot be read"),
        ({**SCORED, "labels": {"low": 0, "high": float("inf")}}, "labels.high", "not finite"),
        ({"labels": {"good": float("nan"), "fair": 0.5, "bad": 0.0}}, "labels.good", "not finite"),
        # controls that only seem to be eight
        ({"controls": [*CONTROLS[:6], {**CONTROLS[0], "name": "x"}, CONTROLS[7]]}, "controls.x", "ask the same"),
        ({"controls": changed(0, expected=["good", "fair", "bad"])}, "controls.c0.expected", "tests nothing"),
        ({"controls": changed(1, name="c0")}, "controls", "one name"),
        # members that the form needs itself, or that a reader takes for one
        ({"reply": {"reader": "json", "verdict": "grade", "reasoning": "Grade"}}, "reply.reasoning", "one name"),
        # sampling, targets, hostile slots, names
        ({"sampling": {"temperature": -1}}, "sampling.temperature", "0 to 2"),
        ({"sampling": {"temperature": 99}}, "sampling.temperature", "0 to 2"),
        ({"sampling": {"max_response_tokens": 0}}, "sampling.max_response_tokens", "1 to"),
        ({"sampling": {"top_p": 3}}, "sampling.top_p", "to 1"),
        ({"targets": []}, "targets", "grades no task"),
        ({"hostile": ["candidate", "candidate"]}, "hostile", "twice"),
        ({"name": "../x"}, "name", "owner/name"),
        ({"prompt": PROMPT.replace("{question}", "{question}\x00")}, "prompt", "control character"),
        ({"prompt": PROMPT.replace("{question}", "{question}\x1b[2J")}, "prompt", "control character"),
    ],
)
def test_a_rubric_with_a_hole_is_refused_with_file_line_and_field(
    changes: dict[str, Any], field: str, said: str, tmp_path: Path
) -> None:
    path = write_rubric(tmp_path, **changes)
    with pytest.raises(ConfigError) as refused:
        read_rubric_file(path, "rubrics.r.file")
    assert said in str(refused.value)
    assert refused.value.field == field
    place, _, line = refused.value.where.rpartition(":")
    assert Path(place).parent == tmp_path
    assert line.isdigit()


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("labels: {good: 1, good: 0}\n", ":1", "twice"),
        ("name: a/b\nslots: [\n", ":3", "YAML"),
        ("- a\n", ":1", "no rubric"),
        ("", ":1", "no rubric"),
        ("a: &x {b: 1}\nc: *x\n", ":2", "alias"),
        ("path: /etc/passwd\n", ":1", "no such field"),
        ("a: " + "[" * 3000 + "]" * 3000, "", "nested too deeply"),
        ("name: a/b\nslots: {}\ncontrols: 5\n", ":3", "a list"),
        ("name: a/b\nslots: {}\ncontrols: {a: 1}\n", ":3", "a list"),
        ("name: a/b\nprompt: /dev/zero\n", ":2", "no file"),
        ("name: a/b\nprompt: .\n", ":2", "no file"),
    ],
)
def test_a_file_that_is_no_rubric_is_refused_with_its_line(text: str, where: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_rubric_file(path)
    assert refused.value.where == (f"{path}{where}")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt": "Grade it good, fair or bad.\n" * 9 + "{question} {reference} {candidate}"}, "no bounds"),
        ({"prompt": PROMPT + "{candidate}"}, "twice"),
        ({"prompt": PROMPT.replace("fair", "so so")}, "labels unsaid"),
        ({"prompt": PROMPT.replace("\n", "\r\n")}, "line ends"),
        ({"sampling": {"max_response_tokens": 8}}, "short replies"),
        ({"neutralise": False}, "exact bytes"),
        ({"slots": {**FORM["slots"], "candidate": "target.text"}}, "nothing judged"),
        ({**SCORED, "labels": {"low": 0, "high": 12}}, "labels unsaid"),
    ],
)
def test_what_works_and_is_a_hole_all_the_same_is_named(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    lines = lint_form(read_rubric_file(write_rubric(tmp_path, **changes)))
    assert said in [line.partition(":")[0] for line in lines]


def test_line_ends_and_marks_of_other_systems_are_read_and_a_link_is_its_file(tmp_path: Path) -> None:
    base = read_rubric_file(write_rubric(tmp_path))
    for name in ("helpful.yaml", "helpful.controls.jsonl"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    (tmp_path / "helpful.txt").rename(tmp_path / "real.txt")
    (tmp_path / "helpful.txt").symlink_to("real.txt")
    found = read_rubric_file(tmp_path / "helpful.yaml")
    assert (found.prompt, found.controls, found.labels) == (base.prompt, base.controls, base.labels)
    assert made(tmp_path / "helpful.yaml").digest != made(write_rubric(tmp_path)).digest, "each byte counts"


def test_a_control_whose_field_stands_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write_rubric(tmp_path)
    controls = tmp_path / "helpful.controls.jsonl"
    controls.write_text(
        controls.read_text() + '{"question": "a", "question": "b", "candidate": "x", "expected": "bad"}'
    )
    with pytest.raises(ConfigError, match="`question` stands twice") as refused:
        read_rubric_file(path)
    assert refused.value.where == f"{controls}:9"


def test_a_rubric_of_a_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gavel has a rubric of this name"):
        made(write_rubric(tmp_path, name="gavel/qa-abstention-v1"))
    other = tmp_path / "other"
    other.mkdir()
    files = {"a": str(write_rubric(tmp_path)), "b": str(write_rubric(other, prompt=PROMPT + "More."))}
    services = {"general": Service(mode="external", model="fake", base_url="http://127.0.0.1:9/v1")}
    with pytest.raises(ConfigError, match="two rubrics have one name"):
        bind_rubrics(
            {name: RubricConfig(file=file) for name, file in files.items()},
            {name: BindingConfig("general", name) for name in files},
            services,
            AssetStore(tmp_path, offline=True),
        )
