"""One vLLM server of ours: started, found ready, watched, and ended with everything it started.

Ready means: ``/health`` answers, ``/v1/models`` names the model, and one real completion came back. From then on two
things are watched: the process (its end is a failure at once, with exit code 0 too) and ``/health`` on a connection of
its own (three strikes).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import aiohttp

from gavel.models.codec import record
from gavel.models.errors import InputError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.service import Service
from gavel.models.vllm import logtail, probe
from gavel.models.vllm.arguments import LOOPBACK, build_command, build_environment
from gavel.models.vllm.process import Supervised, describe_exit


class ServerError(InputError):
    """A managed server that could not be started; names the service, how it ended, and the end of its log."""


class ServerDied(ModelFailure):
    """A managed server that ended or hung while it was needed; ``report`` is for a person, with the end of the log."""

    report: str = ""


@record
class Patience:
    """Seconds: ``poll`` between looks at a starting server, ``silence`` at most between two lines of progress about it,
    ``interval`` between liveness probes, ``answer`` for each of them; ``strikes`` in a row are a death."""

    poll: float = 0.25
    silence: float = 15.0
    interval: float = 5.0
    answer: float = 10.0
    strikes: int = 3


@record
class ServerPlan:
    """What one server is started with: ``model`` is a directory (``local``) or a repository's name; ``gpus`` as
    CUDA_VISIBLE_DEVICES names them; ``threads`` for a CPU server that shares the machine; ``engine`` is the software's
    name and version."""

    name: str
    service: Service
    model: str
    local: bool
    port: int
    gpus: tuple[str, ...] = ()
    threads: int | None = None
    engine: str = ""


class ManagedServer:
    """One server process and its watch.

    Args:
        plan: what to start.
        log: file its output is appended to.
        progress: told each stage of the start-up, one line each.
        patience: how often and how long to ask.
        command: replaces the command of the plan (tests).
    """

    def __init__(
        self,
        plan: ServerPlan,
        *,
        log: Path,
        progress: Callable[[str], None],
        patience: Patience | None = None,
        command: tuple[str, ...] = (),
    ) -> None:
        self.plan, self.log = plan, log
        self.failure: ServerDied | None = None
        self.failed = asyncio.Event()
        self._progress, self._patience = progress, patience or Patience()
        self._command = command or build_command(plan.service, plan.model, plan.port)
        self._process: Supervised | None = None
        self._end: asyncio.Task[int] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._on_death: list[Callable[[ServerDied], None]] = []

    @property
    def root(self) -> str:
        """The server's URL on this machine."""
        return f"http://{LOOPBACK}:{self.plan.port}"

    @property
    def base_url(self) -> str:
        """The URL a client is given."""
        return f"{self.root}/v1"

    @property
    def pid(self) -> int | None:
        """The process id of the supervisor, None before the start."""
        return None if self._process is None else self._process.pid

    def notify_death(self, callback: Callable[[ServerDied], None]) -> None:
        """Call ``callback`` once if the server dies; at once if it already did."""
        self._on_death.append(callback)
        if self.failure is not None:
            callback(self.failure)

    async def start(self) -> None:
        """Start the server and return once it is ready.

        Raises:
            ServerError: it ended, was not ready in time, or answered as another model.
        """
        offset = self.log.stat().st_size if self.log.exists() else 0
        with self._open_log() as output:
            environment = build_environment(
                self.plan.service,
                local=self.plan.local,
                gpus=self.plan.gpus,
                threads=self.plan.threads,
                inherited=os.environ,
            )
            self._process = Supervised.start(self._command, environment=environment, output=output)
        self._end = asyncio.create_task(self._process.wait())
        try:
            await self._wait_ready(offset)
        except BaseException:
            await self.stop()
            raise
        self._watch = asyncio.create_task(self._watch_over())

    def _open_log(self) -> IO[bytes]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        output = self.log.open("ab")
        output.write(f"# {time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(self._command)}\n".encode())
        output.flush()
        return output

    async def _wait_ready(self, offset: int) -> None:
        assert self._end is not None
        limit = self.plan.service.startup_timeout
        ready = asyncio.create_task(self._become_ready(offset))
        try:
            await asyncio.wait({ready, self._end}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if self._end.done():
                raise self._make_error(f"the server {describe_exit(self._end.result())} before it was ready")
            if not ready.done():
                raise self._make_error(f"the server was not ready within {limit:g} s (startup_timeout)")
            ready.result()
        except probe.ProbeFailed as failed:
            raise self._make_error(f"the server started, but does not answer as it should: {failed}") from None
        finally:
            await _cancel_task(ready)

    async def _become_ready(self, offset: int) -> None:
        began, model = time.monotonic(), str(self.plan.service.model)
        stages = logtail.Stages(logtail.LogReader(self.log, offset), began, self._patience.silence)
        telling = asyncio.create_task(self._keep_telling(stages))
        try:
            async with aiohttp.ClientSession() as session:
                await self._wait_healthy(session)
                await probe.check_served_model(session, self.root, model, self._patience.answer)
                await probe.check_completion(session, self.root, model)
        finally:
            await _cancel_task(telling)
        self._tell_stage(stages)
        self._progress(f"{self.plan.name}: ready after {time.monotonic() - began:.0f} s")

    async def _wait_healthy(self, session: aiohttp.ClientSession) -> None:
        while True:
            with contextlib.suppress(probe.ProbeFailed):
                return await probe.check_health(session, self.root, self._patience.answer)
            await asyncio.sleep(self._patience.poll)

    async def _keep_telling(self, stages: logtail.Stages) -> None:
        """Tell how the start goes on, also while a question to the server is open."""
        while True:
            self._tell_stage(stages)
            await asyncio.sleep(self._patience.poll)

    def _tell_stage(self, stages: logtail.Stages) -> None:
        line = stages.read_stage(time.monotonic())
        if line is not None:
            self._progress(f"{self.plan.name}: {line}")

    async def _watch_over(self) -> None:
        assert self._end is not None
        liveness = asyncio.create_task(self._watch_health())
        try:
            await asyncio.wait({self._end, liveness}, return_when=asyncio.FIRST_COMPLETED)
            how = describe_exit(self._end.result()) if self._end.done() else liveness.result()
        finally:
            await _cancel_task(liveness)
        self._record_death(how)

    async def _watch_health(self) -> str:
        """Return, with the reason, once the server let three probes in a row go unanswered."""
        strikes = 0
        async with aiohttp.ClientSession() as session:
            while True:
                await asyncio.sleep(self._patience.interval)
                try:
                    await probe.check_health(session, self.root, self._patience.answer)
                    strikes = 0
                except probe.ProbeFailed as failed:
                    strikes += 1
                    if strikes >= self._patience.strikes:
                        return f"does not live: {failed}, {strikes} times in a row"

    def _record_death(self, how: str) -> None:
        tail = logtail.read_tail(self.log)
        died = ServerDied(
            FailureKind.TRANSPORT_UNREACHABLE,
            f"the server of service {self.plan.name} {how}; its log {self.log} says: {logtail.read_gist(self.log)}",
        )
        died.report = (
            f"The server of service {self.plan.name} {how}.\nThe end of its log {self.log}:\n{_indent_lines(tail)}"
        )
        self.failure = died
        self.failed.set()
        if self._process is not None:
            self._process.close()
        for callback in self._on_death:
            callback(died)

    def _make_error(self, problem: str) -> ServerError:
        tail = logtail.read_tail(self.log)
        return ServerError(
            problem,
            field=self.plan.name,
            found=f"the log ends with\n{_indent_lines(tail)}" if tail else "an empty log",
            remedy=f"see the whole log: {self.log}",
        )

    async def stop(self) -> None:
        """End the server and everything it started; no failure is reported for it.

        May be called at any time, and again.
        """
        if self._process is None:
            return
        self._process.close()  # before any wait: if we are cancelled here, the tree still ends
        if self._watch is not None:
            await _cancel_task(self._watch)
        await self._process.end_tree()
        if self._end is not None:
            await self._end


async def _cancel_task(task: asyncio.Task[object]) -> None:
    """Cancel a task that is no longer needed, and wait until it is over."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at, so that it is not reported as forgotten


def _indent_lines(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
