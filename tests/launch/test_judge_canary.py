"""Known answers put to the judges of a training: the golden control before it starts, the canaries while it runs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.judges.support import STRICT, knowing, word
from tests.support.fault_server import FaultServer
from tests.support.preloaded import SOURCES
from tests.support.processes import matching, wait_until
from tests.support.training import COMMON, gavel, judge_words

from gavel.judges.controls.abstention import ABSTENTION_CONTROLS
from gavel.judges.probing.canary import CanaryRules
from gavel.launch.compose.compose import compose_config
from gavel.launch.training.judge.canary import FILE, GoldenFailed, StepTail, ask_golden, prepare_canaries, read_rounds
from gavel.launch.training.preflight import check_run

RULES = CanaryRules(every=10, max_drift=0.1, stop=True)
pytestmark = pytest.mark.timeout(120)
COUNT = len(ABSTENTION_CONTROLS)


def wrong(body: dict[str, Any]) -> str:
    return word(STRICT, "incorrect")


def config_of(tmp_path: Path, *urls: str, more: tuple[str, ...] = ()) -> str:
    """The config of a trainer whose judge is at ``urls``."""
    named = "[" + ",".join(f"'{url}'" for url in urls) + "]"
    words = [
        *COMMON,
        "judge=external",
        f"judge.base_url={named}",
        "judge.model=fake",
        "judge.attempts=1",
        "judge.cache=false",
        *more,
    ]
    checked = check_run(compose_config("train", words), tmp_path / "run")
    assert checked.findings == ()
    (tmp_path / "run" / "ledger").mkdir(parents=True, exist_ok=True)
    return checked.config_text


def step_on(run: Path, step: int, split: str = "train") -> None:
    with (run / "ledger" / "steps.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "split": split, "uid": f"u{step}", "weight": 1.0}) + "\n")


async def test_every_replica_grades_the_golden_control_before_the_training_starts(tmp_path: Path) -> None:
    said: list[str] = []
    async with FaultServer(reply=knowing(STRICT, tmp_path)) as one, FaultServer(reply=knowing(STRICT, tmp_path)) as two:
        await ask_golden(config_of(tmp_path, one.base_url, two.base_url), tmp_path, said.append, required=True)
        assert (one.count, two.count) == (1, 1)
    assert said == []


@pytest.mark.parametrize("required", [True, False])
async def test_a_replica_that_grades_the_golden_control_wrongly_is_named_with_both_labels(
    required: bool, tmp_path: Path
) -> None:
    said: list[str] = []
    async with FaultServer(reply=knowing(STRICT, tmp_path)) as one, FaultServer(reply=wrong) as two:
        text = config_of(tmp_path, one.base_url, two.base_url)
        if required:
            with pytest.raises(GoldenFailed) as failed:
                await ask_golden(text, tmp_path, said.append, required=True)
            told = str(failed.value)
        else:
            await ask_golden(text, tmp_path, said.append, required=False)
            (told,) = said
        assert two.base_url in told
        assert "must be correct, and is incorrect" in told


async def test_of_a_panel_each_member_grades_the_golden_control_and_the_canaries_are_the_whole_ones(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    right = knowing(STRICT, tmp_path)
    async with FaultServer(reply=right) as one, FaultServer(reply=right) as two:
        second = ("mode=external", f"base_url={two.base_url}", "model=second", "attempts=1")
        panel = ("judging.bindings.abstention.judge=[general,second]", *(f"services.second.{word}" for word in second))
        text = config_of(tmp_path, one.base_url, more=panel)
        await ask_golden(text, tmp_path, said.append, required=True)
        assert (one.count, two.count) == (1, 1)
        async with prepare_canaries(text, tmp_path / "run", 1, RULES, {}, said.append) as watched:
            assert watched is not None
            assert await watched.ask_first() is None
        assert (one.count, two.count) == (1 + COUNT, 1 + COUNT)
    assert said == []
    assert [len(found.report.labels) for found in read_rounds(tmp_path / "run")] == [COUNT]


async def test_a_judge_that_cannot_be_asked_stops_the_start_even_where_no_certificate_is_required(
    tmp_path: Path,
) -> None:
    async with FaultServer(reply=knowing(STRICT, tmp_path)) as server:
        text = config_of(tmp_path, server.base_url)
        server.script(["500"] * 9)
        with pytest.raises(GoldenFailed, match="provider_unavailable"):
            await ask_golden(text, tmp_path, lambda line: None, required=False)


async def test_drift_beyond_its_bound_ends_the_training_with_the_verdicts_that_changed(tmp_path: Path) -> None:
    run, said, right, drifting = tmp_path / "run", list[str](), knowing(STRICT, tmp_path), False
    async with FaultServer(reply=lambda body: (wrong if drifting else right)(body)) as server:
        text = config_of(tmp_path, server.base_url)
        async with prepare_canaries(text, run, 1, RULES, {}, said.append) as watched:
            assert watched is not None
            assert await watched.ask_first() is None
            assert server.count == COUNT
            drifting = True
            drifted = asyncio.create_task(watched.watch_drift())
            await asyncio.sleep(0)  # it has looked where the trainer is
            step_on(run, 9)
            step_on(run, 12)
            reason = await asyncio.wait_for(drifted, 20)
    assert "step 10: 8 of 14 verdicts changed" in reason
    assert "correct was correct, is incorrect" in reason
    assert any(line.startswith("DRIFT: ") for line in said)
    assert [(one.attempt, one.report.step, one.report.exceeded) for one in read_rounds(run)] == [
        (1, 0, False),
        (1, 10, True),
    ]


async def test_the_next_start_compares_with_what_the_first_one_found(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with FaultServer(reply=knowing(STRICT, tmp_path)) as server:
        text = config_of(tmp_path, server.base_url)
        async with prepare_canaries(text, run, 1, RULES, {}, lambda line: None) as watched:
            assert watched is not None
            assert await watched.ask_first() is None
        server.reply = wrong
        (run / FILE).open("ab").write(b'{"torn')
        async with prepare_canaries(text, run, 2, RULES, {}, lambda line: None) as watched:
            assert watched is not None
            assert "8 of 14 verdicts changed" in str(await watched.ask_first())
    assert [(one.attempt, one.report.exceeded) for one in read_rounds(run)] == [(1, False), (2, True)]


async def test_what_the_certificate_saw_is_what_the_first_start_compares_with(tmp_path: Path) -> None:
    certified = {"abstention": {one.name: one.expected[0] for one in ABSTENTION_CONTROLS}}
    said: list[str] = []
    async with FaultServer(reply=wrong) as server:
        text = config_of(tmp_path, server.base_url)
        async with prepare_canaries(text, tmp_path / "run", 1, CanaryRules(every=5), certified, said.append) as watched:
            assert watched is not None
            assert await watched.ask_first() is None, "reported only, without stop"
    assert said[0].startswith("DRIFT: abstention, step 0: 8 of 14")


async def test_no_canary_is_asked_where_none_is_wanted(tmp_path: Path) -> None:
    async with prepare_canaries(
        config_of(tmp_path, "http://127.0.0.1:9/v1"), tmp_path / "run", 1, None, {}, print
    ) as watched:
        assert watched is None


def test_only_whole_lines_of_training_steps_count(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    steps = StepTail(tmp_path / "ledger" / "steps.jsonl")
    assert steps() == 0
    step_on(tmp_path, 3)
    step_on(tmp_path, 7, "validation")
    assert steps() == 3
    with (tmp_path / "ledger" / "steps.jsonl").open("a") as file:
        file.write('{"step": 5, "split": "tra')
        file.flush()
        assert steps() == 3
        file.write('in"}\n')
    assert steps() == 5


def test_a_judge_that_drifts_while_a_run_trains_ends_it_and_status_says_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gavel.launch.cli",
            "train",
            *COMMON,
            *judge_words(tmp_path),
            f"run.dir={run}",
            "canary.every=5",
            "canary.stop=true",
            "trainer.overrides={steps: 1000, pause: 0.1}",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = run / "logs" / "trainer-1.log"
    wait_until(lambda: log.exists() and "step 2:" in log.read_text(), 60, "the second step")
    config = next((run / "attempts").glob("1.trainer.yaml")).read_text()
    url = (
        next(line for line in config.splitlines() if "http://127.0.0.1" in line)
        .split("- ")[1]
        .strip()
        .removesuffix("/v1")
    )
    urlopen(Request(f"{url}/say", data=json.dumps({"reply": "INCORRECT"}).encode(), method="POST"), timeout=5).close()
    assert process.wait(60) == 4
    assert "the judge is not the one it was" in json.loads((run / "attempts" / "1.json").read_text())["reason"]
    assert matching(str(tmp_path)) == []
    shown = gavel(["status", str(run)], tmp_path).stdout
    assert "DRIFT: abstention, step" in shown, shown
