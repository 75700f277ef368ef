"""A page that is served on this machine's own address: for this machine alone, so that no page elsewhere can read a run
or say anything in a person's name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from gavel.envs.interfaces.http.gate import is_local_host
from gavel.models.errors import GavelError

HOST = "127.0.0.1"


def make_guarded(policy: str, *, most: int = 1024**2) -> web.Application:
    """Return an application, without routes yet, that answers requests for this machine's own names alone.

    Args:
        policy: the page's ``Content-Security-Policy``.
        most: bytes of a request.
    """

    @web.middleware
    async def guard_request(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not is_local_host(request.host if "Host" in request.headers else ""):
            return web.Response(status=403, text="this service answers on a loopback address only\n")
        try:
            answer = await handler(request)
        except (GavelError, OSError) as failed:  # a damaged line, a run that was moved away, a full disk
            answer = web.Response(status=500, text=f"{failed}\n")
        answer.headers.update(
            {
                "Content-Security-Policy": policy + "; frame-ancestors 'none'",
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
            }
        )
        return answer

    return web.Application(middlewares=[guard_request], client_max_size=most)


async def serve_page(app: web.Application, port: int, announce: Callable[[int], None]) -> int:
    """Serve on 127.0.0.1 until cancelled; ``announce`` gets the port, which is a free one where ``port`` is 0."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        announce(runner.addresses[0][1])
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
    return 0
