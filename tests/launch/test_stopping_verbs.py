"""Every verb that waits for something ends soon after SIGTERM and SIGINT, also as a job of a script: SIGINT ignored,
stdin closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tests.support.fault_server import FaultServer
from tests.support.preloaded import ROOT
from tests.support.runs import STRICT, arguments, gavel, reply, start, write_tasks
from tests.support.training import COMMON, judge_words

ENDED = (130,)
JUDGED = ("env=abstention", STRICT, "judge=external", "judge.model=judge-model", "judge.attempts=1")


def job_of_a_script() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.close(0)


WAITING = {
    "rollout": lambda folder, url: arguments(write_tasks(folder / "t.jsonl", 9), folder / "new", url),
    "regrade": lambda folder, url: ["regrade", str(folder / "run"), "only=all", f"into={folder / 'into'}"],
    "probe": lambda folder, url: ["probe", *JUDGED, f"judge.base_url={url}", f"run.dir={folder / 'p'}", f"certificates={folder / 'c'}"],  # noqa: E501
    "calibrate": lambda folder, url: [
        "calibrate", *JUDGED, f"judge.base_url={url}", f"run.dir={folder / 'p'}", f"certificates={folder / 'c'}",
    ],
}  # fmt: skip
"""Commands that wait for a server which does not answer."""
SERVING = {
    "judge": (
        lambda folder: ["judge", "judge=smollm2", "judge.revision=null", *judge_words(folder), f"run.dir={folder / 'j'}"],  # noqa: E501
        "Ctrl-C", (0,),
    ),
    "view": (lambda folder: ["view", str(folder / "run")], "http://", (0, 130)),
    "label": (lambda folder: ["label", str(folder / "run"), "annotator=anna"], "http://", (0, 130)),
    "train": (
        lambda folder: [
            "train", *COMMON, "trainer.command=[bash,-c,'echo STARTED; sleep 600']", *judge_words(folder),
            f"run.dir={folder / 'train'}",
        ],
        "STARTED", (130,),
    ),
}  # fmt: skip
"""Commands that go on until they are told to end: the words, what they say once they do, and their exit codes."""
HOW = pytest.mark.parametrize(
    ("stop", "before"),
    [
        (signal.SIGTERM, None),
        (signal.SIGINT, None),
        (signal.SIGTERM, job_of_a_script),
        (signal.SIGINT, job_of_a_script),
    ],
)


async def ends(
    process: asyncio.subprocess.Process, stop: signal.Signals, started_s: float, codes: tuple[int, ...]
) -> str:
    begun = time.monotonic()
    process.send_signal(stop)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode in codes, out.decode() + err.decode()
    assert time.monotonic() - begun < 2 + 3 * started_s  # how long a start takes says how busy the machine is
    return out.decode()


@HOW
@pytest.mark.parametrize("verb", list(WAITING))
async def test_a_verb_that_waits_for_a_model_ends(
    tmp_path: Path, verb: str, stop: signal.Signals, before: object
) -> None:
    async with FaultServer(reply=reply) as server:
        if verb == "regrade":
            assert (
                await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url))
            ).code == 0
        server.latency, asked, begun = 600.0, server.count, time.monotonic()
        process = await start(*WAITING[verb](tmp_path, server.base_url), preexec_fn=before)
        await server.until(asked + 1, timeout=60)
        told = await ends(process, stop, time.monotonic() - begun, ENDED)
        assert ("begins anew" in told) == (verb in ("probe", "calibrate")), told  # these two keep nothing of a part


@HOW
@pytest.mark.parametrize("verb", list(SERVING))
async def test_a_verb_that_goes_on_until_it_is_told_ends(
    tmp_path: Path, verb: str, stop: signal.Signals, before: object
) -> None:
    words, said, codes = SERVING[verb]
    if verb in ("view", "label"):
        async with FaultServer(reply=reply) as server:
            assert (
                await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url))
            ).code == 0
    begun = time.monotonic()
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    process = await start(*words(tmp_path), preexec_fn=before, env=env)
    assert process.stdout is not None
    lines = []
    while said not in (lines[-1] if lines else ""):
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        if not line:
            pytest.fail("".join(lines) + (await process.communicate())[1].decode())
        lines.append(line)
    told = await ends(process, stop, time.monotonic() - begun, codes)
    assert verb not in ("view", "label") or "to go on" not in told  # what only shows leaves nothing to go on with
