"""``gavel probe`` as a command: the judge's verdict decides the exit code, the report is kept, a dry run asks
nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.judges.support import STRICT, knowing, prompt, word
from tests.support.fault_server import FaultServer
from tests.support.runs import gavel


def too_long(body: dict[str, Any], number: int) -> str | None:
    """Refuse what does not fit, as a real server does."""
    return "context_length" if len(prompt(body).split()) > 8192 else None


def words(server: FaultServer, run: Path, *more: str) -> list[str]:
    judge = ("judge=external", f"judge.base_url={server.base_url}", "judge.model=fake", "judge.attempts=1")
    return [
        "probe",
        str(run),
        f"certificates={run.parent / 'certificates'}",
        f"rubrics.abstention.profile={STRICT}",
        *judge,
        *more,
    ]


def all_knowing(cache: Path) -> Any:
    """The judge that knows the rubric's known answers, and the environment's."""
    known = knowing(STRICT, cache)
    environment = {
        "The city of Canberra": "correct",
        "Sydney": "incorrect",
        "I'm not sure; I would have to look that up.": "abstained",
    }

    def reply(body: dict[str, Any]) -> str:
        candidate = prompt(body).rpartition("```\n")[0].rpartition("```\n")[2].strip()
        if "What is the capital of Australia?" in prompt(body) and candidate in environment:
            return word(STRICT, environment[candidate])
        return str(known(body))

    return reply


async def test_a_judge_that_answers_rightly_exits_0_and_its_report_is_kept(tmp_path: Path) -> None:
    async with FaultServer(reply=all_knowing(tmp_path / "cache"), choose=too_long) as server:
        done = await gavel(*words(server, tmp_path / "run"))
    assert done.code == 0, done.out + done.err
    environment = [
        row
        for row in orjson.loads((tmp_path / "run" / "probe.json").read_bytes())[0]["rows"]
        if row["kind"] == "environment"
    ]
    assert [row["got"] for row in environment] == ["correct 1", "incorrect 0", "abstained 0.5", "abstained 0.5"]
    assert len(list((tmp_path / "certificates").glob("*.json"))) == 1
    assert "qualified" in done.out
    (report,) = orjson.loads((tmp_path / "run" / "probe.json").read_bytes())
    assert report["binding"] == "abstention"
    assert all(row["passed"] for row in report["rows"])
    assert {row["kind"] for row in report["rows"]} == {"control", "attack", "environment"}


async def test_a_judge_that_always_says_correct_exits_3_and_the_controls_that_failed_are_named(tmp_path: Path) -> None:
    def yes(body: dict[str, Any]) -> str:
        return word(STRICT, "correct")

    async with FaultServer(reply=yes) as server:
        done = await gavel(*words(server, tmp_path / "run"))
    assert done.code == 3, done.out + done.err
    (report,) = orjson.loads((tmp_path / "run" / "probe.json").read_bytes())
    failed = {row["name"] for row in report["rows"] if row["kind"] == "control" and not row["passed"]}
    assert {"incorrect", "abstention_token", "abstention_implicit"} <= failed
    assert "correct" not in failed
    assert "not qualified" in done.out


async def test_a_dry_run_says_how_many_calls_and_makes_none(tmp_path: Path) -> None:
    async with FaultServer() as server:
        done = await gavel(*words(server, tmp_path / "run", "dry_run=true"))
    assert done.code == 0, done.err
    assert "would ask judge 14 controls" in done.out
    assert "and up to 4 answers through the whole environment" in done.out
    assert "none for thinking" in done.out
    assert server.paths.total() == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["probe", "calibrate"])
async def test_a_judge_that_is_not_there_is_refused_at_the_first_contact(verb: str, tmp_path: Path) -> None:
    async with FaultServer() as server:
        gone = server
    done = await gavel(verb, *words(gone, tmp_path / "run")[1:])
    assert done.code == 2, done.out + done.err
    assert f"judge.base_url: cannot reach {gone.base_url}: ClientConnectorError" in done.err
    assert list(tmp_path.iterdir()) == [], "no certificate, no report"


@pytest.mark.parametrize("verb", ["probe", "calibrate"])
async def test_a_judge_that_gives_no_verdict_gets_no_certificate(verb: str, tmp_path: Path) -> None:
    async with FaultServer(choose=lambda body, number: "401") as server:
        done = await gavel(verb, *words(server, tmp_path / "run")[1:])
    assert done.code == 3, done.out + done.err
    assert "no certificate: nothing was graded" in done.out
    assert not (tmp_path / "certificates").exists()


async def test_a_server_that_needs_a_key_is_probed_with_it(tmp_path: Path) -> None:
    async with FaultServer(reply=all_knowing(tmp_path / "cache"), choose=too_long, key="a-key-for-a-test") as server:
        environment = {**os.environ, "GAVEL_TEST_KEY": "a-key-for-a-test"}
        done = await gavel(*words(server, tmp_path / "run", "judge.api_key_env=GAVEL_TEST_KEY"), env=environment)
    assert done.code == 0, done.out + done.err
    (report,) = orjson.loads((tmp_path / "run" / "probe.json").read_bytes())
    assert report["server"]["models"], "the listing of models needs the key too"
    assert "a-key-for-a-test" not in done.out + done.err


async def test_a_key_that_is_not_set_is_named_as_the_user_wrote_it(tmp_path: Path) -> None:
    async with FaultServer() as server:
        done = await gavel(*words(server, tmp_path / "run", "judge.api_key_env=GAVEL_TEST_NOT_SET"))
    assert done.code == 2, done.out + done.err
    assert "judge.api_key_env" in done.err
    assert "general" not in done.err


@pytest.mark.parametrize(
    ("budget", "most"),
    [("budget.max_calls=5", 5), ("budget.max_calls=16", 16), ("budget.max_tokens=2000", 40)],
    ids=["within_the_controls", "within_the_attacks", "tokens"],
)
async def test_a_spent_budget_stops_a_probe_says_what_is_missing_and_certifies_nothing(
    tmp_path: Path, budget: str, most: int
) -> None:
    async with FaultServer(reply=all_knowing(tmp_path / "cache"), choose=too_long) as server:
        done = await gavel(*words(server, tmp_path / "run", budget, "concurrency=4"))
        asked = server.count
    assert done.code == 4, done.out + done.err
    assert 0 < asked <= most
    assert f"stopped: the budget is spent ({budget})" in done.out
    assert "no certificate, for not all was asked; missing: " in done.out
    assert not (tmp_path / "certificates").exists()
    (report,) = orjson.loads((tmp_path / "run" / "probe.json").read_bytes())
    unasked = [row for row in report["rows"] if row["got"] == "cancelled"]
    assert unasked
    assert not any(row["graded"] or row["passed"] for row in unasked)
    assert (report["determinism"], report["throughput"], report["overflow"]) == (None, None, None)


async def test_a_budget_that_ends_at_the_repeats_certifies_nothing_either(tmp_path: Path) -> None:
    async with FaultServer(reply=all_knowing(tmp_path / "cache"), choose=too_long) as server:
        whole = await gavel(*words(server, tmp_path / "whole"))
        calls = server.count
        (tmp_path / "certificates").rename(tmp_path / "kept")
        done = await gavel(*words(server, tmp_path / "run", f"budget.max_calls={calls - 12}"))
        enough = await gavel(*words(server, tmp_path / "enough", f"budget.max_calls={calls}"))
    assert (whole.code, done.code, enough.code) == (0, 4, 0), done.out + enough.out
    assert "missing: " in done.out
    assert "certificate: " in enough.out


async def test_a_budget_of_nothing_is_refused_before_a_probe(tmp_path: Path) -> None:
    async with FaultServer() as server:
        done = await gavel(*words(server, tmp_path / "run", "budget.max_calls=0"))
        assert (done.code, server.paths.total()) == (2, 0)
    assert "budget.max_calls" in done.err
