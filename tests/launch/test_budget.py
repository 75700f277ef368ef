"""A budget stops a run cleanly: exit code 4, the budget named, nothing lost, and the same command goes on."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, essence, expected_label, gavel, reply, rows, write_tasks

from gavel.launch.config.schema import BudgetConfig
from gavel.launch.rollout.budget import check_budget, find_spent
from gavel.models.calls.meter import Meter
from gavel.models.errors import ConfigError
from gavel.models.types import Usage


@pytest.mark.parametrize(
    ("budget", "calls", "tokens", "told"),
    [
        (BudgetConfig(), 10**9, 10**12, None),
        (BudgetConfig(max_calls=10), 9, 10**9, None),
        (BudgetConfig(max_calls=10), 10, 0, "budget.max_calls=10): 10 calls and 0 tokens"),
        (BudgetConfig(max_tokens=100), 1000, 99, None),
        (BudgetConfig(max_tokens=100), 7, 130, "budget.max_tokens=100): 7 calls and 130 tokens"),
        (BudgetConfig(10, 100), 11, 130, "budget.max_calls=10, budget.max_tokens=100)"),
    ],
)
def test_a_budget_is_spent_when_a_limit_is_reached(
    budget: BudgetConfig, calls: int, tokens: int, told: str | None
) -> None:
    said = find_spent(budget, Meter(calls, tokens))
    assert said is None if told is None else told in (said or "")


@pytest.mark.parametrize("key", ["max_calls", "max_tokens"])
def test_a_budget_of_nothing_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"budget.{key}"):
        check_budget(BudgetConfig(**{key: 0}))


def test_tokens_are_the_servers_count_and_an_estimate_where_it_tells_none() -> None:
    meter = Meter()
    assert meter.add_usage(Usage(100, 20, cached_tokens=90), 4000) == 120
    assert meter.add_usage(None, 400) is None
    assert meter.tokens == 220


async def test_a_spent_budget_of_calls_stops_the_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    tasks, run = write_tasks(tmp_path / "t.jsonl", 24), tmp_path / "run"
    async with FaultServer(reply=reply) as server:
        words = arguments(tasks, run, server.base_url, "concurrency=1", "budget.max_calls=10")
        first = await gavel(*words)
        assert first.code == 4, first.out + first.err
        assert "stopped: the budget is spent (budget.max_calls=10)" in first.out
        assert "run the same command again to go on" in first.out
        assert 10 <= server.count <= 11, "one row runs at a time, and its last call may be the eleventh"
        graded = len(rows(run))
        assert graded == 6  # rows of 2, 2, 2 and 1 calls: 7 after four, 9 after five, 11 after six
        assert not (run / "errors.jsonl").exists() or rows(run, "errors.jsonl") == []
        before, sessions = server.count, 1
        while (again := await gavel(*words)).code == 4:
            sessions += 1
            assert server.count - before <= 11, "each session has the whole budget, and no more"
            before = server.count
        assert again.code == 0, again.out + again.err
        assert server.count == 24 + 18, "no call was made twice"
        assert sessions >= 3
    assert {key[0]: value[1] for key, value in essence(run).items()} == {f"q-{n}": expected_label(n) for n in range(24)}


async def test_running_rows_settle_and_the_rest_is_not_begun(tmp_path: Path) -> None:
    async with FaultServer(reply=reply, latency=0.05) as server:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 40),
            tmp_path / "run",
            server.base_url,
            "concurrency=8",
            "budget.max_calls=8",
        )
        done = await gavel(*words)
        assert done.code == 4
        assert server.count == 14  # eight rows, of which two have nothing to judge
    assert len(rows(tmp_path / "run")) == 8
    assert "32 missing" in done.out


async def test_a_budget_of_tokens_counts_prompts_and_replies_of_all_services(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        tasks = write_tasks(tmp_path / "t.jsonl", 30)
        whole = await gavel(*arguments(tasks, tmp_path / "whole", server.base_url, "concurrency=1"))
        assert whole.code == 0
        cost = orjson.loads((tmp_path / "whole" / "metrics.json").read_bytes())["cost"]
        half = (cost["prompt_tokens"] + cost["completion_tokens"]) // 2
        done = await gavel(
            *arguments(tasks, tmp_path / "half", server.base_url, "concurrency=1", f"budget.max_tokens={half}")
        )
    assert done.code == 4
    assert f"budget.max_tokens={half}" in done.out
    assert 13 <= len(rows(tmp_path / "half")) <= 18


async def test_retries_count_and_a_budget_that_suffices_stops_nothing(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 4)
    async with FaultServer(reply=reply, choose=lambda body, n: "500" if n % 2 else None) as server:
        few = await gavel(*arguments(tasks, tmp_path / "few", server.base_url, "concurrency=1", "budget.max_calls=8"))
        assert few.code == 4  # 7 calls, each tried twice
    async with FaultServer(reply=reply) as server:
        enough = await gavel(
            *arguments(tasks, tmp_path / "enough", server.base_url, "concurrency=1", "budget.max_calls=7")
        )
        assert (enough.code, server.count) == (0, 7), "the last row ends with the last call"


async def test_regrade_has_a_budget_too(tmp_path: Path) -> None:
    run, into = tmp_path / "run", tmp_path / "again"
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 16), run, server.base_url))).code == 0
        words = ["regrade", str(run), "only=all", f"into={into}", "concurrency=1", "budget.max_calls=5"]
        before = server.count
        done = await gavel(*words)
        assert done.code == 4, done.out + done.err
        assert "budget.max_calls=5" in done.out
        assert server.count - before == 5
        again = await gavel(*words[:-1])
        assert again.code == 0
        assert server.count - before == 12
