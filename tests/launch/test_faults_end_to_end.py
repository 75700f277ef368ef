"""Every fault, once and in bursts, through the whole command: a row ends graded rightly or as a named failure, within
bounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.instruction_following.environment_support import check_of, question, verdict
from tests.envs.instruction_following.environment_support import row as source_of
from tests.support.fault_server import FaultServer
from tests.support.fault_table import HARMLESS, LABELS, OWN, PASSING, TABLE, TRIPPING, Expected, of_policy
from tests.support.faults import NAMES, Fault
from tests.support.runs import JUDGE, POLICY, arguments, expected_label, gavel, number_of, reply, rows, source_row

DEADLINE = 45.0
"""Seconds of wall clock for one run on a busy machine; its calls give up after 12 s each."""

LIMITS = [
    "failure.max_ungraded_fraction=1.0", "concurrency=256",
    *(f"{service}.{key}" for service in ("policy", "judge") for key in ("timeout.total=1.0", "timeout.connect=1.0", "deadline=12")),  # noqa: E501
]  # fmt: skip
ROWS_OF_A_FAULT = 12
Strikes = Callable[[int, int], bool]


def asked(body: dict[str, Any]) -> str:
    """Answer as the policy of ``reply``; as judge read the candidate, so that a policy's broken words are graded for
    what they are.
    """
    if body["model"] == POLICY:
        return reply(body)
    candidate = body["messages"][-1]["content"].rpartition("<candidate>")[2]
    if f"Town {number_of(body)}" in candidate:
        return "CORRECT"
    return "NOT_ATTEMPTED" if "look that up" in candidate else "INCORRECT"


class Faulty:
    """Chooses faults for one model's calls: each row has its own fault, which strikes by (row, try)."""

    def __init__(self, model: str, faults: dict[int, Fault], strikes: Strikes) -> None:
        self._model, self._faults, self._strikes = model, faults, strikes
        self.calls: Counter[int] = Counter()
        self.struck: Counter[int] = Counter()

    def __call__(self, body: dict[str, Any], n: int) -> Fault | None:
        if body["model"] != self._model:
            return None
        number = number_of(body)
        self.calls[number] += 1
        if number not in self._faults or not self._strikes(number, self.calls[number]):
            return None
        self.struck[number] += 1
        return self._faults[number]


def numbers(count: int) -> list[int]:
    """Rows that need the judge and hold no thinking block of their own: right and wrong answers in turn."""
    return [number for number in range(2 * count + 4) if number % 4 < 2][:count]


def write(path: Path, lines: Iterable[Any]) -> Path:
    """Write a file of tasks, and the folder it stands in."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


async def play(folder: Path, chosen: Sequence[int], choose: Any, *more: str) -> tuple[int, Path]:
    """Run the rows ``chosen`` against a faulty server; return the exit code and the run folder."""
    tasks = write(folder / "t.jsonl", map(source_row, chosen))
    began = time.monotonic()
    async with FaultServer(reply=asked, choose=choose, record=False) as server:
        done = await gavel(*arguments(tasks, folder / "run", server.base_url, *LIMITS, *more), timeout=DEADLINE)
    assert time.monotonic() - began < DEADLINE
    assert done.code in (0, 3), done.out + done.err
    assert "Traceback" not in done.err
    return done.code, folder / "run"


def ends(run: Path, chosen: Sequence[int]) -> dict[int, str]:
    """Return each row's end, a label or a kind, after the checks that hold for any run: one end a row, and no reward
    for a failure.
    """
    found: dict[int, str] = {}
    for line in rows(run):
        assert line["status"] == "graded"
        found[int(line["task_id"][2:])] = line["outcome"]["label"]
    graded = len(found)
    for line in rows(run, "errors.jsonl"):
        number, failure = int(line["task_id"][2:]), line["outcome"]["failure"]
        assert number not in found
        assert (line["status"], line["reward"], line["fallback_reward"], line["outcome"]["label"]) == (
            "judge_error",
            None,
            0.0,
            "",
        )
        assert failure["reason"]
        found[number] = failure["kind"]
    assert sorted(found) == sorted(chosen)
    metrics = orjson.loads((run / "metrics.json").read_bytes())
    assert (metrics["reward"] or {"n": 0})["n"] == graded
    return found


def facts(run: Path) -> dict[str, Any]:
    """What must not depend on faults, of each graded row."""
    return {
        line["task_id"]: (
            line["outcome"]["label"],
            line["outcome"]["details"],
            line["reward"],
            line["transcript"]["messages"][-1]["content"],
        )
        for line in rows(run)
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts of a run without faults."""
    code, run = asyncio.run(play(tmp_path_factory.mktemp("whole"), numbers(ROWS_OF_A_FAULT * len(TABLE)), None))
    assert code == 0
    return facts(run)


