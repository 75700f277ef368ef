"""What fails in a role, a kill at any moment, judging again: nothing done is lost, and nothing that failed reaches a
figure.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.vera_mh.support import CHATBOT, JUDGE, SIMULATOR, arguments, of_model, reply, verdict, write_tasks
from tests.support.fault_server import FaultServer
from tests.support.runs import essence, gavel, rows, start, without_digests

PATIENT = [
    "failure.max_ungraded_fraction=1.0",
    "judge.attempts=1",
    "policy.attempts=1",
    "services.simulator.attempts=1",
]


def metrics(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((run / "metrics.json").read_bytes())
    return found


async def test_a_dead_simulator_leaves_a_row_of_its_kind_and_the_resumed_one_goes_on_from_there(tmp_path: Path) -> None:
    async with (
        FaultServer(reply=reply) as models,
        FaultServer(reply=reply, choose=lambda body, n: "500" if n == 2 else None) as simulator,
    ):
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 1),
            tmp_path / "run",
            models.base_url,
            *PATIENT,
            "env.max_turns=4",
            simulator=simulator.base_url,
        )
        first = await gavel(*words)
        assert first.code == 3
        (error,) = rows(tmp_path / "run", "errors.jsonl")
        assert (error["outcome"]["failure"]["kind"], error["outcome"]["failure"]["stage"]) == (
            "gavel:simulation_failed",
            "simulator",
        )
        assert (error["reward"], error["outcome"]["label"]) == (None, "")
        assert "vera_mh/vera_score" not in metrics(tmp_path / "run")["metrics"]
        assert metrics(tmp_path / "run")["tables"]["counts"] == {
            "graded": 0,
            "ungraded": {"gavel:simulation_failed": 1},
        }
        assert (await gavel(*words)).code == 0
        assert len(of_model(models.requests, CHATBOT)) == 2  # none of its turns was asked for twice
    assert len(rows(tmp_path / "run")) == 1


async def test_a_simulator_that_cannot_open_is_the_simulators_failure(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as models, FaultServer(reply=reply, choose=lambda body, n: "500") as simulator:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 1),
            tmp_path / "run",
            models.base_url,
            *PATIENT,
            simulator=simulator.base_url,
        )
        assert (await gavel(*words)).code == 3
        assert models.count == 0
    (error,) = rows(tmp_path / "run", "errors.jsonl")
    assert (error["outcome"]["failure"]["kind"], error["outcome"]["failure"]["stage"]) == (
        "gavel:simulation_failed",
        "simulator",
    )


def _ends(body: dict[str, Any]) -> Any:
    """The persona ends with its second utterance, worded anew each time it is asked."""
    _ends.asked += body["model"] == SIMULATOR  # type: ignore[attr-defined]
    if body["model"] == SIMULATOR and len(body["messages"]) > 2:
        return f"bye, the {_ends.asked}th time <END OF CONVERSATION>"  # type: ignore[attr-defined]
    if body["model"] == JUDGE and "may be at risk" in body["messages"][1]["content"]:
        return verdict("Yes")
    return reply(body)


_ends.asked = 0  # type: ignore[attr-defined]


async def test_a_judge_that_dies_midway_keeps_the_conversation_last_words_included_and_only_judging_is_resumed(
    tmp_path: Path,
) -> None:
    async with (
        FaultServer(reply=_ends) as models,
        FaultServer(reply=_ends, choose=lambda body, n: "500" if n == 4 else None) as judge,
    ):
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", models.base_url, *PATIENT, judge=judge.base_url
        )
        assert (await gavel(*words)).code == 3
        (error,) = rows(tmp_path / "run", "errors.jsonl")
        assert (error["outcome"]["failure"]["kind"], error["outcome"]["failure"]["stage"]) == ("judge_failed", "judge")
        spoken = [message["content"] for message in error["transcript"]["messages"]]
        assert spoken[-1].endswith("<END OF CONVERSATION>")
        assert [answer["question_id"] for answer in error["outcome"]["details"]["answers"]] == ["1", "3", "4"]
        asked = models.count
        assert (await gavel(*words)).code == 0
        assert models.count == asked  # neither simulator nor chatbot was asked again
        assert judge.count == 4 + 2  # the failed question and the one after it
    (row,) = rows(tmp_path / "run")
    assert [message["content"] for message in row["transcript"]["messages"]] == spoken
    assert row["outcome"]["details"]["path"] == ["1", "3", "4", "6", "9"]


async def test_regrading_asks_the_judge_alone_about_the_same_conversation(tmp_path: Path) -> None:
    async with FaultServer(reply=_ends) as models, FaultServer(reply=_ends) as judge:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 3), tmp_path / "run", models.base_url, *PATIENT, judge=judge.base_url
        )
        assert (await gavel(*words)).code == 0
        spoken, asked = models.count, judge.count
        done = await gavel("regrade", str(tmp_path / "run"), "only=all", f"into={tmp_path / 'again'}")
        assert done.code == 0, done.out + done.err
        assert (models.count, judge.count) == (spoken, 2 * asked)
    assert essence(tmp_path / "again") == essence(tmp_path / "run")


async def test_unreadable_replies_are_asked_for_again_counted_and_at_last_given_up(tmp_path: Path) -> None:
    bad = [
        "not json",
        orjson.dumps({"answer": 7, "reasoning": "r"}).decode(),
        orjson.dumps({"answer": "No"}).decode(),
        "[]",
        "",
    ]
    served: Counter[str] = Counter()

    def judge(body: dict[str, Any]) -> Any:
        question = body["messages"][1]["content"]
        served[question] += 1
        return bad[served[question] % len(bad)] if served[question] <= 8 else reply(body)

    async with FaultServer(reply=reply) as models, FaultServer(reply=judge) as judging:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 1),
            tmp_path / "run",
            models.base_url,
            *PATIENT,
            "env.max_turns=2",
            judge=judging.base_url,
        )
        assert (await gavel(*words)).code == 0
        assert judging.count == 2 * 9
        (row,) = rows(tmp_path / "run")
        assert row["outcome"]["details"]["judge_parse_retries"] == 16
        assert metrics(tmp_path / "run")["metrics"]["vera_mh/judge_parse_retry_rate"]["value"] == 8.0
        served.clear()
        words[1] = f"run.dir={tmp_path / 'other'}"
        assert (await gavel(*words, "env.parse_retries=7")).code == 3
    (error,) = rows(tmp_path / "other", "errors.jsonl")
    assert error["outcome"]["failure"]["kind"] == "judge_unparseable"
    assert "8 replies in a row" in error["outcome"]["failure"]["reason"]


async def test_a_dead_chatbot_is_no_score_and_its_turn_is_asked_again_on_resume(tmp_path: Path) -> None:
    async with (
        FaultServer(reply=reply) as models,
        FaultServer(reply=reply, choose=lambda body, n: "500" if n == 2 else None) as chatbot,
    ):
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", chatbot.base_url, *PATIENT, "env.max_turns=4"
        )
        words = [
            word.replace(chatbot.base_url, models.base_url) if not word.startswith("policy.") else word
            for word in words
        ]
        assert (await gavel(*words)).code == 3
        (error,) = rows(tmp_path / "run", "errors.jsonl")
        failure = error["outcome"]["failure"]
        assert (failure["kind"], failure["stage"]) == ("gavel:simulation_failed", "policy")
        assert failure["reason"].startswith("provider_unavailable: ")
        assert (await gavel(*words)).code == 0
        assert chatbot.count == 3
        assert len(of_model(models.requests, SIMULATOR)) == 2


def _numbered(body: dict[str, Any]) -> Any:
    """As ``reply``, but each persona ends after a number of turns of its own."""
    if body["model"] == SIMULATOR and len(body["messages"]) == 6 and "Life: Moved" in body["messages"][0]["content"]:
        return "that is all <END OF CONVERSATION>"
    return reply(body)


async def test_a_kill_at_any_moment_loses_no_finished_call(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 12)
    options = [
        "env.max_turns=6",
        "rubrics.vera_mh.temperature=null",
    ]  # at temperature 0 equal questions would share one call
    async with FaultServer(reply=_numbered) as server:
        assert (await gavel(*arguments(tasks, tmp_path / "whole", server.base_url, *options))).code == 0
        count = server.count
    for part in (0.2, 0.5, 0.9):
        run = tmp_path / f"run-{part}"
        async with FaultServer(reply=_numbered, latency=0.01) as server:
            words = arguments(tasks, run, server.base_url, *options, "concurrency=4")
            process = await start(*words)
            await server.until(int(part * count), timeout=30)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            before, events = server.count, _events(run)
            done = await gavel(*words)
            assert done.code == 0, done.out + done.err
            assert server.count - before == count - events  # what the journal holds is not asked again, all else once
        assert {key: value[1:] for key, value in essence(run).items()} == {
            key: value[1:] for key, value in essence(tmp_path / "whole").items()
        }


def _events(run: Path) -> int:
    """Finished calls in a journal: openings, turns of both sides, answers (the persona's last words among them)."""
    lines = [orjson.loads(line) for line in (run / "transcripts.jsonl").read_bytes().split(b"\n")[:-1]]
    return len(lines)


async def test_nothing_goes_to_a_host_that_the_config_does_not_name(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server, FaultServer(reply=reply) as proxy:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 3), tmp_path / "run", server.base_url, "env.max_turns=4")
        refusing = dict.fromkeys(
            ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), proxy.url
        )
        done = await gavel(*words, env={**os.environ, **refusing})
        assert done.code == 0, done.out + done.err
        assert (proxy.connections, sum(proxy.paths.values())) == (0, 0)
        assert set(server.paths) <= {"/v1/chat/completions", "/v1/models", "/health", "/tokenize"}


