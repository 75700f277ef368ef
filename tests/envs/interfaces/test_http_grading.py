"""What the service answers: the grade that the same code gives in process, and never a reward for what was not
graded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.instruction_following.environment_support import instruction
from tests.envs.instruction_following.environment_support import row as following_row
from tests.envs.interfaces.http_support import (
    ABSTENTION,
    FOLLOWING,
    ROOT,
    RULES,
    SHARED,
    judge_all,
    judged_item,
    lines_of,
    rule_item,
)
from tests.envs.vera_mh import support as vera
from tests.support.fault_server import FaultServer
from tests.support.serving import NOWHERE, Service, judged_at, serving

from gavel.envs.types import Finish, Observe, Result
from gavel.models.codec import to_plain
from gavel.models.types import Message

Items = list[dict[str, Any]]
REPLIES = ("\\boxed{[IDK]}", "I think it is \\boxed{something else}", "no box at all", "")


def abstention_items() -> Iterator[dict[str, Any]]:
    shipped = ROOT / "envs" / "abstention" / "data" / "samples.jsonl"
    for row in [*lines_of(shipped), *lines_of(SHARED / "abstention" / "example.jsonl")]:
        answer = row.get("answer") or row["target"]["reference"]
        yield from ({"task": row, "reply": reply} for reply in (*REPLIES, f"\\boxed{{{answer}}}"))


def following_items() -> Iterator[dict[str, Any]]:
    shipped = ROOT / "envs" / "instruction_following" / "data" / "samples.jsonl"
    for row in lines_of(shipped):
        yield from (
            {"task": row, "reply": reply} for reply in ("", "The bread and the bell. " * 12 + "And that is rain.")
        )
    for name in ("cases", "defects"):
        for number, case in enumerate(lines_of(SHARED / "instruction_following" / f"{name}.jsonl")):
            rules = [instruction(case["instruction_id"], **(case.get("kwargs") or {}))]
            yield {
                "task": following_row(f"{name}-{number}", rules, language=case["language"]),
                "reply": case["response"],
            }


def essence(result: Result) -> Any:
    """What a grade comes to, but for what each call makes anew."""
    row = to_plain(result)
    failure = row["outcome"]["failure"]
    return (
        row["status"],
        row["task_id"],
        row["task_digest"],
        row["reward"],
        row["outcome"],
        failure,
        len(row["receipts"]),
    )


def answered(answer: dict[str, Any]) -> Any:
    status = {"graded": "graded", "ungraded": "judge_error", "invalid": "invalid_task"}[answer["status"]]
    if status == "invalid_task":
        details = {"should_skip_rollout": True}
        outcome = {"label": "", "checks": [], "details": details, "failure": answer["failure"]}
        return status, answer["task_id"], "", None, outcome, answer["failure"], 0
    outcome = answer["outcome"]
    return (
        status,
        answer["task_id"],
        answer["task_digest"],
        answer.get("reward"),
        outcome,
        outcome["failure"],
        len(answer["receipts"]),
    )


async def compare(service: Service, name: str, items: Items) -> list[str]:
    """Grade every item over HTTP, in batches and one by one, and in process; return the statuses."""
    path, statuses = f"/v1/{name}/grade", []
    for start in range(0, len(items), 100):
        batch = items[start : start + 100]
        status, answers = await service.post(path, batch)
        assert (status, len(answers)) == (200, len(batch))
        for item, answer in zip(batch, answers, strict=True):
            own = essence(await service.served[name].grade_episode(item["task"], item["reply"]))
            assert answered(answer) == own, item
            statuses.append(answer["status"])
        status, answer = await service.post(path, batch[0])
        assert (status, answered(answer)) == (200, answered(answers[0]))
    return statuses


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
async def test_every_sample_of_abstention_gets_the_grade_over_http_that_it_gets_in_process(tmp_path: Path) -> None:
    async with (
        FaultServer(reply=judge_all) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path) as service,
    ):
        statuses = await compare(service, "abstention", list(abstention_items()))
        assert judge.count > 0
    assert len(statuses) > 100
    assert set(statuses) == {"graded"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
async def test_every_sample_of_instruction_following_gets_the_same_grade_too(tmp_path: Path) -> None:
    async with (
        FaultServer(reply=judge_all) as judge,
        serving(*FOLLOWING, *judged_at(judge.base_url), folder=tmp_path) as service,
    ):
        statuses = await compare(service, "instruction_following", list(following_items()))
        assert judge.count > 0
    assert len(statuses) > 900
    assert {"graded", "invalid"} >= set(statuses)
    assert statuses.count("graded") > 900


async def test_conversations_are_stepped_over_http_as_in_process_and_a_grade_of_the_whole_is_that_of_the_last_step(
    tmp_path: Path,
) -> None:
    words = (
        "env=vera_mh",
        vera.SMALL,
        "env.simulators=[{service: simulator}]",
        "env.max_turns=6",
        "services.simulator.mode=external",
        f"services.simulator.model={vera.SIMULATOR}",
    )
    tasks = lines_of(ROOT / "envs" / "vera_mh" / "data" / "samples.jsonl")
    async with FaultServer(reply=vera.reply) as models:
        urls = (
            f"services.simulator.base_url={models.base_url}",
            f"judge.base_url={models.base_url}",
            f"judge.model={vera.JUDGE}",
        )
        async with serving(*words, *urls, folder=tmp_path) as service:
            for task in tasks:
                over_http, answer = await play_over_http(service, task)
                in_process, result = await play_in_process(service, task)
                assert [(message["role"], message["content"]) for message in over_http] == in_process
                assert answered(answer) == essence(result)
                assert answer["status"] == "graded"
                again = models.count
                status, whole = await service.post("/v1/vera_mh/grade", {"task": task, "messages": over_http})
                assert status == 200
                assert whole["outcome"] == answer["outcome"]
                assert whole["reward"] == answer["reward"]
                called = [seen.body["model"] for seen in models.requests[again:]]
                assert vera.SIMULATOR not in called


async def play_over_http(service: Service, task: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    _, opened = await service.post("/v1/vera_mh/open", {"task": task})
    messages = opened["messages"]
    for turn in range(10):
        messages = [*messages, {"role": "assistant", "content": f"chatbot {turn}"}]
        status, answer = await service.post("/v1/vera_mh/step", {"task": task, "messages": messages})
        assert status == 200
        messages += answer["messages"]
        if answer["status"] != "observed":
            return messages, answer
    raise AssertionError("no end")


async def play_in_process(service: Service, task: dict[str, Any]) -> tuple[list[tuple[str, str]], Result]:
    served = service.served["vera_mh"]
    read = served.read_task(task)
    opened = await served.open_episode(read)
    assert not isinstance(opened, Finish)
    messages = opened.messages
    for turn in range(10):
        transcript = served.make_transcript(read, (*messages, Message("assistant", f"chatbot {turn}")))
        said = await served.step_episode(read, transcript)
        messages = (*transcript.messages, *said.messages)
        if not isinstance(said, Observe):
            result = await served.grade_episode(read, messages)
            return [(message.role, message.content) for message in messages], result
    raise AssertionError("no end")


async def test_a_conversation_that_is_not_over_is_ungraded_and_calls_nobody(tmp_path: Path) -> None:
    words = (
        "env=vera_mh",
        vera.SMALL,
        "env.simulators=[{service: simulator}]",
        f"services.simulator.model={vera.SIMULATOR}",
    )
    async with FaultServer(reply=vera.reply) as models:
        urls = (
            f"services.simulator.base_url={models.base_url}",
            "services.simulator.mode=external",
            *judged_at(models.base_url),
        )
        async with serving(*words, *urls, folder=tmp_path) as service:
            (task, *_) = lines_of(ROOT / "envs" / "vera_mh" / "data" / "samples.jsonl")
            said = [
                *task["messages"],
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hello you"},
            ]
            status, answer = await service.post("/v1/vera_mh/grade", {"task": task, "messages": said})
            assert (status, answer["status"], answer["failure"]["kind"]) == (200, "ungraded", "gavel:episode_cut")
            status, answer = await service.post("/v1/vera_mh/step", {"task": task, "messages": said[:-1]})
            assert (status, answer["status"], answer["failure"]["kind"]) == (200, "ungraded", "gavel:episode_cut")
            assert models.count == 0


@pytest.mark.parametrize("fault", ["503", "401", "reset_before", "not_json", "length"])
async def test_a_judge_that_fails_leaves_an_answer_with_a_failure_and_no_reward_at_all(
    tmp_path: Path, fault: str
) -> None:
    async with (
        FaultServer(choose=lambda body, n: fault) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path) as service,
    ):
        status, answer = await service.post("/v1/abstention/grade", judged_item())
        assert (status, answer["status"]) == (200, "ungraded")
        assert "reward" not in answer
        assert answer["failure"]["reason"]
        assert answer["outcome"]["failure"] == answer["failure"]
        assert answer["receipts"][-1]["attempts"]
        _, _, health = await service.send("GET", "/healthz")
        assert health["environments"]["abstention"]["ungraded"] == {answer["failure"]["kind"]: 1}


async def test_an_item_past_its_deadline_is_ungraded(tmp_path: Path) -> None:
    async with (
        FaultServer(latency=30.0) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path, deadline=0.2) as service,
    ):
        status, answer = await service.post("/v1/abstention/grade", judged_item())
    assert (status, answer["status"], answer["failure"]["kind"], answer["retry"]) == (
        200,
        "ungraded",
        "transport_timeout",
        True,
    )
    assert "0.2 s" in answer["failure"]["reason"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"question": None}, "question"),
        ({"answer": {"text": 3}}, "answer"),
        ({"schema": "gavel.task/9"}, "schema"),
        ({"question": "  "}, "question"),
    ],
)
async def test_a_task_that_cannot_be_used_is_answered_with_its_field_and_no_reward(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    async with serving(*ABSTENTION, *NOWHERE, folder=tmp_path) as service:
        item = judged_item()
        status, answer = await service.post("/v1/abstention/grade", {**item, "task": {**item["task"], **change}})
    assert (status, answer["status"], answer["error"]["field"]) == (200, "invalid", field)
    assert answer["failure"]["kind"] == "gavel:task_schema"
    assert "reward" not in answer


async def test_a_task_for_a_binding_that_is_not_there_is_invalid_and_names_those_that_are(tmp_path: Path) -> None:
    async with serving(*ABSTENTION, *NOWHERE, folder=tmp_path) as service:
        (task, *_) = lines_of(ROOT / "envs" / "abstention" / "data" / "samples.jsonl")
        for verifier, allowed in (
            ("nemo_abstention_v1/abstentoin", "abstention"),
            ("verifif/abstention", "nemo_abstention_v1/abstention"),
        ):
            _, answer = await service.post(
                "/v1/abstention/grade", {"task": {**task, "verifier": verifier}, "reply": "x"}
            )
            assert (answer["status"], answer["error"]["field"], answer["error"]["allowed"]) == (
                "invalid",
                "verifier",
                allowed,
            )


async def test_a_batch_is_answered_in_its_order_and_a_bad_item_spoils_no_other(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        items = [rule_item(number, "a, b" if number % 3 == 0 else "a b") for number in range(40)]
        mixed = [7, *items, {}, {"task": {}, "reply": "x"}, {**items[0], "replay": "y"}, None, [items[0]]]
        status, answers = await service.post(RULES, mixed)
        assert status == 200
        assert [answer["status"] for answer in answers] == [
            "error",
            *["graded"] * 40,
            "error",
            "invalid",
            "error",
            "error",
            "error",
        ]
        assert [answer["task_id"] for answer in answers[1:41]] == [str(number) for number in range(40)]
        assert [answer["reward"]["value"] for answer in answers[1:41]] == [
            float(number % 3 != 0) for number in range(40)
        ]
        assert answers[43]["error"]["field"] == "replay"
        assert (await service.post(RULES, [])) == (200, [])


async def test_a_reply_says_how_it_ended_and_messages_may_bring_their_replies(tmp_path: Path) -> None:
    async with serving(*ABSTENTION, *NOWHERE, folder=tmp_path) as service:
        item = judged_item()
        for end, label in (("stop", "abstained"), ("length", "truncated")):
            reply = {"text": "\\boxed{[IDK]}", "finish_reason": end, "model": "m"}
            _, one = await service.post("/v1/abstention/grade", {"task": item["task"], "reply": reply})
            opening = item["task"]["responses_create_params"]["input"]
            said = [*opening, {"role": "assistant", "content": reply["text"], "reply": reply}]
            _, two = await service.post("/v1/abstention/grade", {"task": item["task"], "messages": said})
            assert one["outcome"] == two["outcome"]
            assert one["outcome"]["label"] == label
        _, answer = await service.post(
            "/v1/abstention/grade", {"task": item["task"], "reply": {**reply, "finish_reason": "abort"}}
        )
        assert (answer["status"], answer["failure"]["kind"]) == ("ungraded", "provider_unavailable")


async def test_messages_of_another_task_are_refused(tmp_path: Path) -> None:
    async with serving(*ABSTENTION, *NOWHERE, folder=tmp_path) as service:
        said = [{"role": "user", "content": "Another question?"}, {"role": "assistant", "content": "\\boxed{x}"}]
        status, answer = await service.post("/v1/abstention/grade", {"task": judged_item()["task"], "messages": said})
        assert (status, answer["error"]["field"]) == (422, "messages.0")
        status, answer = await service.post("/v1/abstention/grade", {"task": judged_item()["task"], "messages": []})
        assert (status, answer["error"]["found"]) == (422, "(no message)")


async def test_the_reward_comes_with_its_components_and_every_grade_with_digests_and_receipts(tmp_path: Path) -> None:
    async with FaultServer(reply=lambda body: "CORRECT") as judge:
        words = (*ABSTENTION, "reward.correct=2.0", *judged_at(judge.base_url))
        async with serving(*words, folder=tmp_path) as service:
            _, answer = await service.post("/v1/abstention/grade", judged_item())
    assert answer["reward"]["value"] == 2.0
    assert answer["reward"]["components"]["correct"] == 2.0
    assert answer["digests"]["rubrics"]["abstention"].startswith("sha256:")
    (receipt,) = answer["receipts"]
    assert receipt["call_id"] in orjson.dumps(answer["outcome"]["checks"]).decode()
    assert answer["timing"]["total_s"] > 0


async def test_a_reward_policy_that_refuses_leaves_the_row_ungraded(tmp_path: Path) -> None:
    words = (*FOLLOWING, "env.short_circuit=true", "reward=mean")
    async with serving(*words, *NOWHERE, folder=tmp_path) as service:
        task = following_row(
            1,
            [
                instruction("punctuation:no_comma"),
                instruction("stylistic:politeness", uid=2, politeness_degree="polite"),
            ],
        )
        status, answer = await service.post(RULES, {"task": task, "reply": "a, b"})
    assert (status, answer["status"], answer["failure"]["kind"]) == (200, "ungraded", "verifier_error")
    assert "the reward policy ChecksReward refused" in answer["failure"]["reason"]


async def test_two_environments_are_served_over_one_judge_each_with_its_own_reward(tmp_path: Path) -> None:
    async with FaultServer(reply=judge_all) as judge:
        words = (*ABSTENTION, f"also.following=env=instruction_following reward=mean", "name=qa")  # noqa: F541
        async with serving(*words, *judged_at(judge.base_url), folder=tmp_path) as service:
            _, qa = await service.post("/v1/qa/grade", judged_item())
            rules = [instruction("punctuation:no_comma", uid=1), instruction("change_case:all_caps", uid=2)]
            _, following = await service.post(
                "/v1/following/grade", {"task": following_row(1, rules), "reply": "no comma"}
            )
            assert (await service.send("GET", "/v1/abstention/grade"))[0] == 404
    assert qa["status"] == "graded"
    assert following["reward"]["value"] == 0.5
