"""NeMo Gym's routes on the real service: what is graded, what is masked, what is tried again, and whole episodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.instruction_following.environment_support import instruction
from tests.envs.instruction_following.environment_support import row as following_row
from tests.envs.interfaces.nemo_gym_support import VERA, gym_service, played_at, responded
from tests.envs.vera_mh import support as vera
from tests.support.fault_server import FaultServer
from tests.support.gym_models import abstention_row, both
from tests.support.serving import NOWHERE

from gavel.envs.interfaces.http.gate import HttpOptions
from gavel.envs.interfaces.nemo_gym.rows import make_gym_row
from gavel.envs.types import Result, Task
from gavel.envs.vera_mh.target import VeraMhTarget
from gavel.models.codec import decode
from gavel.models.types import Message

ABSTENTION = ("env=abstention", "rubrics.abstention.profile=gavel/qa-abstention-v1")
FOLLOWING = ("env=instruction_following", "reward=all")


def verify_body(row: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
    """What an agent of Gym's sends: the row, every optional field of the request as null."""
    params = {**row["responses_create_params"], "temperature": None, "max_output_tokens": None, "instructions": None}
    return {
        **row,
        "responses_create_params": params,
        "response": responded(text),
        "_ng_task_index": 4,
        "_ng_rollout_index": 1,
        **more,
    }


async def test_a_graded_row_is_echoed_with_its_reward_under_gyms_names(tmp_path: Path) -> None:
    async with gym_service(*ABSTENTION, *NOWHERE, folder=tmp_path) as service:
        status, reply = await service.post("/verify", body := verify_body(abstention_row(6), "\\boxed{[IDK]}"))
    assert status == 200
    assert {name: reply[name] for name in body} == body
    expected = {
        "reward": 0.5,
        "verdict": "abstain",
        "extracted_answer": "[IDK]",
        "ground_truth": "7",
        "judge_output": None,
        "is_correct": 0.0,
        "is_abstain": 1.0,
        "is_incorrect": 0.0,
        "omniscience_index": 0.0,
        "mask_sample": False,
    }
    assert {name: reply[name] for name in expected} == expected
    assert not {name for name in reply if name.startswith("_ng_failure") or name.startswith("failure")}
    result = decode(Result, reply["gavel_result"])
    assert (result.outcome.label, result.rollout_index, result.attempt) == ("abstained", 1, 1)


async def test_a_judge_that_is_away_masks_the_row_in_both_places_and_lets_gym_try_again(tmp_path: Path) -> None:
    body = verify_body(abstention_row(1), "\\boxed{2 or so}", _ng_attempt_index=1, instance_config={"kept": 1})
    async with gym_service(*ABSTENTION, *NOWHERE, "judge.attempts=1", folder=tmp_path) as service:
        status, reply = await service.post("/verify", body)
    assert status == 200
    assert (reply["reward"], reply["mask_sample"], reply["instance_config"]) == (
        0.0,
        True,
        {"kept": 1, "mask_sample": True},
    )
    assert (reply["failure_kind"], reply["_ng_failure_class"]) == ("transport_unreachable", "judge_failed")
    assert "_ng_failure_terminal" not in reply
    assert reply["failure_reason"] == reply["_ng_failure_message"] != ""
    assert (reply["response"], reply["extracted_answer"]) == (body["response"], "2 or so")
    assert "is_correct" not in reply, "a number here would be averaged"
    assert decode(Result, reply["gavel_result"]).attempt == 2


