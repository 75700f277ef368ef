"""A service that listens, from its first request to the last answer."""

from __future__ import annotations

import errno
import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gavel.envs.interfaces.http.app import GATE
from gavel.models.errors import ConfigError

IDLE = 75.0
"""Seconds for which a connection may say nothing, or not finish its headers."""
_LAST_WORDS = 2.0
"""Seconds in which answers that are made already must have been sent, and for which the rest of a refused body is
read.
"""


class Running:
    """An application that listens on ``url``; ``start`` makes one, ``stop`` ends it."""

    def __init__(self, runner: web.AppRunner, host: str, port: int) -> None:
        self._runner, self.host, self.port = runner, host, port

    @property
    def url(self) -> str:
        """Where it can be reached."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        server = self._runner.server
        return 0 if server is None else len(server.connections)

    @classmethod
    async def start(cls, app: web.Application, host: str, port: int, *, idle: float = IDLE) -> Running:
        """Listen; ``port`` 0 picks a free one.

        A client that goes away cancels its request. Bodies are not decompressed: a small one could become a large one.

        Raises:
            ConfigError: this address cannot be had.
        """
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            keepalive_timeout=idle,
            shutdown_timeout=_LAST_WORDS,
            lingering_time=_LAST_WORDS,
            logger=_make_logger(),
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, backlog=1024).start()
        except OSError as failed:
            await runner.cleanup()
            busy = failed.errno in (errno.EADDRINUSE, errno.EACCES)
            raise ConfigError(
                f"this address cannot be had: {failed.strerror or failed}",
                field="http.port" if busy else "http.host",
                found=f"{host}:{port}",
                allowed="a free port; 0 picks one" if busy else "a name or an address of this machine",
            ) from None
        return cls(runner, host, runner.addresses[0][1])

    async def stop(self, grace: float) -> int:
        """Refuse new work, let what is in flight end within ``grace`` seconds, and close; return how many had to be
        ended.
        """
        late = await self._runner.app[GATE].drain_requests(grace)
        await self.close()
        return late

    async def cut_requests(self) -> None:
        """End what is in flight now: a ``stop`` that waits goes on at once."""
        await self._runner.app[GATE].cut_requests()

    async def close(self) -> None:
        """Close every connection."""
        await self._runner.cleanup()


def _make_logger() -> logging.Logger:
    """Return a logger that keeps quiet about what is no HTTP: that is the client's fault, and was answered."""
    logger = logging.Logger("gavel.http", logging.ERROR)
    logger.addHandler(logging.StreamHandler())
    logger.addFilter(lambda said: not (said.exc_info and isinstance(said.exc_info[1], HttpProcessingError)))
    return logger
