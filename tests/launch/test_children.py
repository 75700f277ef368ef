"""Runs made from runs: rescoring asks no model, regrading asks no policy, parents stay as they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import JUDGE, arguments, essence, gavel, reply, rows, write_tasks

from gavel.launch.runs.child_name import LONGEST, describe_grading_changes, make_child_name, reward_changes


def _fingerprint(run: Path) -> dict[str, str]:
    names = ("inputs.jsonl", "results.jsonl", "errors.jsonl", "transcripts.jsonl", "config.yaml")
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}


async def test_rescoring_changes_rewards_without_any_request(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 16), tmp_path / "run", server.base_url))
        ).code == 0
        before, parent = server.paths.copy(), _fingerprint(tmp_path / "run")
        done = await gavel("rescore", str(tmp_path / "run"), "reward.abstain=0.3", f"into={tmp_path / 'child'}")
        assert done.code == 0, done.out + done.err
        assert server.paths == before  # of any kind, also to see which models are served
    assert _fingerprint(tmp_path / "run") == parent
    for old, new in zip(rows(tmp_path / "run"), rows(tmp_path / "child"), strict=True):
        assert old["outcome"] == new["outcome"]
        assert new["reward"]["value"] == (0.3 if new["outcome"]["label"] == "abstained" else old["reward"]["value"])
    manifest = orjson.loads((tmp_path / "child" / "manifest.json").read_bytes())
    assert manifest["parent"]["run"] == str((tmp_path / "run").resolve())
    assert manifest["reward"]["abstain"] == 0.3
    metrics = orjson.loads((tmp_path / "child" / "metrics.json").read_bytes())
    assert abs(metrics["reward"]["value"] - (4 + 8 * 0.3) / 16) < 1e-12


async def test_a_child_run_gets_a_name_of_its_own_and_rescoring_twice_adds_nothing(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 4), tmp_path / "run", server.base_url))
        ).code == 0
    for words in (("reward=omniscience",), ("reward=omniscience",), ("reward.abstain=0.3",), ("reward.abstain=0.3",)):
        done = await gavel("rescore", str(tmp_path / "run"), *words)
        assert done.code == 0
        assert "calls of the parent (no model was called)" in done.out
    children = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("run-rescore-"))
    assert children == ["run-rescore-abstain-0.3", "run-rescore-omniscience"]
    assert [len(essence(tmp_path / name)) for name in children] == [4, 4]
    assert (await gavel("compare", str(tmp_path / "run"), str(tmp_path / children[0]))).code == 0  # as it is printed


def test_a_child_is_named_after_what_was_changed_in_safe_letters() -> None:
    own = {"name": "tiered", "correct": 1.0, "abstain": 0.5}
    assert reward_changes(own, {**own, "abstain": 0.3}) == "abstain=0.3"
    assert reward_changes(own, own) == "tiered"
    assert reward_changes({"name": "omniscience"}, {"name": "tiered", "abstain": 0.2}) == "tiered,abstain=0.2"
    assert make_child_name("demo", "rescore", "tiered,abstain=0.2") == "demo-rescore-tiered_abstain-0.2"
    grading = {"b": ("Qwen/Q", "p/one")}
    assert (
        make_child_name("demo", "regrade", describe_grading_changes(grading, {"b": ("../x y", "p/one")}))
        == "demo-regrade-x_y"
    )
    assert describe_grading_changes(grading, {"b": ("Qwen/Q", "p/two")}) == "p/two"
    long = [make_child_name("demo", "rescore", f"{'weights=1,' * 9}{last}") for last in "ab"]
    assert long[0] != long[1]
    assert all(len(name) <= len("demo-rescore-") + LONGEST for name in long)


async def test_regrading_all_asks_the_new_judge_and_no_policy(tmp_path: Path) -> None:
    def harsh(body: dict[str, object]) -> str:
        return "INCORRECT"

    async with FaultServer(reply=reply) as server, FaultServer(reply=harsh) as other:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 12), tmp_path / "run", server.base_url))
        ).code == 0
        before, parent = server.count, _fingerprint(tmp_path / "run")
        words = [
            "judge=external",
            f"judge.base_url={other.base_url}",
            "judge.model=other-judge",
            f"into={tmp_path / 'child'}",
        ]
        done = await gavel("regrade", str(tmp_path / "run"), "only=all", *words)
        assert done.code == 0, done.out + done.err
        assert server.count == before
        assert {seen.body["model"] for seen in other.requests} == {"other-judge"}
        assert "all but the judge's are calls of the parent" in done.out
        asked = other.count
        assert (await gavel("regrade", str(tmp_path / "run"), "only=all", *words)).code == 0
        assert other.count == asked  # the child resumes like any run
    assert _fingerprint(tmp_path / "run") == parent
    old, new = essence(tmp_path / "run"), essence(tmp_path / "child")
    assert old.keys() == new.keys()
    for key in old:
        assert new[key][4] == old[key][4]  # the same texts
        assert new[key][1] == ("abstained" if "rule" in old[key][2] else "incorrect")  # a rule needs no judge


async def test_another_judge_may_not_complete_a_run_of_the_first(tmp_path: Path) -> None:
    async with FaultServer(reply=reply, choose=lambda body, n: "500" if body["model"] == JUDGE else None) as server:
        first = await gavel(
            *arguments(write_tasks(tmp_path / "t.jsonl", 3), tmp_path / "run", server.base_url, "judge.attempts=1")
        )
        assert first.code == 3
        done = await gavel(
            "regrade",
            str(tmp_path / "run"),
            "judge=external",
            f"judge.base_url={server.base_url}",
            "judge.model=other-judge",
        )
    assert done.code == 2
    assert "other-judge" in done.err


async def test_a_missing_run_is_named_with_its_likeness(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "first", server.base_url))
        ).code == 0
    done = await gavel("rescore", str(tmp_path / "frist"), "reward.abstain=0.3")
    assert done.code == 2
    assert f"did you mean {tmp_path / 'first'}?" in done.err


@pytest.mark.parametrize("words", [("rescore", "reward=omniscience"), ("regrade", "only=all")])
async def test_a_child_never_writes_into_its_parent_or_into_another_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    async with FaultServer(reply=reply) as server:
        for name in ("run", "other"):
            assert (
                await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 3), tmp_path / name, server.base_url))
            ).code == 0
        before = {name: _fingerprint(tmp_path / name) for name in ("run", "other")}
        for into in ("run", "other"):
            done = await gavel(words[0], str(tmp_path / "run"), *words[1:], f"into={tmp_path / into}")
            assert done.code == 2, done.out
            assert "name another folder" in done.err or "name a new folder" in done.err
    assert {name: _fingerprint(tmp_path / name) for name in ("run", "other")} == before


async def test_rescoring_into_the_folder_of_another_rescoring_is_refused(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 3), tmp_path / "run", server.base_url))
        ).code == 0
    assert (await gavel("rescore", str(tmp_path / "run"), "reward.abstain=0.3", f"into={tmp_path / 'c'}")).code == 0
    done = await gavel("rescore", str(tmp_path / "run"), "reward.abstain=0.4", f"into={tmp_path / 'c'}")
    assert done.code == 2
    assert "another rescoring" in done.err


async def test_an_outage_uses_up_no_row_for_good_regrade_tries_it_again(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run"]
    async with (
        FaultServer(reply=reply) as policy,
        FaultServer(reply=reply, choose=lambda body, n: "500" if n <= 6 else None) as judge,
    ):
        once = [*words, policy.base_url, "judge.attempts=1", "failure.max_ungraded_fraction=1"]
        for _ in range(3):
            assert (await gavel(*arguments(*once, judge_url=judge.base_url))).code == 3
        given_up = await gavel(*arguments(*once, judge_url=judge.base_url))
        assert given_up.code == 3
        assert "2 of them are given up" in given_up.out
        assert judge.count == 6
        done = await gavel("regrade", str(tmp_path / "run"))
        assert done.code == 0, done.out + done.err
        assert policy.count == 2
    assert len(essence(tmp_path / "run")) == 2


async def test_regrading_with_the_runs_own_judge_at_another_address_needs_no_more_than_the_address(
    tmp_path: Path,
) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run"]
    async with FaultServer(reply=reply) as server, FaultServer(reply=reply) as moved:
        dead = "http://127.0.0.1:9/v1"
        first = await gavel(*arguments(*words, server.base_url, "judge.attempts=1", judge_url=dead))
        assert first.code == 3
        assert dead in first.out or "127.0.0.1:9" in first.out  # the first reason is on the screen
        done = await gavel("regrade", str(tmp_path / "run"), f"judge.base_url={moved.base_url}")
        assert done.code == 0, done.out + done.err
        assert moved.count == 2


async def test_a_folder_of_another_kind_is_named_with_the_command_that_fits(tmp_path: Path) -> None:
    training, sweep, run = (tmp_path / name for name in ("training", "sweep", "run"))
    for folder, file in ((training, "launch.json"), (sweep, "sweep.json"), (run, "manifest.json")):
        folder.mkdir()
        (folder / file).write_text("{}")
    shown = await gavel("regrade", str(training))
    assert shown.code == 2
    assert "this is a training run" in shown.err
    assert f"gavel view {training}" in shown.err
    assert f"gavel report {training}" in shown.err
    assert f"gavel status {training}" in shown.err
    shown = await gavel("report", str(sweep))
    assert f"gavel compare {sweep}" in shown.err
    shown = await gavel("status", str(run))
    assert shown.code == 2
    assert f"gavel view {run}" in shown.err
    assert f"gavel report {run}" in shown.err
