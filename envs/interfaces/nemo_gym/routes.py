"""Gym's routes on our service.

A row waits for its place: Gym sends all rows at once and ends its run at the first refusal.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from gavel.envs.interfaces.http.app import GATE
from gavel.envs.interfaces.http.gate import Gate, HttpProblem, make_json_response
from gavel.envs.interfaces.http.records import Problem, make_problem
from gavel.envs.interfaces.nemo_gym.gateway import Gateway
from gavel.models.errors import InputError, shorten_value

MAX_REPLIES_BYTES = 2**30
"""Of one request for metrics, which holds the replies of a whole run."""
_REPLIES_TIMEOUT = 300.0
_PAUSE = 0.01
"""Seconds between looks for a place that other requests have taken."""
_ROLLOUT = "/ng-rollout/{rollout}"
"""Stands before the path where Gym's observability is on."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(\d{1,5}))?")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Operation = Callable[[Any], Awaitable[Mapping[str, Any]]]


def make_gym_routes(gateway: Gateway, *, places: int) -> list[web.RouteDef]:
    """Return the routes for ``build_app``.

    Args:
        gateway: does the work.
        places: rows in work at once; further ones wait.
    """
    waiting = asyncio.Semaphore(places)
    posts: dict[str, Handler] = {
        "/seed_session": _answer_seed,
        "/close_session": _answer_close,
        "/verify": _make_work_handler(gateway.verify_row, waiting),
    }
    return [
        *(web.post(prefix + path, handler) for path, handler in posts.items() for prefix in ("", _ROLLOUT)),
        web.post("/run", _make_work_handler(gateway.run_row, waiting)),
        web.post("/aggregate_metrics", _make_aggregate_handler(gateway)),
        web.get("/reverify_mode", _answer_reverify_mode, allow_head=False),
        web.get("/global_config_dict_yaml", _make_config_handler(gateway), allow_head=False),
        web.get("/", _answer_ready),
    ]


async def _answer_ready(request: web.Request) -> web.Response:  # noqa: ARG001
    return make_json_response({"service": "gavel"})


async def _answer_reverify_mode(request: web.Request) -> web.Response:  # noqa: ARG001
    return make_json_response("stateless")


async def _answer_seed(request: web.Request) -> web.Response:
    """No state is kept: the newer form gets its own id back."""
    return make_json_response(_read_session(await request.app[GATE].read_body(request)))


async def _answer_close(request: web.Request) -> web.Response:
    return make_json_response(_read_session(await request.app[GATE].read_body(request)))


def _read_session(body: Any) -> dict[str, Any]:
    found = body.get("resources_session_id") if isinstance(body, dict) else None
    return {} if found is None else {"resources_session_id": found}


def _make_work_handler(operation: Operation, waiting: asyncio.Semaphore) -> Handler:
    async def handle_work(request: web.Request) -> web.Response:
        gate = request.app[GATE]
        body = await gate.read_body(request)
        async with waiting, _admit_one(gate):
            try:
                return make_json_response(await operation(body))
            except InputError as failed:
                raise HttpProblem(422, make_problem(failed)) from None

    return handle_work


@asynccontextmanager
async def _admit_one(gate: Gate) -> AsyncIterator[None]:
    """Hold one place among what is in flight, once there is one."""
    while gate.in_flight >= gate.options.max_in_flight and not gate.draining:  # noqa: ASYNC110 - the gate tells nobody
        await asyncio.sleep(_PAUSE)
    async with gate.admit_items(1):
        yield


def _make_aggregate_handler(gateway: Gateway) -> Handler:
    async def handle_aggregate(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_REPLIES_TIMEOUT):
                data = await request.clone(client_max_size=MAX_REPLIES_BYTES).read()
            body = orjson.loads(data)
        except TimeoutError:
            raise HttpProblem(
                408, Problem("the body did not arrive in time", allowed=f"{_REPLIES_TIMEOUT:g} seconds")
            ) from None
        except orjson.JSONDecodeError as failed:
            raise HttpProblem(
                400, Problem(f"the body is not JSON: {failed}", allowed="{verify_responses: […]}")
            ) from None
        rows = body.get("verify_responses") if isinstance(body, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise HttpProblem(
                422, Problem("these are no replies", "verify_responses", shorten_value(rows), "a list of objects")
            )
        async with _admit_one(request.app[GATE]):
            return make_json_response(
                await asyncio.to_thread(gateway.aggregate_rows, rows)
            )  # a second for some thousands of rows

    return handle_aggregate


def _make_config_handler(gateway: Gateway) -> Handler:
    async def handle_config(request: web.Request) -> web.Response:
        found = _HOST.fullmatch(request.host)
        if found is None:
            raise HttpProblem(400, Problem("this is no host", "Host", shorten_value(request.host), "HOST:PORT"))
        config = gateway.make_config(found[1], int(found[2] or 80))
        return make_json_response(orjson.dumps(config).decode())  # a string that holds the config: Gym reads it twice

    return handle_config