@pytest.mark.parametrize("only", ["all", "ungraded"])
async def test_regrading_passes_an_unfinished_conversation_over_and_never_goes_on_with_it(
    tmp_path: Path, only: str
) -> None:
    async with (
        FaultServer(reply=_ends) as models,
        FaultServer(reply=_ends) as judge,
        FaultServer(reply=reply, choose=lambda body, n: "500" if n == 2 else None) as simulator,
    ):
        tasks = write_tasks(tmp_path / "t.jsonl", 2)
        words = arguments(
            tasks,
            tmp_path / "run",
            models.base_url,
            *PATIENT,
            "concurrency=1",
            "env.max_turns=4",
            judge=judge.base_url,
            simulator=simulator.base_url,
        )
        assert (await gavel(*words)).code == 3  # v-0 ends at the second words of its persona; v-1 is whole
        assert (len(rows(tmp_path / "run")), len(rows(tmp_path / "run", "errors.jsonl"))) == (1, 1)
        spoken = (models.count, simulator.count)
        into = [f"into={tmp_path / 'again'}"] if only == "all" else []
        done = await gavel("regrade", str(tmp_path / "run"), f"only={only}", *into)
        assert done.code == 3, done.out + done.err
        assert (models.count, simulator.count) == spoken
        assert "passed over: 1, for" in done.out
    assert len(rows(tmp_path / ("again" if into else "run"))) == 1


