"""A deadline: no row begins that would not end in time, what runs ends, and the run goes on later."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, essence, gavel, reply, rows, write_tasks

from gavel.launch.rollout.deadline import Deadline, parse_seconds
from gavel.models.errors import ConfigError

ROWS = 60


async def test_a_run_stops_in_time_keeps_what_it_began_and_goes_on_later(tmp_path: Path) -> None:
    tasks, run = write_tasks(tmp_path / "t.jsonl", ROWS), tmp_path / "run"
    async with FaultServer(reply=reply, latency=0.25) as server:
        begun = time.monotonic()
        first = await gavel(
            *arguments(tasks, run, server.base_url, "concurrency=3", "deadline=4s", "deadline_margin=1", "report=false")
        )
        took = time.monotonic() - begun
        assert first.code == 3, first.out + first.err
        graded = essence(run)
        assert 3 <= len(graded) < ROWS
        assert took < 4 + 5  # the start of the process, and a busy machine
        assert "the deadline is near" in first.out
        assert f"incomplete: {ROWS - len(graded)} missing" in first.out
        assert f"not begun: q-{len(graded)} (rollout 0), " in first.out  # rows begin in order
        assert rows(run, "errors.jsonl") == []
        assert {line["task_id"] for line in rows(run, "transcripts.jsonl")} == {
            task for task, _ in graded
        }  # none was cut off
        asked = server.count
        server.latency = 0.0
        again = await gavel(*arguments(tasks, run, server.base_url))
        assert again.code == 0, again.out + again.err
        assert server.count - asked == sum(2 - (n % 4 == 2) for n in range(len(graded), ROWS))  # a rule needs no judge
    assert len(essence(run)) == ROWS


async def test_a_deadline_that_is_far_changes_nothing(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        done = await gavel(
            *arguments(write_tasks(tmp_path / "t.jsonl", 5), tmp_path / "run", server.base_url, "deadline=1h30m")
        )
    assert done.code == 0, done.out + done.err
    assert "the deadline is near" not in done.out
    assert orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())["rows"]["graded"] == 5


async def test_regrading_stops_in_time_too(tmp_path: Path) -> None:
    tasks, run = write_tasks(tmp_path / "t.jsonl", ROWS), tmp_path / "run"
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(tasks, run, server.base_url))).code == 0
        server.latency = 0.4
        words = ("regrade", str(run), "only=all", f"into={tmp_path / 'child'}", "concurrency=2")
        done = await gavel(*words, "deadline=4", "deadline_margin=1")
        assert done.code == 3, done.out + done.err
        assert 0 < len(rows(tmp_path / "child")) < ROWS
        server.latency = 0.0
        assert (await gavel(*words)).code == 0
    assert len(essence(tmp_path / "child")) == ROWS


def test_the_slowest_row_seen_and_the_oldest_one_running_decide() -> None:
    now = [0.0]
    deadline = Deadline(100.0, 5.0, clock=lambda: now[0])
    assert deadline.find_reached(lambda: 0.0) is None  # nothing is known yet
    deadline.record_row(20.0)
    deadline.record_row(2.0)
    now[0] = 74.9
    assert deadline.find_reached(lambda: 0.0) is None
    assert deadline.find_reached(lambda: 30.0) is None  # the oldest is looked at twice a second
    assert not deadline.near
    now[0] = 75.0
    assert deadline.find_reached(lambda: 0.0) is not None  # 20 + 5 do not fit
    fresh = Deadline(100.0, 5.0, clock=lambda: now[0])
    now[0] = 60.0
    assert fresh.find_reached(lambda: 36.0) is not None  # a row runs for 36 s already: a new one may take as long
    assert fresh.near
    slow_start = Deadline(100.0, 5.0, clock=lambda: now[0])
    slow_start.record_row(90.0)
    for _ in range(200):
        slow_start.record_row(1.0)
    assert slow_start.find_reached(lambda: 0.0) is None  # the last 200 rows are remembered


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(90, 90), ("90", 90), ("45m", 2700), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("1d", 86400)],
)
def test_a_duration_is_read(text: str | float, seconds: float) -> None:
    assert parse_seconds(text, "deadline") == seconds


@pytest.mark.parametrize("text", ["soon", "-5", "5x", "", "12:30", "h", "nan"])
def test_what_is_no_duration_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match="2h, 1h30m"):
        parse_seconds(text, "deadline")


async def test_a_deadline_without_room_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    words = arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", "http://127.0.0.1:9/v1")
    for more, field in (
        (("deadline=10", "deadline_margin=10"), "deadline"),
        (("deadline_margin=10",), "deadline_margin"),
    ):
        done = await gavel(*words, *more)
        assert done.code == 2
        assert f"gavel: {field}: " in done.err
    assert not (tmp_path / "run").exists()
