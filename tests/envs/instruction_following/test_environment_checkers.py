"""The fast checks run away from the event loop, in processes that end with their owner and are replaced when they
die.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.processes import alive, wait_until

from gavel.envs.instruction_following import checkers as module
from gavel.envs.instruction_following.checkers import Checkers, WorkerLost
from gavel.envs.instruction_following.fast import FastJob, run_fast
from gavel.models.texts import textwork

COMMA, WORDS = (
    ("punctuation:no_comma", {}),
    ("length_constraints:number_words", {"relation": "equal to", "num_words": 3}),
)
PARAGRAPHS = ("detectable_format:number_paragraphs", {"relation": "at least", "num_paragraphs": 2})
JOB = FastJob("One, two, three.", "en", [COMMA, WORDS])

OWNER = """
import asyncio, sys, time
from gavel.envs.instruction_following.checkers import Checkers
from gavel.envs.instruction_following.fast import FastJob

checkers = Checkers(1)
asyncio.run(checkers.check(FastJob("Hi.", "en", [("punctuation:no_comma", {})])))
print(checkers._pool.idle.get_nowait().process.pid, flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
"""


@pytest.fixture
def checkers() -> Checkers:
    return Checkers(1)


def pid_of(checkers: Checkers) -> int:
    worker = checkers._pool.idle.get_nowait()
    checkers._pool.idle.put(worker)
    return worker.process.pid


async def test_a_worker_gives_the_verdicts_that_the_function_gives(checkers: Checkers) -> None:
    assert await checkers.check(JOB) == run_fast(JOB)
    assert [verdict.passed for verdict in run_fast(JOB)] == [False, True]
    assert pid_of(checkers) != os.getpid()


async def test_a_bug_in_one_check_is_no_verdict_and_leaves_the_others(checkers: Checkers) -> None:
    job = FastJob(
        "One, two, three.", "en", [COMMA, ("length_constraints:number_words", {"relation": "equal to"}), WORDS]
    )
    verdicts = await checkers.check(job)
    assert [verdict.passed for verdict in verdicts] == [False, None, True]
    assert "num_words" in verdicts[1].detail


async def test_the_loop_goes_on_while_a_long_reply_is_checked(checkers: Checkers) -> None:
    await checkers.check(JOB)  # the worker has started
    checking = asyncio.create_task(checkers.check(FastJob("Some **words**.\n\n" * 40_000, "en", [PARAGRAPHS])))
    began, ticks = time.perf_counter(), 0
    while not checking.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert time.perf_counter() - began > 0.02, "the reply is too short to show anything"
    assert ticks >= 10


async def test_any_text_gets_to_the_worker_and_back(checkers: Checkers) -> None:
    for text in ("\ud800 lone", "a\0b", "\u202e\U0001f469\u200d\U0001f680", "x" * 200_000):
        assert (await checkers.check(FastJob(text, "en", [COMMA])))[0].passed is True


async def test_a_worker_that_dies_is_replaced_and_the_reply_checked_again(checkers: Checkers) -> None:
    await checkers.check(JOB)
    first = pid_of(checkers)
    os.kill(first, signal.SIGKILL)
    assert await checkers.check(JOB) == run_fast(JOB)
    assert pid_of(checkers) != first


async def test_workers_that_died_while_idle_cost_a_job_none_of_its_tries(checkers: Checkers) -> None:
    dead = [textwork.TextWorker.start() for _ in range(3)]
    for worker in dead:
        checkers._pool.idle.put(worker)
        worker.process.kill()
        worker.process.wait()
    assert await checkers.check(JOB) == run_fast(JOB)
    assert pid_of(checkers) not in {worker.process.pid for worker in dead}
    assert checkers._pool.idle.qsize() == 1


async def test_a_worker_that_hangs_is_given_up_after_two_tries(
    checkers: Checkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textwork, "_COMMAND", "import time; time.sleep(600)")
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    with pytest.raises(WorkerLost, match="16 characters"):
        await checkers.check(JOB)


async def test_replies_that_wait_go_together_and_each_gets_its_own_verdicts(checkers: Checkers) -> None:
    jobs = [FastJob(" ".join(["word"] * number) + "," * (number % 2), "en", [COMMA, WORDS]) for number in range(1, 60)]
    assert await asyncio.gather(*map(checkers.check, jobs)) == [run_fast(job) for job in jobs]


async def test_a_reply_that_cannot_be_checked_spoils_none_of_those_that_went_with_it(checkers: Checkers) -> None:
    jobs = [FastJob("a b", "no language" if number == 5 else "en", [COMMA]) for number in range(12)]
    found = await asyncio.gather(*map(checkers.check, jobs), return_exceptions=True)
    assert [number for number, verdicts in enumerate(found) if isinstance(verdicts, Exception)] == [5]
    assert checkers._pool.idle.qsize() == 1


async def test_a_reply_that_kills_its_worker_spoils_none_of_those_that_went_with_it(
    checkers: Checkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly = "import os, sys; from gavel.envs.instruction_following import fast\n"
    deadly += "from gavel.models.texts import textwork; whole = fast.run_fast\n"
    deadly += (
        "def run(job): os._exit(3) if job.reply == 'die' else None; return whole(job)\nfast.run_fast = run; "
        "textwork.main()"
    )
    monkeypatch.setattr(textwork, "_COMMAND", f"exec({deadly!r})")
    jobs = [FastJob("die" if number == 5 else "a b", "en", [COMMA]) for number in range(12)]
    found = await asyncio.gather(*map(checkers.check, jobs), return_exceptions=True)
    assert [number for number, verdicts in enumerate(found) if isinstance(verdicts, WorkerLost)] == [5]
    assert all(verdicts == run_fast(jobs[0]) for number, verdicts in enumerate(found) if number != 5)


async def test_a_reply_nobody_waits_for_any_more_is_not_checked(checkers: Checkers) -> None:
    waiting = [asyncio.create_task(checkers.check(JOB)) for _ in range(20)]
    await asyncio.sleep(0)
    for task in waiting[1:]:
        task.cancel()
    assert await waiting[0] == run_fast(JOB)
    assert await checkers.check(JOB) == run_fast(JOB)


def test_one_owner_serves_one_loop_after_another(checkers: Checkers) -> None:
    assert [asyncio.run(checkers.check(JOB)) for _ in range(2)] == [run_fast(JOB)] * 2


def test_workers_end_when_their_owner_is_closed(checkers: Checkers) -> None:
    asyncio.run(checkers.check(JOB))
    pid = pid_of(checkers)
    checkers.close()
    assert not alive(pid)


@pytest.mark.parametrize("how", ["wait", "return"])
def test_workers_end_with_their_owner_even_if_it_is_killed(how: str, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, how], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        if how == "wait":
            assert alive(pid)
            owner.kill()
    wait_until(lambda: not alive(pid), 10, "the end of the worker")
