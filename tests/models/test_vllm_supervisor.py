"""Nothing outlives us: whatever ends our process, the server and all its descendants are gone within five seconds."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import IO

import pytest
from tests.support.fake_vllm import fake_python
from tests.support.processes import matching, wait_until

from gavel.models.vllm.process import Supervised, describe_exit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

HOLDER = """
import asyncio, os, signal, sys
from gavel.models.vllm.process import Supervised
async def main():
    with open(os.devnull, "wb") as output:
        tree = Supervised.start(sys.argv[1:], environment=os.environ, output=output)
    print("up", flush=True)
    await asyncio.sleep(600)
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests of a background job inherit that it is ignored
asyncio.run(main())
"""
STUBBORN = ("-m", "vllm", "--behaviour", "stubborn", "--port", "0", "--served-model-name", "m")
TREE = 6  # supervisor, server, three sleepers, and the process that holds the pipe


def nowhere() -> IO[bytes]:
    return Path(os.devnull).open("wb")


def to(log: Path) -> IO[bytes]:
    return log.open("wb")


def hold(mark: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that holds a stubborn server, and return once all of the tree is there."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, fake_python(folder), *STUBBORN],
        stdout=subprocess.PIPE,
        env={**os.environ, "MARK": mark},
    )
    wait_until(lambda: len(matching(mark)) == TREE, 20, "the whole tree")
    return holder


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_ends_us_ends_the_tree_within_five_seconds(number: signal.Signals, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    holder = hold(mark, tmp_path)
    holder.send_signal(number)
    holder.communicate()
    took = wait_until(lambda: not matching(mark), 5.0, "the end of every process")
    assert took > 2.0, "processes that ignore SIGTERM get three seconds before SIGKILL"


async def test_a_supervisor_that_is_killed_leaves_nothing_once_we_end_it(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with nowhere() as output:
        tree = Supervised.start(
            (fake_python(tmp_path), *STUBBORN), environment={**os.environ, "MARK": mark}, output=output
        )
    await asyncio.to_thread(wait_until, lambda: len(matching(mark)) == TREE - 1, 20.0)
    os.kill(tree.pid, signal.SIGKILL)
    assert await tree.wait() == 137
    await tree.end_tree()
    # The server dies with its supervisor; of the rest, what is in another session has lost every trace of its origin.
    await asyncio.to_thread(wait_until, lambda: len(matching(mark)) <= 2, 5.0)
    for pid in matching(mark):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("code", "told"), [(0, 0), (7, 7)])
async def test_the_servers_exit_code_is_told_at_once_and_its_children_are_gone(
    code: int, told: int, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    script = f"import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); sys.exit({code})"
    began = time.monotonic()
    with nowhere() as output:
        tree = Supervised.start((sys.executable, "-c", script), environment={**os.environ, "MARK": mark}, output=output)
        assert await tree.wait() == told
    assert time.monotonic() - began < 2.0
    assert not matching(mark)


async def test_a_server_killed_by_a_signal_is_told_as_such(tmp_path: Path) -> None:
    with nowhere() as output:
        tree = Supervised.start(
            (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"), environment=os.environ, output=output
        )
        code = await tree.wait()
    assert describe_exit(code) == "was killed by SIGKILL (exit code 137)"


async def test_a_command_that_cannot_be_started_says_so_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with to(log) as output:
        tree = Supervised.start(("/no/such/python",), environment=os.environ, output=output)
        assert await tree.wait() == 127
    assert "cannot start /no/such/python" in log.read_text()


async def test_a_tree_that_obeys_ends_without_the_grace_period(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with nowhere() as output:
        tree = Supervised.start(("sleep", "600"), environment={**os.environ, "MARK": mark}, output=output)
        await asyncio.to_thread(wait_until, lambda: len(matching(mark)) == 2, 5.0)
        began = time.monotonic()
        await tree.end_tree()
    assert time.monotonic() - began < 1.5
    assert not matching(mark)
