"""A service that refuses for too many requests is asked more slowly; no row is lost by it, and where one is, the keys
are named.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.faults import Fault
from tests.support.quota import Quota, roll_out
from tests.support.runs import JUDGE, arguments, gavel, reply, rows, write_tasks


@pytest.mark.parametrize("hint", [True, False])
async def test_a_quota_of_calls_paces_a_run_and_loses_no_row(hint: bool, tmp_path: Path) -> None:
    quota = Quota(10, 1.0 if not hint else 2.0, hint)
    done = await roll_out(tmp_path, quota, 80, timeout=150.0)
    assert done.code == 0, done.out + done.err
    metrics = orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())
    assert metrics["rows"]["graded"] == 80
    assert quota.refused
    assert not (tmp_path / "run" / "errors.jsonl").exists() or not rows(tmp_path / "run", "errors.jsonl")


async def test_a_run_that_stops_for_refusals_names_the_keys_that_help(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 60)
    more = ("judge.deadline=1", "concurrency=60", "failure.minimum=10")
    refuses = lambda body, n: Fault("429") if body["model"] == JUDGE else None  # noqa: E731
    async with FaultServer(reply=reply, choose=refuses) as server:
        done = await gavel(*arguments(tasks, tmp_path / "run", server.base_url, *more))
    assert done.code == 4, done.out + done.err
    said = " ".join(done.out.split())
    assert "judge.rpm" in said
    assert "judge.deadline" in said
    assert "`rpm` and `tpm`" in said
    assert "`attempts` and `deadline`" in said