def sides(model: str) -> list[Expected]:
    return [of_policy(row) if model == POLICY else row for row in PASSING]


def is_graded(row: Expected) -> bool:
    return row.kind in LABELS or row.kind == OWN


def own_label(row: Expected, number: int) -> str:
    """A policy's text that is no answer is incorrect; its right text, said twice or under another name, is what it
    was.
    """
    return expected_label(number) if row.fault.name in ("two_objects", "wrong_model") else "incorrect"


def test_every_fault_the_server_can_play_is_in_the_table() -> None:
    assert {row.fault.name for row in TABLE} | set(HARMLESS) == set(NAMES)
    assert len({row.name for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("model", [JUDGE, POLICY])
async def test_a_fault_that_strikes_once_is_got_over_or_named(
    model: str, tmp_path: Path, whole: dict[str, Any]
) -> None:
    expected = dict(zip(numbers(len(PASSING)), sides(model), strict=True))
    faulty = Faulty(model, {number: row.fault for number, row in expected.items()}, lambda number, call: call == 1)
    _, run = await play(tmp_path / "x", list(expected), faulty)
    found, graded = ends(run, list(expected)), facts(run)
    for number, row in expected.items():
        assert faulty.struck[number] == 1, row.name
        if row.again:
            assert graded[f"q-{number}"] == whole[f"q-{number}"], row.name
            assert faulty.calls[number] >= 2, row.name
        else:
            assert found[number] == (own_label(row, number) if row.kind == OWN else row.kind), row.name
            assert faulty.calls[number] == 1, row.name


@pytest.mark.parametrize("model", [JUDGE, POLICY])
async def test_a_fault_that_lasts_ends_as_its_kind_and_hurts_no_other_row(
    model: str, tmp_path: Path, whole: dict[str, Any]
) -> None:
    chosen = numbers(2 * len(PASSING))
    expected = dict(zip(chosen[::2], sides(model), strict=True))
    faulty = Faulty(model, {number: row.fault for number, row in expected.items()}, lambda number, call: True)
    code, run = await play(tmp_path / "x", chosen, faulty, "judge.attempts=2", "policy.attempts=2")
    found, graded = ends(run, chosen), facts(run)
    assert code == 3
    for number, row in expected.items():
        assert found[number] == (own_label(row, number) if row.kind == OWN else row.kind), row.name
        assert (faulty.calls[number] > 1) is row.again, row.name
    for number in set(chosen) - set(expected):
        assert graded[f"q-{number}"] == whole[f"q-{number}"]


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("model", [JUDGE, POLICY])
async def test_faults_of_every_kind_in_bursts_change_no_grade(
    model: str, share: float, tmp_path: Path, whole: dict[str, Any]
) -> None:
    kinds = sides(model)
    chosen = numbers(ROWS_OF_A_FAULT * len(kinds))
    expected = {number: kinds[k % len(kinds)] for k, number in enumerate(chosen)}
    place = {number: k // len(kinds) for k, number in enumerate(chosen)}  # among the rows of its fault

    def strikes(number: int, call: int) -> bool:
        return (
            place[number] < share * ROWS_OF_A_FAULT
            if call == 1
            else random.Random(f"{number} {call} {share}").random() < share
        )

    faulty = Faulty(model, {number: row.fault for number, row in expected.items()}, strikes)
    _, run = await play(tmp_path / "x", chosen, faulty)
    found, graded = ends(run, chosen), facts(run)
    assert {expected[number].name for number in faulty.struck} == {row.name for row in kinds}, "every fault struck"
    for number, row in expected.items():
        if not faulty.struck[number] or (row.again and found[number] == expected_label(number)):
            assert graded[f"q-{number}"] == whole[f"q-{number}"], row.name
        else:
            assert found[number] == (own_label(row, number) if row.kind == OWN else row.kind), row.name
    lost = [number for number, row in expected.items() if row.again and found[number] != expected_label(number)]
    assert len(lost) < len(chosen) * share * share, "a row is lost only where a fault strikes again"


@pytest.mark.parametrize("row", TRIPPING, ids=lambda row: row.name)
async def test_a_refusal_for_good_ends_every_later_call_at_once_as_its_kind(
    row: Expected, tmp_path: Path, whole: dict[str, Any]
) -> None:
    chosen = numbers(40)
    at_once = 4

    async def one(model: str, share: float | None) -> None:
        draw, struck = random.Random(f"{model} {share}"), 0
        calls = 0

        def choose(body: dict[str, Any], n: int) -> Fault | None:
            nonlocal calls, struck
            calls += body["model"] == model
            strikes = body["model"] == model and (calls == 10 if share is None else draw.random() < share)
            struck += strikes
            return row.fault if strikes else None

        code, run = await play(tmp_path / f"{model}-{share}", chosen, choose, f"concurrency={at_once}")
        found, graded = ends(run, chosen), facts(run)
        failed = [kind for number, kind in found.items() if f"q-{number}" not in graded]
        assert struck
        assert code == 3
        assert set(failed) == {row.kind}
        assert calls <= len(chosen) - len(failed) + struck + at_once
        assert graded == {name: whole[name] for name in graded}

    await asyncio.gather(one(JUDGE, None), one(POLICY, None), one(JUDGE, 0.1), one(POLICY, 0.3))


@pytest.mark.parametrize("model", [JUDGE, POLICY])
async def test_a_server_that_restarts_in_the_middle_costs_no_grade(
    model: str, tmp_path: Path, whole: dict[str, Any]
) -> None:
    chosen = numbers(200)
    tasks = write(tmp_path / "t.jsonl", map(source_row, chosen))
    async with FaultServer(reply=asked, latency=0.02) as steady, FaultServer(reply=asked, latency=0.02) as shaky:
        urls = (shaky.base_url, steady.base_url) if model == POLICY else (steady.base_url, shaky.base_url)
        words = arguments(tasks, tmp_path / "run", urls[0], *LIMITS, "concurrency=16", judge_url=urls[1])
        running = asyncio.create_task(gavel(*words, timeout=DEADLINE))
        await shaky.until(60, timeout=30)
        await shaky.stop()
        await shaky.start()
        done = await running
    assert done.code in (0, 3), done.out + done.err
    found, graded = ends(tmp_path / "run", chosen), facts(tmp_path / "run")
    assert graded == {name: whole[name] for name in graded}
    lost = {kind for number, kind in found.items() if f"q-{number}" not in graded}
    assert lost <= {"transport_unreachable", "transport_peer_drop"}
    assert len(graded) >= 190


SHAPED = (
    "nan_score",
    "inf_score",
    "two_objects",
    "unclosed_think",
    "reasoning_only",
    "null_content",
    "length",
    "not_json",
)


async def test_faults_in_a_reply_of_several_fields_never_become_a_verdict(tmp_path: Path) -> None:
    """The instruction rubric reads a JSON object: what stands in it may be wrong in ways a single word cannot."""

    def said(body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        return "Please come in." if body["model"] == POLICY else verdict("fragment" not in check_of(prompt))

    lines = [
        source_of(k, [], [question("Is it an invitation?"), question("Is it a fragment?", uid=10)])
        for k in range(1, 1 + len(SHAPED))
    ]
    tasks = write(tmp_path / "t.jsonl", lines)
    tries: Counter[tuple[int, str]] = Counter()

    def faulty(strikes: Callable[[int], bool]) -> Callable[[dict[str, Any], int], str | None]:
        tries.clear()

        def choose(body: dict[str, Any], n: int) -> str | None:
            prompt = body["messages"][-1]["content"]
            number = int(prompt.rpartition("Request ")[2].split()[0])
            key = (number, check_of(prompt) if body["model"] == JUDGE else "")
            tries[key] += 1
            return SHAPED[number - 1] if body["model"] == JUDGE and strikes(tries[key]) else None

        return choose

    async def run(name: str, strikes: Callable[[int], bool]) -> dict[str, Any]:
        async with FaultServer(reply=said, choose=faulty(strikes)) as server:
            words = arguments(tasks, tmp_path / name, server.base_url, *LIMITS, "judge.attempts=2")
            words = [
                "env=instruction_following" if word == "env=abstention" else word
                for word in words
                if "rubrics.abstention" not in word
            ]
            done = await gavel(*words, timeout=DEADLINE)
        assert done.code in (0, 3), done.out + done.err
        for line in rows(tmp_path / name, "errors.jsonl"):
            assert (line["reward"], line["fallback_reward"]) == (None, 0.0)
            assert line["outcome"]["failure"]["kind"] in ("judge_unparseable", "provider_unavailable")
        return {
            line["task_id"]: [check["passed"] for check in line["outcome"]["checks"]] for line in rows(tmp_path / name)
        }

    right = {str(k): [True, False] for k in range(1, 1 + len(SHAPED))}
    assert await run("once", lambda call: call == 1) == right
    lasting = await run("lasting", lambda call: True)
    assert lasting == {str(1 + SHAPED.index("two_objects")): [True, False]}, "the same verdict twice is one verdict"
