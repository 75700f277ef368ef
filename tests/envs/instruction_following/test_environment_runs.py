"""Whole instruction-following runs through the command, against a real local server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.instruction_following.environment_support import check_of, instruction, question, row, verdict
from tests.support.fault_server import FaultServer
from tests.support.runs import Done, gavel, rows
from tests.support.vllm import RealVllm

COMMA, WORDS, BULLETS = (
    "punctuation:no_comma",
    "length_constraints:number_words",
    "detectable_format:number_bullet_lists",
)
POLITE = instruction("stylistic:politeness", uid=2, politeness_degree="polite")

REPLIES = {
    "1": "Please come in.",
    "2": "Das ist gut, danke.",
    "3": "- 一\n- 二\n- 三",
    "4": "",
    "5": "Bonjour à tous.",
    "6": "Nothing here",
    "bad": "Hello you",
}
ROWS = [
    row(1, [POLITE, instruction(COMMA, uid=3)], [question("Is it an invitation?")]),
    row(
        2,
        [instruction(COMMA, uid=3), POLITE, instruction(WORDS, uid=4, relation="equal to", num_words=4)],
        language="de",
    ),
    row(
        3,
        [instruction(BULLETS, uid=1, relation="at least", num_bullets=3)],
        [question("有没有价格？", pass_criteria="NO")],
        "zh-CN",
    ),
    row(4, [instruction(COMMA, uid=3), POLITE]),
    row(5, [instruction(COMMA, source="user", misalignment=True)], [question("La réponse est-elle polie ?")], "fr"),
    row(6, [], [question("Is it an invitation?"), question("Is it a fragment?", uid=10)]),
]
EXPECTED = {  # label, verdicts in the request's order
    "1": ("followed", [True, True, True]),
    "2": ("not_followed", [False, True, True]),
    "3": ("followed", [True, True]),
    "4": ("not_followed", [False, False]),
    "5": ("not_followed", [False, True]),
    "6": ("not_followed", [False, True]),
}


def reply(body: dict[str, Any]) -> str:
    """Reply to ``Request <id>`` like a policy, or judge: everything holds but prices, and fragments are no
    invitations.
    """
    prompt = body["messages"][-1]["content"]
    if body["model"] == "policy-model":
        return REPLIES[re.fullmatch(r"Request (\w+)", prompt)[1]]  # type: ignore[index]
    return verdict("价格" not in check_of(prompt) and not ("invitation" in check_of(prompt) and "Request 6" in prompt))


def write(path: Path, lines: list[Any]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


async def run(tasks: Path, folder: Path, server: FaultServer, *more: str) -> Done:
    services = [
        f"{name}={value}"
        for role in ("policy", "judge")
        for name, value in (
            (role, "external"),
            (f"{role}.base_url", server.base_url),
            (f"{role}.model", f"{role}-model"),
        )
    ]
    return await gavel(
        "rollout", f"run.dir={folder}", f"tasks.path={tasks}", "env=instruction_following", *services, *more
    )


def found(folder: Path, name: str = "results.jsonl") -> dict[str, tuple[str, list[bool | None]]]:
    return {
        line["task_id"]: (line["outcome"]["label"], [check["passed"] for check in line["outcome"]["checks"]])
        for line in rows(folder, name)
    }


async def test_fast_judged_and_custom_items_in_several_languages_in_one_run(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        done = await run(write(tmp_path / "t.jsonl", ROWS), tmp_path / "run", server)
        assert done.code == 0, done.out + done.err
        assert sum(seen.body["model"] == "judge-model" for seen in server.requests) == 7  # none for the empty reply
    assert found(tmp_path / "run") == EXPECTED
    assert {line["task_id"]: line["reward"]["value"] for line in rows(tmp_path / "run")} == {
        task: float(label == "followed") for task, (label, _) in EXPECTED.items()
    }
    metrics = orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())
    assert metrics["metrics"]["instruction_following/prompt_accuracy"]["value"] == pytest.approx(2 / 6)
    assert metrics["metrics"]["instruction_following/instruction_accuracy"]["value"] == pytest.approx(9 / 14)
    assert metrics["metrics"]["instruction_following/prompt_accuracy@language=fre"]["n"] == 1


async def test_one_failed_judge_call_costs_its_row_the_grade_and_no_other_verdict(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def choose(body: dict[str, Any], count: int) -> str | None:
        return (
            "500"
            if "invitation" in check_of(body["messages"][-1]["content"])
            and "Request 1" in body["messages"][-1]["content"]
            else None
        )

    async with FaultServer(reply=reply, choose=choose) as server:
        done = await run(
            write(tmp_path / "t.jsonl", ROWS), folder, server, "judge.attempts=1", "failure.max_ungraded_fraction=1"
        )
        assert done.code == 3
        assert found(folder) == {task: value for task, value in EXPECTED.items() if task != "1"}
        assert found(folder, "errors.jsonl") == {"1": ("", [True, True, None])}
        error = rows(folder, "errors.jsonl")[0]
        assert (error["status"], error["reward"], error["fallback_reward"]) == ("judge_error", None, 0.0)
        assert "llm_judge_9" in error["outcome"]["failure"]["reason"]
        server.choose = None
        before = server.count
        again = await gavel("regrade", str(folder))
        assert again.code == 0, again.out + again.err
        assert server.count == before + 1  # only the question that failed
    assert found(folder) == EXPECTED


async def test_an_unreadable_judge_is_asked_once_more_and_the_row_is_ungraded(tmp_path: Path) -> None:
    async with FaultServer(reply=lambda body: reply(body) if body["model"] == "policy-model" else "Well...") as server:
        done = await run(
            write(tmp_path / "t.jsonl", ROWS[4:5]), tmp_path / "run", server, "failure.max_ungraded_fraction=1"
        )
        assert done.code == 3
        assert server.count == 3  # one reply, two verdicts
    error = rows(tmp_path / "run", "errors.jsonl")[0]
    assert error["outcome"]["failure"]["kind"] == "judge_unparseable"
    assert [check["passed"] for check in error["outcome"]["checks"]] == [False, None]


BAD = {
    1: row("bad-schema", [instruction(WORDS, relation="at most", num_words=5)]),
    3: row("bad-language", [instruction(COMMA)], language="nl"),
    4: row("bad-caseless", [instruction("change_case:all_caps")], language="ja"),
    6: row("bad-empty", []),
}


async def test_a_mixed_file_of_good_and_bad_rows_resumes_with_stable_indices(tmp_path: Path) -> None:
    folder, good = tmp_path / "run", iter(ROWS)
    lines = [BAD[place] if place in BAD else next(good) for place in range(10)]
    tasks = write(tmp_path / "t.jsonl", lines)
    async with FaultServer(reply=reply) as server:
        for _ in range(2):
            assert (await run(tasks, folder, server, "rollouts_per_task=2")).code == 3
            assert sum(seen.body["model"] == "policy-model" for seen in server.requests) == 12
            assert [(line["task_index"], line["rollout_index"]) for line in rows(folder, "inputs.jsonl")] == [
                (place, rollout) for place in (0, 2, 5, 7, 8, 9) for rollout in range(2)
            ]
        kinds = {line["task_id"]: line["outcome"]["failure"]["kind"] for line in rows(folder, "errors.jsonl")}
        assert kinds == {
            "bad-schema": "gavel:task_schema",
            "bad-language": "gavel:language_unsupported",
            "bad-caseless": "gavel:language_unsupported",
            "bad-empty": "gavel:task_schema",
        }
        assert len(rows(folder, "errors.jsonl")) == 4
        for error in rows(folder, "errors.jsonl"):
            assert (error["status"], error["reward"], error["outcome"]["details"]["should_skip_rollout"]) == (
                "invalid_task",
                None,
                True,
            )
        skipped = set(kinds)
        assert not skipped & set(found(folder))
        assert not skipped & {line["task_id"] for line in rows(folder, "reward_profile.jsonl")}
        metrics = orjson.loads((folder / "metrics.json").read_bytes())
        assert metrics["skipped"] == {"gavel:language_unsupported": 2, "gavel:task_schema": 2}
        assert metrics["reward"]["n"] == 12

        # a row that is mended is owed; it takes its own place and moves no other
        lines[1] = row("bad-schema", [instruction(WORDS, relation="less than", num_words=5)])
        lines[1]["responses_create_params"] = {"input": [{"role": "user", "content": "Request bad"}]}
        assert (await run(write(tasks, lines), folder, server, "rollouts_per_task=2")).code == 3
        assert sum(seen.body["model"] == "policy-model" for seen in server.requests) == 14
    assert [line["task_index"] for line in rows(folder, "inputs.jsonl")][::2] == [0, 1, 2, 5, 7, 8, 9]
    assert found(folder) == {**EXPECTED, "bad-schema": ("followed", [True])}
    assert orjson.loads((folder / "metrics.json").read_bytes())["skipped"] == {
        "gavel:language_unsupported": 2,
        "gavel:task_schema": 1,
    }


async def test_rewards_can_be_exchanged_without_another_call(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        assert (await run(write(tmp_path / "t.jsonl", ROWS), tmp_path / "run", server)).code == 0
        before = server.count
        done = await gavel("rescore", str(tmp_path / "run"), "reward=mean", f"into={tmp_path / 'mean'}")
        assert (done.code, server.count) == (0, before), done.out + done.err
    means = {line["task_id"]: line["reward"]["value"] for line in rows(tmp_path / "mean")}
    assert means == {
        task: pytest.approx(sum(map(bool, passed)) / len(passed)) for task, (_, passed) in EXPECTED.items()
    }


async def test_a_row_whose_reward_needs_skipped_checks_is_ungraded_and_the_run_says_what_to_do(tmp_path: Path) -> None:
    tasks = write(tmp_path / "t.jsonl", ROWS[1:2])
    async with FaultServer(reply=reply) as server:
        assert (await run(tasks, tmp_path / "all", server, "env.short_circuit=true")).code == 0
        assert found(tmp_path / "all") == {"2": ("not_followed", [False, None, True])}
        assert server.count == 1
        done = await run(tasks, tmp_path / "mean", server, "env.short_circuit=true", "reward=mean")
    assert done.code == 3
    assert "env.short_circuit=false" in done.out


async def test_the_environment_brings_its_reward_and_the_command_line_another(tmp_path: Path) -> None:
    tasks = write(tmp_path / "t.jsonl", ROWS)
    async with FaultServer(reply=reply) as server:
        assert "all" in (await run(tasks, tmp_path / "run", server, "dry_run=true")).out
        assert "hard_soft" in (await run(tasks, tmp_path / "run", server, "dry_run=true", "reward=hard_soft")).out
        assert server.count == 0


async def test_a_source_file_is_prepared_into_tasks_that_run(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", ROWS)
    done = await gavel("prepare", "env=instruction_following", f"source.path={source}", f"out={tmp_path / 'out'}")
    assert done.code == 0, done.out + done.err
    async with FaultServer(reply=reply) as server:
        assert (await run(tmp_path / "out" / "tasks.jsonl", tmp_path / "run", server)).code == 0
    assert found(tmp_path / "run") == EXPECTED


async def test_preparing_leaves_bad_rows_out_says_why_and_reports_conflicts(tmp_path: Path) -> None:
    conflicting = row("both", [instruction("change_case:all_caps"), instruction("change_case:lowercase", uid=2)])
    source, out = write(tmp_path / "rows.jsonl", [*ROWS, *BAD.values(), conflicting]), tmp_path / "out"
    done = await gavel("prepare", "env=instruction_following", f"source.path={source}", f"out={out}")
    assert done.code == 3, done.out + done.err
    assert "4 rows are no valid tasks (gavel:language_unsupported 2, gavel:task_schema 2)" in done.out
    assert "conflicts: 1 tasks" in done.out
    assert [(line["line"], line["task_id"]) for line in rows(out, "skipped.jsonl")] == [
        (7, "bad-schema"),
        (8, "bad-language"),
        (9, "bad-caseless"),
        (10, "bad-empty"),
    ]
    manifest = orjson.loads((out / "manifest.json").read_bytes())
    assert manifest["counts"]["skipped"] == {"gavel:language_unsupported": 2, "gavel:task_schema": 2}
    assert (manifest["counts"]["rows"], manifest["counts"]["train"]) == (11, 7)
    assert {line["task_id"]: line["metadata"].get("conflicts") for line in rows(out, "tasks.jsonl")}["both"] == (
        "change_case:all_caps + change_case:lowercase"
    )


@pytest.mark.vllm
async def test_a_mixed_file_runs_with_a_real_vllm_as_policy_and_judge(tmp_path: Path, real_vllm: RealVllm) -> None:
    rounds = [
        row(f"r{place}", line["instructions"], line["llm_judge"], line["language"]) for place, line in enumerate(ROWS)
    ]
    tasks, folder = write(tmp_path / "t.jsonl", rounds), tmp_path / "run"
    services = [
        f"{name}={value}"
        for role in ("policy", "judge")
        for name, value in (
            (role, "external"),
            (f"{role}.base_url", real_vllm.base_url),
            (f"{role}.model", real_vllm.model),
        )
    ]
    done = await gavel(
        "rollout",
        f"run.dir={folder}",
        f"tasks.path={tasks}",
        "env=instruction_following",
        *services,
        "policy.sampling.max_response_tokens=48",
        "policy.sampling.temperature=0",
        "failure.max_ungraded_fraction=1",
        timeout=300,
    )
    assert done.code in (0, 3), done.out + done.err
    ended = rows(folder) + rows(folder, "errors.jsonl")
    assert {line["task_id"] for line in ended} == {line["id"] for line in rounds}
    assert len(rows(folder)) >= 4, "a judge this small may fail to end its reasoning, but not often"
    for line in ended:
        wanted = rounds[int(line["task_id"][1:])]
        names = [item["instruction_id"] for item in wanted["instructions"]] + [
            f"llm_judge_{item['uid']}" for item in wanted["llm_judge"]
        ]
        assert [check["name"] for check in line["outcome"]["checks"]] == names
    judged = [receipt for line in rows(folder) for receipt in line["receipts"] if receipt["role"] == "judge"]
    assert judged
    assert {receipt["finish_reason"] for receipt in judged} <= {"stop", "length"}
