"""A model name that the server does not serve is noticed before the first row, where the server's listing is known to
be whole.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, reply, write_tasks


async def test_a_model_the_engine_does_not_serve_is_refused_before_any_call(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 3)
    async with (
        FaultServer(reply=reply) as policy,
        FaultServer(reply=reply, model="Qwen/Qwen3-32B", owner="vllm") as judge,
    ):
        done = await gavel(*arguments(tasks, tmp_path / "run", policy.base_url, judge_url=judge.base_url))
        assert done.code == 2, done.out + done.err
        assert "judge.model" in done.err
        assert f"{judge.base_url} does not serve this model" in done.err
        assert "Qwen/Qwen3-32B" in done.err, "what it does serve"
        assert policy.count == judge.count == 0
        assert not (tmp_path / "run").exists(), "no row was spent on it, and nothing holds the wrong name"


async def test_a_gateway_may_serve_what_it_does_not_list(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 3)
    async with (
        FaultServer(reply=reply) as policy,
        FaultServer(reply=reply, model="Qwen/Qwen3-32B", owner="gateway") as judge,
    ):
        done = await gavel(*arguments(tasks, tmp_path / "run", policy.base_url, judge_url=judge.base_url))
    assert done.code == 0, done.out + done.err
