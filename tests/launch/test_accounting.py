"""What a run's calls cost, in numbers worked out by hand; and that each call of a real run is counted once."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from rich.console import Console
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, number_of, reply, source_row, write_tasks

from gavel.launch.rollout.tally import RunMetrics, make_closing_table
from gavel.launch.runs.accounting import Accounts, ServiceAccount
from gavel.models.types import Attempt, Receipt, Usage


def receipt(
    service: str, latency: float = 1.0, usage: Usage | None = None, failed: tuple[str, ...] = (), **changes: Any
) -> Receipt:
    attempts = (*(Attempt(kind, 0.1) for kind in failed), Attempt("ok", latency))
    return Receipt(
        "0" * 16, "judge", service, "m", "sha256:0", usage=usage, latency_s=latency, attempts=attempts, **changes
    )


RECEIPTS = (
    receipt("general", 1.0, Usage(100, 10, cached_tokens=80)),
    receipt("general", 3.0, Usage(200, 20, cached_tokens=160), ("provider_unavailable", "transport_timeout")),
    receipt("general", 2.0),  # a server that counts no tokens
    receipt("general", 9.0, Usage(100, 10), ("provider_unavailable",), shared=True),
    receipt("general", 0.0, Usage(100, 10), cache_hit=True),
    receipt("policy", 5.0, Usage(50, 500), ("provider_unavailable",)),
)


@pytest.fixture
def accounts() -> Accounts:
    made = Accounts()
    made.add_receipts(RECEIPTS)
    return made


def test_each_service_has_its_calls_savings_tokens_latencies_and_retries_by_cause(accounts: Accounts) -> None:
    general, policy = accounts.close_accounts().values()
    assert general == ServiceAccount(
        calls=3,
        cache_hits=1,
        shared=1,
        prompt_tokens=300,
        completion_tokens=30,
        cached_tokens=240,
        retries={
            "provider_unavailable": 1,
            "transport_timeout": 1,
        },  # the shared answer's are those of the call that was made
        latency_s={"p50": 2.0, "p90": 2.8, "p99": 2.98},  # of 1, 2, 3; linear between ranks: 2 + 0.8, 2 + 0.98
        cache_share=0.2,
        dedupe_share=0.2,  # one in five answers each
    )
    assert (policy.calls, policy.completion_tokens, policy.latency_s["p50"], policy.cache_share) == (1, 500, 5.0, 0.0)


def test_the_whole_run_is_the_sum_and_its_percentiles_are_over_all_calls(accounts: Accounts) -> None:
    whole = accounts.compute_total()
    assert (whole.calls, whole.cache_hits, whole.shared) == (4, 1, 1)
    assert (whole.prompt_tokens, whole.completion_tokens, whole.cached_tokens) == (350, 530, 240)
    assert whole.retries == {"provider_unavailable": 2, "transport_timeout": 1}
    assert whole.latency_s["p50"] == 2.5  # of 1, 2, 3, 5
    assert (whole.cache_share, whole.dedupe_share) == (round(1 / 6, 4), round(1 / 6, 4))


def test_a_run_without_calls_costs_nothing() -> None:
    assert Accounts().compute_total() == ServiceAccount(0, 0, 0, 0, 0, 0, {}, {})


def test_the_closing_table_shows_each_service_and_all(accounts: Accounts) -> None:
    metrics = RunMetrics({"planned": 1}, {}, {}, None, {}, {}, accounts.close_accounts(), cost=accounts.compute_total())
    console = Console(file=io.StringIO(), width=200)
    console.print(make_closing_table(metrics, 1.0))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    cells = {
        line.split()[0]: " ".join(line.replace("│", " ").replace("┃", " ").split()) for line in lines if line.strip()
    }
    assert cells["judge"] == "judge 3 1 (20%) 1 (20%) 300 30 2.00 2.80 2.98 provider_unavailable 1, transport_timeout 1"
    assert cells["policy"] == "policy 1 0 0 50 500 5.00 5.00 5.00 provider_unavailable 1"
    assert cells["all"].startswith("all 4 1 (17%) 1 (17%) 350 530 2.50 ")


def metrics_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((run / "metrics.json").read_bytes())
    return found


async def test_a_run_counts_what_the_server_saw(tmp_path: Path) -> None:
    async with FaultServer(reply=reply, choose=lambda body, n: "503" if n % 5 == 0 else None) as server:
        done = await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 20), tmp_path / "run", server.base_url))
        assert done.code == 0, done.out + done.err
        found = metrics_of(tmp_path / "run")
        assert (found["services"]["policy"]["calls"], found["services"]["general"]["calls"]) == (20, 15)
        refused = server.statuses[503]
        assert refused == server.count - 35 > 0
        assert found["cost"]["retries"] == {"provider_unavailable": refused}
        assert found["cost"]["calls"] == 35
    prompt = sum(each["prompt_tokens"] for each in found["services"].values())
    assert found["cost"]["prompt_tokens"] == prompt > 0
    row = next(line for line in done.out.splitlines() if line.strip().startswith("all"))
    assert "35" in row
    assert f"provider_unavailable {refused}" in row


async def test_a_row_that_failed_and_was_graded_later_counts_each_call_once(tmp_path: Path) -> None:
    """The second attempt's row lists the policy's call again, which the first made."""
    words = [write_tasks(tmp_path / "t.jsonl", 8), tmp_path / "run"]
    async with (
        FaultServer(reply=reply) as policy,
        FaultServer(reply=reply, choose=lambda body, n: "500" if n <= 3 else None) as judge,
    ):
        more = ["judge.attempts=1", "failure.max_ungraded_fraction=1"]
        assert (await gavel(*arguments(*words, policy.base_url, *more, judge_url=judge.base_url))).code == 3
        assert (await gavel(*arguments(*words, policy.base_url, *more, judge_url=judge.base_url))).code == 0
        found = metrics_of(tmp_path / "run")["services"]
        assert (policy.count, judge.count) == (8, 9)
        assert (found["policy"]["calls"], found["general"]["calls"]) == (8, 9)
        assert found["general"]["retries"] == {"provider_unavailable": 3}


async def test_equal_questions_at_the_same_time_are_one_call_and_the_share_says_so(tmp_path: Path) -> None:
    """Four rollouts of one question with the same answer, judged at temperature 0."""
    (tmp_path / "t.jsonl").write_bytes(orjson.dumps(source_row(0)) + b"\n")
    more = ["rollouts_per_task=4", "rubrics.abstention.temperature=0.0"]
    async with FaultServer(reply=reply) as policy, FaultServer(reply=reply, latency=0.5) as judge:
        done = await gavel(
            *arguments(tmp_path / "t.jsonl", tmp_path / "run", policy.base_url, *more, judge_url=judge.base_url)
        )
        assert done.code == 0, done.out + done.err
        assert (policy.count, judge.count) == (4, 1)
    general = metrics_of(tmp_path / "run")["services"]["general"]
    assert (general["calls"], general["shared"], general["dedupe_share"]) == (1, 3, 0.75)
    assert "3 (75%)" in done.out


async def test_a_failure_that_was_shared_is_one_failed_call(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(orjson.dumps(source_row(0)) + b"\n")
    more = [
        "rollouts_per_task=4",
        "rubrics.abstention.temperature=0.0",
        "judge.attempts=1",
        "failure.max_ungraded_fraction=1",
    ]
    async with (
        FaultServer(reply=reply) as policy,
        FaultServer(reply=reply, latency=0.5, choose=lambda body, n: "cut_json") as judge,
    ):
        done = await gavel(
            *arguments(tmp_path / "t.jsonl", tmp_path / "run", policy.base_url, *more, judge_url=judge.base_url)
        )
        assert done.code == 3, done.out + done.err
        assert judge.count == 1
    general = metrics_of(tmp_path / "run")["services"]["general"]
    assert (general["calls"], general["shared"], general["retries"]) == (1, 3, {"provider_unavailable": 1})


def test_percentiles_are_those_of_numpy_over_a_thousand_calls() -> None:
    latencies = np.random.default_rng(0).gamma(2.0, 1.0, 1000)
    made = Accounts()
    made.add_receipts(receipt("s", float(latency)) for latency in latencies)
    found = made.close_accounts()["s"].latency_s
    ordered = np.sort(latencies)
    assert ordered[499] <= found["p50"] <= ordered[500]
    assert round(ordered[989], 4) <= found["p99"] <= round(ordered[990], 4)


async def test_the_rollouts_of_a_task_and_their_verdicts_stay_on_one_server_each(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as first, FaultServer(reply=reply) as second:
        both = f"[{first.base_url},{second.base_url}]"
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 24), tmp_path / "run", both, "rollouts_per_task=4", "concurrency=16"
        )
        done = await gavel(*words)
        assert done.code == 0, done.out + done.err
        seen = [
            {(body["model"], number_of(body)) for body in (each.body for each in server.requests)}
            for server in (first, second)
        ]
        assert not seen[0] & seen[1], "no question went to both"
        assert min(map(len, seen)) >= 10  # of 24 + 18
        assert first.count + second.count >= 4 * 24 + 18  # equal verdicts may be asked once
