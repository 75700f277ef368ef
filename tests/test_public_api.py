"""``gavel.…``: what is public, what it costs to import, and that nothing that fails becomes a reward or an
exception.
"""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from tests.envs.instruction_following.environment_support import instruction, row
from tests.support.fault_server import server_process
from tests.support.processes import run_forked
from tests.support.runs import JUDGE, STRICT, expected_label, number_of, source_row, without_digests, write_tasks
from tests.support.runs import arguments as rollout_words
from tests.support.training import judge_words

import gavel
from gavel.launch.cli.command_line import main
from gavel.launch.runs.lease import RunFolderError

SOURCE = str(Path(gavel.__file__).parents[1])
RULE = row(0, [instruction("punctuation:no_comma")])
FOLLOWING = "env=instruction_following"


def reply(body: dict[str, Any]) -> str:
    """Every fourth question gets no readable verdict; else as ``tests.support.runs.reply``."""
    from tests.support import runs

    return "perhaps" if body["model"] == JUDGE and number_of(body) % 4 == 1 else runs.reply(body)


@pytest.fixture(scope="module")
def models() -> Iterator[str]:
    with server_process("--reply", "tests.test_public_api:reply") as url:
        yield url


@pytest.fixture(scope="module")
def grader() -> Iterator[gavel.Grader]:
    with gavel.Grader(FOLLOWING) as made:
        yield made


def test_every_public_name_is_there_and_checkers_see_the_same_ones() -> None:
    tree = ast.parse(Path(gavel.__file__).read_text())
    (seen,) = [
        node for node in tree.body if isinstance(node, ast.If) and not node.orelse and isinstance(node.test, ast.Name)
    ]
    imports = {
        alias.asname: f"{node.module}" for node in seen.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imports == gavel._HOME_OF
    assert all(getattr(gavel, name) is not None for name in gavel.__all__)
    assert set(gavel.__all__) <= set(dir(gavel))
    with pytest.raises(AttributeError, match="no attribute 'grades'"):
        gavel.grades  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_imports_none_of_its_parts() -> None:
    code = "import sys; before = set(sys.modules); import gavel; print(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({SOURCE!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['__future__', 'gavel']\n"


def test_one_reply_is_graded_in_one_call() -> None:
    result = gavel.grade(RULE, "no comma here", FOLLOWING)
    assert (result.status, result.outcome.label) == ("graded", "followed")
    assert result.reward is not None
    assert result.reward.value == 1.0
    with pytest.raises(FrozenInstanceError):
        result.status = "graded"  # type: ignore[misc]


def test_threads_loops_and_batches_share_one_grader(grader: gavel.Grader) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda said: grader.grade(RULE, said), ["a", "a, b"] * 4))
    assert [one.outcome.label for one in found] == ["followed", "not_followed"] * 4

    async def ask() -> list[gavel.Result]:
        async with grader:
            return [await grader.grade_async(RULE, "a"), *await grader.grade_many_async([(RULE, "a, b"), (RULE, "a")])]

    for _ in range(2):  # each run has a loop of its own
        assert [one.outcome.label for one in asyncio.run(ask())] == ["followed", "not_followed", "followed"]
    many = grader.grade_many((RULE, f"a{',' * (number % 2)}") for number in range(600))
    assert [one.outcome.label for one in many] == ["followed", "not_followed"] * 300


def test_a_reply_says_how_it_ended(grader: gavel.Grader) -> None:
    cut = grader.grade(RULE, gavel.Reply("a b", "length", "m"), rollout_index=3)
    assert (cut.rollout_index, (cut.outcome.details or {})["finish_reason"]) == (3, "length")
    assert grader.grade(RULE, gavel.Reply("", "error", "m")).status == "judge_error"


@pytest.mark.parametrize(
    ("task", "said", "status"),
    [
        ({}, "x", "invalid_task"),
        (None, "x", "invalid_task"),
        ([], "x", "invalid_task"),
        ({"id": float("nan")}, "x", "invalid_task"),
        (RULE, None, "judge_error"),
        (RULE, 3, "judge_error"),
        (RULE, [{"role": "user"}], "judge_error"),
        (RULE, [], "judge_error"),
        (RULE, [gavel.Message("user", "another question")], "judge_error"),
        (RULE, "\ud800, b", "graded"),
        (RULE, b"x", "judge_error"),
    ],
)
def test_whatever_is_given_the_answer_is_a_result(task: Any, said: Any, status: str, grader: gavel.Grader) -> None:
    result = grader.grade_many([(task, said)])[0]
    assert result.status == status, result
    assert (result.reward is not None) == (status == "graded")


