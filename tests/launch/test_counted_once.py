"""Calls are counted once however often a row was tried; cells no spreadsheet computes; kept replies that are no
texts.
"""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import JUDGE, POLICY, arguments, gavel, number_of, reply, rows, write_tasks

from gavel.launch.comparing.cells import escape_cell
from gavel.models.calls.cache import _decode_reply


def _garbage(body: dict[str, object]) -> str:
    return "?" if body["model"] == JUDGE else reply(body)


async def test_calls_of_a_row_that_was_tried_again_are_counted_once_at_every_look(tmp_path: Path) -> None:
    """Twelve rows: one call of the policy each, two of a judge that says nothing and one of a judge that grades; but
    one row is graded at the second call. 12 + 22 + 11 + 2 = 47.
    """
    tasks, run = write_tasks(tmp_path / "t.jsonl", 12), tmp_path / "run"
    asked: Counter[int] = Counter()

    def grade_one(body: dict[str, Any]) -> str:
        if body["model"] == POLICY:
            return "\\boxed{Village}"
        asked[number_of(body)] += 1
        return "INCORRECT" if number_of(body) == 7 and asked[7] == 2 else "?"

    async with FaultServer(reply=grade_one) as bad:
        assert (await gavel(*arguments(tasks, run, bad.base_url))).code == 3
    async with FaultServer(reply=lambda _: "INCORRECT") as good:
        for _ in range(2):
            done = await gavel(*arguments(tasks, run, good.base_url))
            assert done.code == 0
            assert orjson.loads((run / "metrics.json").read_bytes())["cost"]["calls"] == 47
    assert len(bad.requests) + len(good.requests) == 47
    receipts = {
        orjson.dumps([row["task_id"], receipt])
        for name in ("results.jsonl", "errors.jsonl")
        for row in rows(run, name)
        for receipt in row["receipts"]
        if not receipt["cache_hit"] and not receipt["shared"]
    }
    assert len(receipts) == 47


async def test_the_command_that_is_printed_plays_rows_again_that_were_given_up(tmp_path: Path) -> None:
    tasks, run = write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "a run"
    async with FaultServer(reply=_garbage) as server:
        words = arguments(tasks, run, server.base_url)
        for _ in range(3):
            done = await gavel(*words)
        assert done.code == 3
        command = shlex.split(done.out.rpartition("once more: ")[2].splitlines()[0])
        assert command == ["gavel", "rollout", str(run), "retry=given_up"]
        before = len(rows(run, "errors.jsonl"))
        server.reply = reply
        assert (await gavel(*command[1:])).code == 0
    assert len(rows(run, "errors.jsonl")) == before


@pytest.mark.parametrize(
    "cell", ["=1+1", "+cmd", "-x", "@a", "\n=1", "\t=1", "\uff1d1", " =1", "\u200b=1", "\r@x", "-2+3"]
)
def test_a_cell_that_a_spreadsheet_would_compute_is_text(cell: str) -> None:
    assert escape_cell(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["-0.3", "1e-5", "+4", "a=b", "", "-1.5e-3", "50 %"])
def test_numbers_and_plain_texts_stay(cell: str) -> None:
    assert escape_cell(cell) == cell


@pytest.mark.parametrize("text", [None, 3, ["a"], {"a": 1}, True])
def test_a_kept_reply_that_is_no_text_is_a_miss(text: object) -> None:
    rest = dict.fromkeys(("served_model", "response_id", "usage", "reasoning"))
    kept = {"text": text, "finish_reason": "stop", "model": "m", **rest}
    assert _decode_reply(orjson.dumps(kept)) is None
    assert _decode_reply(orjson.dumps({**kept, "text": "a"})) is not None