@pytest.mark.parametrize(
    ("bad", "kind", "name"),
    [
        ({"instructions": [instruction("no:such")]}, "gavel:task_schema", "schema_validation"),
        (
            {"language": "ja", "instructions": [instruction("change_case:all_caps")]},
            "gavel:language_unsupported",
            "language_compatibility",
        ),
    ],
)
async def test_a_row_that_cannot_be_graded_stays_masked_and_is_not_tried_again(
    bad: dict[str, Any], kind: str, name: str, tmp_path: Path
) -> None:
    row = {**following_row(3, [instruction("punctuation:no_comma")]), **bad}
    async with gym_service(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        _, reply = await service.post("/verify", verify_body(row, "Anything."))
    assert (reply["reward"], reply["mask_sample"], reply["should_skip_rollout"]) == (0.0, True, True)
    assert reply["instance_config"] == {"mask_sample": True}
    assert reply["failure_kind"] == kind
    assert not any(key.startswith("_ng_failure") for key in reply), (
        "a class would send it beside the results, to be tried again"
    )
    assert reply["follow_all_instructions"] is False
    (failed,) = reply["validation_results"]
    assert (failed["instruction"], failed["status"]) == (name, "Failed")


async def test_instruction_following_replies_have_the_names_of_verifif(tmp_path: Path) -> None:
    row = following_row(
        3, [instruction("punctuation:no_comma", 1), instruction("keywords:existence", 2, keywords=["sea"])]
    )
    async with gym_service(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        _, reply = await service.post("/verify", verify_body(row, "no comma"))
    assert (reply["reward"], reply["follow_all_instructions"], reply["follow_instruction_list"]) == (
        0.0,
        False,
        [True, False],
    )
    assert [(found["instruction"], found["status"]) for found in reply["validation_results"]] == [
        ("punctuation:no_comma", "Passed"),
        ("keywords:existence", "Failed"),
    ]


async def test_sessions_keep_nothing_and_the_newer_form_gets_its_id_back(tmp_path: Path) -> None:
    async with gym_service(*ABSTENTION, *NOWHERE, folder=tmp_path) as service:
        assert await service.post("/seed_session", abstention_row(1)) == (200, {})
        newer = {
            "resources_session_id": "s-1",
            "episode_id": {"rollout_id": "r", "attempt": 0},
            "task_id": {},
            "task_data": {},
        }
        for path in ("/seed_session", "/close_session", "/ng-rollout/r1/seed_session"):
            assert await service.post(path, newer) == (200, {"resources_session_id": "s-1"})
        assert (await service.send("GET", "/reverify_mode"))[::2] == (200, "stateless")
        assert (await service.send("GET", "/"))[0] == 200
        _, _, config = await service.send("GET", "/global_config_dict_yaml")
    blocks = orjson.loads(config)  # a string that holds JSON
    at = {"host": "127.0.0.1", "port": service.port}
    assert blocks["head_server"] == at
    for name, group in (
        ("gavel_abstention", "resources_servers"),
        ("gavel_abstention_agent", "responses_api_agents"),
        ("gavel_abstention_environment_server", "environment_servers"),
    ):
        (block,) = blocks[name][group].values()
        assert {key: block[key] for key in at} == at
        assert block["entrypoint"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/verify", [], "the body"),
        ("/verify", {**abstention_row(1), "response": None}, "response"),
        ("/verify", {**abstention_row(1), "response": {"output": "x"}}, "response.output"),
        ("/run", abstention_row(1), "policy"),
        ("/run", {"episode_id": {}, "task": 3}, "task"),
        ("/aggregate_metrics", {"verify_responses": 3}, "verify_responses"),
        (
            "/verify",
            {**abstention_row(1), "agent_ref": None, "gavel": {"env": "other"}, "response": responded("x")},
            "agent_ref.name",
        ),
    ],
)
async def test_a_body_that_is_no_row_is_refused_with_the_field(
    path: str, body: Any, field: str, tmp_path: Path
) -> None:
    async with gym_service(*ABSTENTION, *NOWHERE, folder=tmp_path) as service:
        status, answer = await service.post(path, body)
    assert status == 422
    assert field in answer["error"]["field"]


async def test_a_row_is_played_as_it_would_be_verified_with_the_rows_sampling(tmp_path: Path) -> None:
    async with FaultServer(reply=both) as server:
        words = (*ABSTENTION, f"judge.base_url={server.base_url}", "judge.model=judge", *played_at(server.base_url))
        async with gym_service(*words, folder=tmp_path) as service:
            row = {**abstention_row(2), "_ng_rollout_index": 0}
            row["responses_create_params"] |= {"temperature": 0.25, "max_output_tokens": 77}
            _, played = await service.post("/run", row)
            _, again = await service.post("/verify", {**row, "response": played["response"]})
        asked = next(seen.body for seen in server.requests if seen.body["model"] == "policy")
    assert (asked["temperature"], asked["max_tokens"]) == (0.25, 77)
    assert (played["reward"], played["verdict"]) == (again["reward"], again["verdict"]) == (1.0, "correct")
    assert played["response"]["output"][-1]["content"][0]["text"] == "\\boxed{the number 3}"
    assert played["response"]["usage"]["output_tokens"] > 0


async def test_a_policy_that_fails_is_masked_and_tried_again_and_tools_are_refused_as_a_task(tmp_path: Path) -> None:
    words = (*ABSTENTION, *NOWHERE, *played_at("http://127.0.0.1:1/v1"), "policy.attempts=1")
    async with gym_service(*words, folder=tmp_path) as service:
        _, away = await service.post("/run", abstention_row(1))
        tools = abstention_row(1)
        tools["responses_create_params"]["tools"] = [{"type": "function", "name": "f"}]
        _, refused = await service.post("/run", tools)
    assert (away["mask_sample"], away["_ng_failure_class"], away["_ng_failure_stage"]) == (
        True,
        "transport_unreachable",
        "agent",
    )
    assert (away["response"]["status"], away["response"]["output"]) == ("failed", [])
    assert (refused["mask_sample"], refused["failure_kind"], refused["should_skip_rollout"]) == (
        True,
        "gavel:task_schema",
        True,
    )


async def test_the_newer_form_of_run_is_answered_with_one_of_result_and_failure(tmp_path: Path) -> None:
    row = abstention_row(2)
    task = {
        "task_id": {"taskset": "t", "task_id": "1"},
        "task_input": {
            "responses_create_params": row["responses_create_params"],
            "task_data": {key: row[key] for key in ("id", "question", "answer")},
        },
    }
    body = {"episode_id": {"rollout_id": "r", "attempt": 0}, "task": task}
    async with FaultServer(reply=both) as server:
        words = (*ABSTENTION, f"judge.base_url={server.base_url}", "judge.model=judge", *played_at(server.base_url))
        async with gym_service(*words, folder=tmp_path) as service:
            _, good = await service.post("/run", body)
            await server.stop()
            _, bad = await service.post("/run", body)
    assert (good["episode_id"], good["task_id"], good["result"]["reward"]) == (body["episode_id"], task["task_id"], 1.0)
    assert not [name for name in good["result"] if name.startswith("_ng_")]
    assert "result" not in bad
    assert (bad["failure"]["terminal"], bad["failure"]["stage"]) == (False, "agent")


async def test_rows_wait_for_their_place_instead_of_being_refused(tmp_path: Path) -> None:
    """Gym sends all rows at once, and its run ends at the first refusal."""
    rows = [verify_body(following_row(number, [instruction("punctuation:no_comma")]), "fine") for number in range(40)]
    async with gym_service(
        *FOLLOWING, *NOWHERE, folder=tmp_path, options=HttpOptions(max_in_flight=2, max_batch=2)
    ) as service:
        answers = await asyncio.gather(*(service.post("/verify", row) for row in rows))
    assert [(status, answer["reward"]) for status, answer in answers] == [(200, 1.0)] * 40


async def test_metrics_are_the_environments_own_beside_gyms_and_need_no_small_body(tmp_path: Path) -> None:
    options = HttpOptions(max_body_bytes=6000)
    async with gym_service(*FOLLOWING, *NOWHERE, folder=tmp_path, options=options) as service:
        replies = []
        for number, text in enumerate(["fine", "fine", "not, fine", "fine"]):
            row = following_row(number // 2, [instruction("punctuation:no_comma")])
            _, reply = await service.post("/verify", verify_body(row, text))
            replies.append({**reply, "_ng_task_index": number // 2, "_ng_rollout_index": number % 2})
        assert len(orjson.dumps(replies)) > options.max_body_bytes
        _, found = await service.post("/aggregate_metrics", {"verify_responses": replies})
    key = found["key_metrics"]
    assert (key["mean/reward"], key["instruction_following/prompt_accuracy"], key["instruction_following/pass@2"]) == (
        0.75,
        0.75,
        1.0,
    )
    assert "instruction_following/prompt_accuracy@language=en" in found["agent_metrics"]
    assert "instruction_following/prompt_accuracy@language=en" not in key
    assert len(found["repeat_level_metrics"]) == 2


async def test_a_conversation_is_played_whole_verified_again_and_never_graded_by_one_reply(tmp_path: Path) -> None:
    target = VeraMhTarget("Ines", "simulator")
    row = make_gym_row(
        Task("v", "vera_mh", "vera_mh/vera_mh", (Message("system", vera.SYSTEM),), target, {"risk": "None"})
    )
    assert row["responses_create_params"]["input"] == [{"role": "system", "content": vera.SYSTEM}]
    async with FaultServer(reply=vera.reply) as server:
        url = server.base_url
        words = (*VERA, f"services.simulator.base_url={url}", f"judge.base_url={url}", f"judge.model={vera.JUDGE}")
        async with gym_service(*words, *played_at(url, vera.CHATBOT), folder=tmp_path) as service:
            _, played = await service.post("/run", row)
            simulated = len(vera.of_model(server.requests, vera.SIMULATOR))
            _, again = await service.post("/verify", {**row, "response": played["response"]})
            assert len(vera.of_model(server.requests, vera.SIMULATOR)) == simulated, "grading asks no simulator"
            status, refused = await service.post("/verify", {**row, "response": responded("Hello.")})
    said = [
        (item["role"], item["content"] if item["role"] == "user" else item["content"][0]["text"])
        for item in played["response"]["output"]
    ]
    assert said == [
        ("user", "persona 1"),
        ("assistant", "chatbot 1"),
        ("user", "persona 2"),
        ("assistant", "chatbot 3"),
    ]
    assert played["mask_sample"] is False
    assert (again["reward"], again["label"], again["ratings"]) == (played["reward"], played["label"], played["ratings"])
    assert status == 422
    assert "gym eval run --no-serve --agent gavel_vera_mh_agent" in refused["error"]["fix"]


async def test_each_row_finds_its_environment_where_several_are_served(tmp_path: Path) -> None:
    words = (*ABSTENTION, *NOWHERE, "also.instruction_following=env=instruction_following reward=all")
    bare = following_row(3, [instruction("punctuation:no_comma")])
    async with gym_service(*words, folder=tmp_path) as service:
        by_form = await service.post("/verify", verify_body(bare, "fine"))
        by_agent = await service.post("/verify", verify_body(abstention_row(1), "[IDK]"))
        lost = await service.post("/verify", {"responses_create_params": {"input": "?"}, "response": responded("x")})
        _, _, health = await service.send("GET", "/healthz")
    assert by_form[1]["follow_all_instructions"] is True
    assert by_agent[1]["verdict"] == "abstain"
    assert lost[0] == 422
    assert {name: counts["graded"] for name, counts in health["environments"].items()} == {
        "abstention": 1,
        "instruction_following": 1,
    }
