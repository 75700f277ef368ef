"""A whole rollout through the command, against a real local server."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import POLICY, arguments, essence, expected_label, gavel, reply, rows, source_row, write_tasks

REWARDS = {"correct": 1.0, "incorrect": 0.0, "abstained": 0.5}


async def test_every_row_is_graded_rewarded_and_counted(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        done = await gavel(
            *arguments(write_tasks(tmp_path / "t.jsonl", 40), tmp_path / "run", server.base_url, "rollouts_per_task=2")
        )
    assert done.code == 0, done.out + done.err
    found = rows(tmp_path / "run")
    assert len(found) == 80
    for row in found:
        label = expected_label(int(row["task_id"][2:]))
        assert row["outcome"]["label"] == label
        assert row["reward"]["value"] == REWARDS[label]
        assert row["status"] == "graded"
    metrics = orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())
    assert metrics["labels"] == {"abstained": 40, "correct": 20, "incorrect": 20}
    assert metrics["reward"]["value"] == pytest.approx(0.5)  # (20*1 + 20*0 + 40*0.5) / 80
    assert metrics["reward"]["n"] == 80
    # 80 policy calls; [IDK] is decided by a rule in the native profile only, here it goes to the judge
    assert metrics["services"]["policy"]["calls"] == 80


async def test_a_second_run_resumes_without_any_call(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 12), tmp_path / "run"]
    figures = ("metrics.json", "reward_profile.jsonl")  # of the plan as it was made, and as it is read back
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(*words, server.base_url))).code == 0
        made = [(tmp_path / "run" / name).read_bytes() for name in figures]
        before = server.count
        again = await gavel(*arguments(*words, server.base_url))
        assert (again.code, server.count) == (0, before)
        assert len(rows(tmp_path / "run")) == 12
    assert [(tmp_path / "run" / name).read_bytes() for name in figures] == made


async def test_raising_the_limit_and_the_rollouts_extends_a_run(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 10), tmp_path / "run"]
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(*words, server.base_url, "tasks.limit=4"))).code == 0
        assert (await gavel(*arguments(*words, server.base_url, "rollouts_per_task=2"))).code == 0
        asked = [seen for seen in server.requests if seen.body["model"] == POLICY]
    assert len(asked) == 20  # the four of the first run are not asked again
    inputs = rows(tmp_path / "run", "inputs.jsonl")
    assert [(line["task_index"], line["rollout_index"]) for line in inputs] == [
        (task, k) for task in range(10) for k in range(2)
    ]
    assert len(essence(tmp_path / "run")) == 20


async def test_another_identity_is_refused_and_says_what_changed(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 4), tmp_path / "run"]
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(*words, server.base_url))).code == 0
        before = server.count
        done = await gavel(*arguments(*words, server.base_url, "policy.sampling.temperature=0.25"))
        assert done.code == 2
        assert "policy.sampling.temperature" in done.err
        assert "0.25" in done.err
        assert server.count == before
    async with FaultServer(reply=reply) as elsewhere:  # another URL is the same run
        assert (await gavel(*arguments(*words, elsewhere.base_url))).code == 0


async def test_bad_rows_are_skipped_before_any_call_and_recorded_once(tmp_path: Path) -> None:
    lines = [
        orjson.dumps(source_row(0)),
        orjson.dumps({key: value for key, value in source_row(1).items() if key != "answer"}),
        b"this is not JSON",
        orjson.dumps(source_row(3, question=7)),
        orjson.dumps(source_row(0)),
        orjson.dumps(source_row(4)),
    ]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    async with FaultServer(reply=reply) as server:
        for _ in range(2):
            done = await gavel(*arguments(tmp_path / "t.jsonl", tmp_path / "run", server.base_url))
            assert done.code == 3
        assert sorted(row["task_id"] for row in rows(tmp_path / "run")) == ["q-0", "q-4"]
    errors = rows(tmp_path / "run", "errors.jsonl")
    assert len(errors) == 4
    for line, error in zip((2, 3, 4, 5), errors, strict=True):
        assert error["status"] == "invalid_task"
        assert error["reward"] is None
        assert error["outcome"]["failure"]["kind"] == "gavel:task_schema"
        assert f"t.jsonl:{line}" in error["outcome"]["failure"]["reason"]
    assert "lines 1 and 5" in errors[3]["outcome"]["failure"]["reason"]


async def test_inspect_tells_one_tasks_whole_story(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 6), tmp_path / "run"]
    async with FaultServer(reply=reply) as server:
        done = await gavel(*arguments(*words, server.base_url, "inspect=q-1"))
        assert done.code == 0
        assert {seen.body["model"] for seen in server.requests} == {POLICY, "judge-model"}
        assert server.count == 2  # this task alone
        for part in ("kilometre 1 of", "Village 2", "judge prompt", "INCORRECT", "label: incorrect", "reward: 0"):
            assert part in done.out
        wrong = await gavel(*arguments(*words, server.base_url, "inspect=q-11"))
        assert wrong.code == 2
        assert "did you mean q-1?" in wrong.err


async def test_dry_run_asks_and_writes_nothing(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 6), tmp_path / "run", server.base_url)
        done = await gavel(*words, "dry_run=true")
        assert done.code == 0
        assert server.count == 0
        assert not (tmp_path / "run").exists()
        assert "6 good" in done.out


async def test_a_judge_failure_is_no_reward_and_is_graded_on_resume_without_asking_the_policy(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 8), tmp_path / "run"]
    patient = ["failure.max_ungraded_fraction=1.0", "judge.attempts=1"]
    async with (
        FaultServer(reply=reply) as policy,
        FaultServer(reply=reply, choose=lambda body, n: "500" if n <= 3 else None) as judge,
    ):
        first = await gavel(*arguments(*words, policy.base_url, *patient, judge_url=judge.base_url))
        assert first.code == 3
        errors = rows(tmp_path / "run", "errors.jsonl")
        assert len(errors) == 3
        for error in errors:
            assert error["status"] == "judge_error"
            assert error["reward"] is None
            assert error["fallback_reward"] == 0.0
            assert error["outcome"]["failure"]["kind"] == "provider_unavailable"
            assert error["transcript"]["messages"][-1]["role"] == "assistant"
        metrics = orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())
        assert metrics["reward"]["n"] == 5
        asked = policy.count
        again = await gavel("regrade", str(tmp_path / "run"))
        assert again.code == 0, again.out + again.err
        assert policy.count == asked == 8
    assert {key[0]: value[1] for key, value in essence(tmp_path / "run").items()} == {
        f"q-{n}": expected_label(n) for n in range(8)
    }


async def test_a_row_that_failed_three_times_is_given_up(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run"]
    async with FaultServer(reply=reply) as policy, FaultServer(reply=reply, choose=lambda body, n: "500") as judge:
        for _ in range(4):
            done = await gavel(
                *arguments(
                    *words,
                    policy.base_url,
                    "judge.attempts=1",
                    "failure.max_ungraded_fraction=1",
                    judge_url=judge.base_url,
                )
            )
            assert done.code == 3
        assert (policy.count, judge.count) == (2, 6)
    assert [row["attempt"] for row in rows(tmp_path / "run", "errors.jsonl")] == [1, 1, 2, 2, 3, 3]


async def test_strict_stops_at_the_first_ungraded_row(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 30), tmp_path / "run"]
    async with (
        FaultServer(reply=reply) as policy,
        FaultServer(reply=reply, choose=lambda body, n: "401" if n == 5 else None) as judge,
    ):
        done = await gavel(
            *arguments(*words, policy.base_url, "failure=strict", "concurrency=1", judge_url=judge.base_url)
        )
        assert done.code == 4
        kinds = [row["outcome"]["failure"]["kind"] for row in rows(tmp_path / "run", "errors.jsonl")]
        graded = len(rows(tmp_path / "run"))
        assert kinds[0] != "cancelled"
        assert set(kinds[1:]) == {"cancelled"}
        assert graded + len(kinds) == 30
        again = await gavel(*arguments(*words, policy.base_url, "failure=strict", judge_url=judge.base_url))
        assert again.code == 0, again.out
    assert len(essence(tmp_path / "run")) == 30


async def test_a_run_named_alone_goes_on_with_its_own_config(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 6),
            tmp_path / "run",
            server.base_url,
            "tasks.limit=2",
            "reward.abstain=0.3",
        )
        assert (await gavel(*words)).code == 0
        done = await gavel("rollout", str(tmp_path / "run"), "tasks.limit=5")
        assert done.code == 0, done.out + done.err
    found = essence(tmp_path / "run")
    assert len(found) == 5
    assert found[("q-2", 0)][3]["value"] == 0.3


async def test_looking_at_a_row_that_failed_costs_it_no_attempt(tmp_path: Path) -> None:
    words = [write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run"]
    async with FaultServer(reply=reply) as policy, FaultServer(reply=reply, choose=lambda body, n: "500") as judge:
        assert (
            await gavel(*arguments(*words, policy.base_url, "judge.attempts=1", judge_url=judge.base_url))
        ).code == 3
        before = (policy.count, judge.count)
        done = await gavel("rollout", str(tmp_path / "run"), "inspect=q-1")
        assert done.code == 3
        assert (policy.count, judge.count) == before
        assert "ungraded: provider_unavailable at judge" in done.out
    assert len(rows(tmp_path / "run", "errors.jsonl")) == 2


async def test_a_long_text_is_told_whole_when_the_output_is_a_file(tmp_path: Path) -> None:
    long = " ".join(f"word{n}" for n in range(300))
    async with FaultServer(
        reply=lambda body: f"\\boxed{{{long}}}" if body["model"] == POLICY else "INCORRECT"
    ) as server:
        done = await gavel(
            *arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", server.base_url, "inspect=q-0")
        )
    assert all(f"word{n}" in done.out for n in range(300))


async def test_a_run_without_a_row_may_begin_anew_with_other_models(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 2)
    managed = ["judge=qwen3_32b", "judge.python=/nonexistent/python"]
    async with FaultServer(reply=reply) as server:
        words = arguments(tasks, tmp_path / "run", server.base_url)
        first = [word for word in words if not word.startswith("judge")] + managed
        assert (await gavel(*first)).code == 2
        done = await gavel(*words)
        assert done.code == 0, done.out + done.err


async def test_the_end_of_a_run_says_whether_its_judge_qualified(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        done = await gavel(
            *arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url), cwd=tmp_path
        )
    assert "judge of abstention: never probed" in done.out