async def test_regrading_needs_no_credentials_of_the_simulators_and_starts_none(tmp_path: Path) -> None:
    async with FaultServer(reply=_ends) as models:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", models.base_url, "env.max_turns=4")
        key = "services.simulator.api_key_env=VERA_TEST_SIMULATOR_KEY"
        done = await gavel(*words, key, env={**os.environ, "VERA_TEST_SIMULATOR_KEY": "k"})
        assert done.code == 0, done.out + done.err
        spoken = len(of_model(models.requests, SIMULATOR))
        done = await gavel("regrade", str(tmp_path / "run"), "only=all", f"into={tmp_path / 'again'}")
        assert done.code == 0, done.out + done.err
        assert len(of_model(models.requests, SIMULATOR)) == spoken
    assert len(rows(tmp_path / "again")) == 1


async def test_a_stored_transcript_that_is_not_the_one_judged_is_a_mismatch(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url, "env.max_turns=2")
        assert (await gavel(*words)).code == 0
        name = "vera_mh/transcript_mismatch_rate"
        assert metrics(tmp_path / "run")["metrics"][name]["value"] == 0.0
        path = tmp_path / "run" / "results.jsonl"
        first, second = without_digests(path.read_text()).splitlines(keepends=True)
        path.write_text(first.replace('"content":"chatbot 1"', '"content":"chatbot, changed"') + second)
        assert (await gavel(*words)).code == 0
        assert metrics(tmp_path / "run")["metrics"][name]["value"] == 0.5


async def test_unreadable_replies_before_a_failed_judging_are_counted_when_it_is_resumed(tmp_path: Path) -> None:
    bad = iter(["not json", "", "{}"])

    def judge(body: dict[str, Any]) -> Any:
        return next(bad, reply(body))

    async with FaultServer(reply=reply) as models, FaultServer(reply=judge) as judging:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 1),
            tmp_path / "run",
            models.base_url,
            *PATIENT,
            "env.max_turns=2",
            "env.parse_retries=2",
            judge=judging.base_url,
        )
        assert (await gavel(*words)).code == 3
        assert (await gavel(*words)).code == 0
        asked = judging.count
    (row,) = rows(tmp_path / "run")
    assert row["outcome"]["details"]["judge_parse_retries"] == 3
    assert len([receipt for receipt in row["receipts"] if receipt["role"] == "judge"]) == asked
    assert metrics(tmp_path / "run")["services"]["general"]["calls"] == asked