def test_a_task_that_needs_a_judge_is_ungraded_where_none_is_named() -> None:
    result = gavel.grade(source_row(1), "\\boxed{Town}", "env=abstention", STRICT)
    assert (result.status, result.reward) == ("judge_error", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("judge=none",), "none is chosen for judge"),
        (("judge=external", "judge.base_url=http://127.0.0.1:9/v1", "judge.model=m"), "9"),
    ],
)
def test_rows_that_wait_for_the_same_judge_all_say_why_it_is_not_there(words: tuple[str, ...], said: str) -> None:
    with gavel.Grader("env=abstention", STRICT, *words, *(("judge.attempts=1",) if words[1:] else ())) as grader:
        found = grader.grade_many([(source_row(number), "\\boxed{Town}") for number in range(5)])
    failures = [one.outcome.failure for one in found]
    assert {failure.kind for failure in failures if failure} == {gavel.FailureKind.TRANSPORT_UNREACHABLE}
    assert all(failure and said in failure.reason for failure in failures)


def test_a_judge_is_opened_once_and_its_failures_are_results(models: str) -> None:
    words = (
        "env=abstention",
        STRICT,
        "judge=external",
        f"judge.base_url={models}",
        f"judge.model={JUDGE}",
        "reward.abstain=0.25",
    )
    with gavel.Grader(*words) as grader:
        found = [
            grader.grade(source_row(number), said)
            for number, said in enumerate(("\\boxed{A}", "\\boxed{B}", "\\boxed{[IDK]}"))
        ]
    assert [one.status for one in found] == ["graded", "judge_error", "graded"]
    assert [one.reward.value if one.reward else None for one in found] == [1.0, None, 0.25]
    failure = found[1].outcome.failure
    assert failure is not None
    assert (failure.kind, failure.stage) == (gavel.FailureKind.JUDGE_UNPARSEABLE, "judge")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("env=nothing",), "env"),
        (("reward=tiered", FOLLOWING), "reward"),
        (("policy.model=x",), "policy"),
        (("http.port=3",), "http"),
        (("gym.play=true",), "gym"),
        (("dry_run=true",), "dry_run"),
        (("env",), "env"),
        ((FOLLOWING, "judge=external"), "judge"),
        (("evn=abstention",), "evn"),
        (("+also.x=env=abstention",), "also"),
    ],
)
def test_a_word_that_does_not_fit_is_a_config_error_that_names_it(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(gavel.ConfigError, match=said):
        gavel.Grader(*words)


def test_a_judge_that_is_served_here_leaves_no_folder_behind_but_the_log_of_a_start_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    words = ("env=abstention", STRICT, "judge=smollm2", *judge_words(tmp_path))
    with gavel.Grader(*words) as served:
        assert served.grade(source_row(0), "Town 0").outcome.label == "correct"
        assert len(list(scratch.glob("gavel-*/logs/*"))) == 1
    assert list(scratch.glob("gavel-*")) == []
    with gavel.Grader(*words, "judge.engine_args={behaviour: exit}") as broken:
        for _ in range(2):
            with pytest.raises(gavel.GavelError, match=str(scratch)):
                broken.grade(source_row(0), "Town 0")
    assert len(list(scratch.glob("gavel-*"))) == 1, "one folder, with the log that the errors name"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_worker_grades_too(grader: gavel.Grader) -> None:
    grader.grade(RULE, "a")

    assert run_forked(lambda: int(grader.grade(RULE, "a, b").outcome.label == "not_followed")) == 1
    assert grader.grade(RULE, "a").status == "graded"


def test_a_run_is_read_as_frozen_rows_in_the_plans_order(models: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(rollout_words(write_tasks(tmp_path / "tasks.jsonl", 6), run, models, "report=false")) == 3
    stored = gavel.load_run(run)
    assert [one.task_id for one in stored.rows] == [f"q-{number}" for number in range(6)]
    assert (stored.planned, len(stored.graded), len(stored.failed)) == (6, 4, 2)
    assert [one.outcome.label for one in stored.rows if one.status == "graded"] == [
        expected_label(number) for number in (0, 2, 3, 4)
    ]
    assert {one.outcome.failure.kind for one in stored.failed if one.outcome.failure} == {
        gavel.FailureKind.JUDGE_UNPARSEABLE
    }
    assert stored.manifest.gavel == gavel.__version__
    with pytest.raises(FrozenInstanceError):
        stored.rows[0].attempt = 9  # type: ignore[misc]
    pandas = pytest.importorskip("pandas")
    frame = stored.to_pandas()
    assert list(frame["task_id"]) == [one.task_id for one in stored.rows]
    assert frame["reward"].mean() == pandas.Series([one.reward.value for one in stored.graded if one.reward]).mean()
    assert frame["failure_kind"].count() == 2
    file = run / "results.jsonl"
    file.write_text(without_digests(file.read_text()).replace('"value":1.0', '"value":0.9', 1))
    with pytest.raises(gavel.RecordError, match=r"results\.jsonl:\d+: reward\.value"):
        gavel.load_run(run)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run"):
        gavel.load_run(tmp_path)


def test_a_check_is_one_call() -> None:
    check = gavel.check_instruction("HELLO WORLD", "change_case:all_caps", {})
    assert (check.passed, check.score) == (True, 1.0)
    assert not gavel.check_instruction("Grüß Gott", "change_case:all_caps", {}, "de").passed
    with pytest.raises(gavel.TaskError, match="no such instruction"):
        gavel.check_instruction("x", "change_case:all_cap", {})
