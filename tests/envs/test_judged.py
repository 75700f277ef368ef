"""Rows of one's own: how they are read, how several turns and several rubrics go, and rubrics that a package brings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.rubric_files import write_rubric

from gavel.envs import plugins
from gavel.envs.judged.environment import JudgedConfig, JudgedEnvironment, build
from gavel.envs.judged.rewards import GradedConfig, graded
from gavel.envs.plugins import Plugin, find_added_rubrics
from gavel.envs.preparing import prepare_tasks
from gavel.envs.registry import make_environment
from gavel.envs.tasks import read_tasks
from gavel.envs.types import Check, Finish, Observe, Outcome, RewardError, Task, TaskError, Transcript
from gavel.judges.assets import AssetStore
from gavel.judges.rubrics.file import read_rubric_file
from gavel.judges.rubrics.table import Profile, make_form_profile, make_rubric
from gavel.judges.types import Grade, JudgeFailure, JudgeQuery, Rubric, RubricConfig
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind
from gavel.models.types import Message, Reply


class Judges:
    """Gives each binding its label, or fails for it; keeps the questions."""

    def __init__(self, rubric: Rubric, **labels: str | None) -> None:
        self._rubric, self.labels, self.asked = rubric, labels, list[JudgeQuery]()

    async def grade(self, query: JudgeQuery) -> Grade:
        self.asked.append(query)
        label = self.labels[query.binding]
        if label is None:
            raise JudgeFailure(FailureKind.JUDGE_FAILED, "the judge is away")
        return Grade(label, {"good": 1.0, "fair": 0.5, "bad": 0.0}[label], "so", "exact", label, {}, ())

    def rubric(self, binding: str) -> Rubric:
        if binding not in self.labels:
            raise ConfigError("there is no such binding", field=binding)
        return self._rubric


@pytest.fixture
def rubric(tmp_path: Path) -> Rubric:
    return make_rubric(RubricConfig(file=str(write_rubric(tmp_path))), AssetStore(tmp_path, offline=True))


def environment(judge: Judges, **options: Any) -> JudgedEnvironment:
    return build(JudgedConfig(tuple(judge.labels), **options), judge, {})


def say(transcript: Transcript, text: str, finish_reason: str = "stop") -> Transcript:
    reply = Message("assistant", text, Reply(text, finish_reason, "p"))
    return Transcript((*transcript.messages, reply))


def task(**target: Any) -> Task:
    return Task("t", "judged", "judged/a", (Message("user", "Name two."), Message("user", "Colours!")), target, {})


def grade(made: JudgedEnvironment, one: Task, text: str, finish_reason: str = "stop") -> Outcome:
    said = asyncio.run(made.step(one, say(Transcript(one.messages), text, finish_reason)))
    assert isinstance(said, Finish)
    return said.outcome


def test_every_rubric_must_answer_and_what_is_known_is_kept(rubric: Rubric) -> None:
    judge = Judges(rubric, a="good", b="fair")
    outcome = grade(environment(judge), task(reference="red"), "<think>x</think>Red.")
    assert (outcome.label, [(check.name, check.passed, check.score) for check in outcome.checks]) == (
        "passed",
        [("a", True, 1.0), ("b", True, 0.5)],
    )
    assert judge.asked[0].slots == {"question": "Colours!", "reference": "red", "candidate": "Red."}
    judge.labels["b"] = None
    failed = grade(environment(judge), task(), "Red.")
    assert not failed.graded
    assert [(check.name, check.passed) for check in failed.checks] == [("a", True), ("b", None)]
    assert judge.asked[-1].slots["reference"] == "(none)"


@pytest.mark.parametrize(
    ("text", "finish_reason", "label"),
    [
        ("x", "length", "truncated"),
        ("<think>x</think>", "stop", "no_answer"),
        ("x", "content_filter", "no_answer"),
        ("", "stop", "no_answer"),
    ],
)
def test_a_reply_that_was_cut_or_says_nothing_earns_nothing_and_asks_nobody(
    text: str, finish_reason: str, label: str, rubric: Rubric
) -> None:
    judge = Judges(rubric, a="good")
    outcome = grade(environment(judge), task(), text, finish_reason)
    assert (outcome.label, graded(GradedConfig()).reward(outcome).value, judge.asked) == (label, 0.0, [])


def test_fixed_turns_follow_one_another_and_the_whole_is_graded_at_the_end(rubric: Rubric) -> None:
    judge = Judges(rubric, a="good")
    made, one = environment(judge, max_turns=3), task(turns=["And?", "More?"])
    assert made.parse_target(one.target) == one.target
    transcript = Transcript(one.messages)
    for text, turn in (("Red", "And?"), ("Blue", "More?")):
        transcript = say(transcript, text)
        said = asyncio.run(made.step(one, transcript))
        assert said == Observe((Message("user", turn),))
        transcript = transcript + said.messages
    assert isinstance(asyncio.run(made.step(one, say(transcript, "Green"))), Finish)
    assert judge.asked[0].slots["candidate"] == "Green"
    with pytest.raises(TaskError, match="longer than an episode"):
        environment(judge, max_turns=2).parse_target(one.target)


@pytest.mark.parametrize(
    ("schema", "target", "field"),
    [
        ({"reference": "text"}, {}, "target.reference"),
        ({"level": "number?"}, {"level": "3"}, "target.level"),
        ({"level": "number?"}, {"levle": 3}, "target.levle"),
        ({"parts": "texts"}, {"parts": ["a", 1]}, "target.parts"),
        ({}, {"turns": ["a", " "]}, "target.turns"),
        ({"flag": "flag"}, {"flag": 1}, "target.flag"),
    ],
)
def test_a_target_off_its_schema_is_refused_by_field(
    schema: dict[str, str], target: dict[str, Any], field: str, rubric: Rubric
) -> None:
    with pytest.raises(TaskError) as refused:
        environment(Judges(rubric, a="good"), target=schema, max_turns=9).parse_target(target)
    assert refused.value.field == field


def test_what_does_not_fit_is_refused_before_any_call(rubric: Rubric, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rubric grades"):
        build(JudgedConfig(), Judges(rubric), {})
    with pytest.raises(ConfigError, match="no such kind"):
        environment(Judges(rubric, a="good"), target={"x": "txt"})
    with pytest.raises(ConfigError, match="no such binding"):
        make_environment({"name": "judged", "rubrics": ["a", "b"]}, Judges(rubric, a="good"), {})
    slots = {"question": "task.last_user", "reference": "target.gold", "candidate": "reply.visible"}
    needs = write_rubric(
        tmp_path,
        slots=slots,
        controls=[
            {"question": "q", "reference": "r", "candidate": str(place), "expected": label}
            for place, label in enumerate(["good", "bad", "fair"] * 3)
        ],
    )
    made = environment(Judges(make_rubric(RubricConfig(file=str(needs)), AssetStore(tmp_path, offline=True)), a="good"))
    with pytest.raises(TaskError, match="acme/helpful-v1 needs this field"):
        made.parse_target({"reference": "x"})


# Rows.


def test_plain_rows_of_every_form_are_read_and_their_other_fields_kept(rubric: Rubric, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 7, "question": "q?", "answer": ["a", "b"], "topic": "x"},
        {"prompt": "p", "system": "s", "reference": None, "target": {"reference": "r"}},
        {"messages": [{"role": "user", "content": "m"}], "turns": ["go on"]},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b"".join(
            orjson.dumps(row) + b"\n"
            for row in [*rows, {"topic": "x"}, {"prompt": [{"role": "assistant", "content": "x"}]}]
        )
    )
    made = environment(Judges(rubric, a="good"), max_turns=2)
    found = read_tasks(path, made)
    assert [one.task.target for one in found.tasks] == [
        {"reference": ["a", "b"]},
        {"reference": "r"},
        {"turns": ["go on"]},
    ]
    assert (found.tasks[0].task.task_id, found.tasks[0].task.metadata) == ("7", {"source": "rows", "topic": "x"})
    assert [message.role for message in found.tasks[1].task.messages] == ["system", "user"]
    assert {one.task.verifier for one in found.tasks} == {"judged/a"}
    assert [(bad.line, bad.error.field) for bad in found.bad] == [(4, "prompt"), (5, "prompt")]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_rows_of_any_file_prepare_and_slice(kind: str, tmp_path: Path) -> None:
    rows = [
        {"id": f"r{place}", "prompt": f"p {place}", "reference": "x", "level": "easy" if place % 2 else "hard"}
        for place in range(4)
    ]
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        path.write_text("id,prompt,reference,level\n" + "".join(",".join(row.values()) + "\n" for row in rows))
    elif kind == "jsonl":
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), path)
    source = {"name": "rows", "path": str(path), "binding": "a", "slice_fields": ["level"]}
    prepare_tasks(source, tmp_path / "out", profiles={"a": "acme/helpful-v1"}, warn=lambda _: None, env="judged")
    (first, *_) = (orjson.loads(line) for line in (tmp_path / "out" / "tasks.jsonl").read_bytes().splitlines())
    assert (first["verifier"], first["target"]) == ("judged/a", {"reference": "x"})
    assert first["metadata"]["slices"] == {"level": "hard"}


# Rewards.


def outcome(**scores: float | None) -> Outcome:
    return Outcome(
        "x", tuple(Check(name, None if score is None else score >= 0.5, score or 0.0) for name, score in scores.items())
    )


def test_weights_are_the_rewards_and_a_missing_verdict_is_never_a_number() -> None:
    assert graded(GradedConfig({"b": 3.0})).reward(outcome(a=1.0, b=0.5)).value == pytest.approx((1 + 1.5) / 4)
    assert graded(GradedConfig({"b": 0.0})).reward(outcome(a=0.5, b=None)).value == 0.5
    for config, one in (
        (GradedConfig(), outcome(a=1.0, b=None)),
        (GradedConfig({"c": 1.0}), outcome(a=1.0)),
        (GradedConfig({"a": 0.0}), outcome(a=1.0)),
    ):
        with pytest.raises(RewardError):
            graded(config).reward(one)
    with pytest.raises(ConfigError):
        graded(GradedConfig({"a": -1.0}))


# Rubrics that a package brings.


class Point:
    """An entry point of an installed package."""

    name, value, module, dist = "acme", "acme:PLUGIN", "acme", None

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    def load(self) -> Plugin:
        return self._plugin


def test_a_package_brings_rubrics_of_files_and_of_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form = read_rubric_file(write_rubric(tmp_path))
    ours = make_rubric(RubricConfig("gavel/qa-abstention-v1"), AssetStore(tmp_path, offline=True))
    code = Profile(("nemo_abstention_v1",), (), lambda _, __: replace(ours, profile="acme/qa-lenient-v1"))  # type: ignore[type-var]
    plugin = Plugin(rubrics={form.name: make_form_profile(form), "acme/qa-lenient-v1": code})
    monkeypatch.setattr(plugins, "list_installed", lambda: (Point(plugin),))
    assert find_added_rubrics(["gavel/qa-abstention-v1"]) == {}, "no plugin is imported for a rubric of ours"
    more = find_added_rubrics(["acme/qa-lenient-v1"])
    for name in plugin.rubrics:
        assert make_rubric(RubricConfig(name), AssetStore(tmp_path, offline=True), added=more).profile == name
    made = make_environment(
        {"name": "abstention"},
        Judges(make_rubric(RubricConfig("acme/qa-lenient-v1"), AssetStore(), added=more), abstention="good"),
        {},
    )
    assert made.name == "abstention"
    with pytest.raises(ConfigError, match="no such rubric profile"):
        make_rubric(RubricConfig("acme/qa-lenien-v1"), AssetStore(), added=more)
