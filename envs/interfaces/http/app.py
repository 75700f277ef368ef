"""The service: routes, batches, and the one place where whatever fails becomes an answer."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from aiohttp import web

from gavel.envs.interfaces.http.gate import Gate, HttpOptions, HttpProblem, json_response
from gavel.envs.interfaces.http.openapi import document
from gavel.envs.interfaces.http.records import Health, Problem, ServiceLoad
from gavel.envs.interfaces.http.work import Work
from gavel.envs.interfaces.served import ServedEnvironment
from gavel.models.codec import to_json
from gavel.models.errors import nearest, shorten

GATE: web.AppKey[Gate] = web.AppKey("gate", Gate)
WORKS: web.AppKey[Mapping[str, Work]] = web.AppKey("works", dict)
"""What every environment of an application does, by the name it is served as."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Operation = Callable[[Any], Coroutine[Any, Any, object]]
Loads = Callable[[], Mapping[str, ServiceLoad]]

OPEN_PATHS = frozenset(("/healthz", "/openapi.json"))
"""Answered without a key: they tell nothing about what is graded."""
VERBS = ("grade", "step", "open")
"""What an environment can be asked, at ``/v1/NAME/VERB``."""
_STARTED_AT_ONCE = 32
"""Items of a batch begun before the loop may do something else."""


def build_app(
    served: Mapping[str, ServedEnvironment],
    options: HttpOptions,
    extra_routes: Sequence[web.RouteDef] = (),
    *,
    loads: Loads = dict,
    extra_paths: Mapping[str, Any] | None = None,
) -> web.Application:
    """Return the service of these environments.

    Args:
        served: by the name in their paths.
        options: the bounds.
        extra_routes: further routes; they pass the same gate, and find it under ``GATE`` of the application.
        loads: tells how busy the models are that this process calls.
        extra_paths: what the OpenAPI document says about the further routes.
    """
    app = web.Application(middlewares=[_guard], client_max_size=options.max_body_bytes)
    gate, works = Gate(options), {name: Work(environment) for name, environment in served.items()}
    app[GATE], app[WORKS] = gate, works
    described = to_json(document(list(served), options, extra_paths or {}))
    app.add_routes([
        web.get("/healthz", _healthy(loads), allow_head=False),
        web.get("/openapi.json", _describing(described), allow_head=False),
        *extra_routes,
    ])  # fmt: skip
    for name, work in works.items():
        for verb, operation in zip(VERBS, (work.grade, work.step, work.open), strict=True):
            app.router.add_post(f"/v1/{name}/{verb}", _handler(gate, operation))
    return app


def _handler(gate: Gate, operation: Operation) -> Handler:
    """Return the handler of an operation: a JSON object is one item, a list a batch whose answers come in its order."""

    async def handle(request: web.Request) -> web.Response:
        value = await gate.read(request)
        items = value if isinstance(value, list) else [value]
        async with gate.admit(len(items)):
            answer = await _batch(items, operation) if isinstance(value, list) else await operation(value)
        return json_response(answer)

    return handle


async def _batch(items: Sequence[Any], operation: Operation) -> list[object]:
    async with asyncio.TaskGroup() as group:
        tasks = []
        for item in items:
            tasks.append(group.create_task(_item(item, operation)))
            if len(tasks) % _STARTED_AT_ONCE == 0:
                await asyncio.sleep(0)
    return [task.result() for task in tasks]


async def _item(item: Any, operation: Operation) -> object:
    """Do one item of a batch; one that fails does not spoil the others."""
    try:
        return await operation(item)
    except HttpProblem as failed:
        return failed.refused
    except Exception as failed:  # noqa: BLE001 - the outermost boundary of an item, as ``_guard`` is that of a request
        return _internal(failed).refused


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    gate = request.app[GATE]
    response = await _answer(request, handler, gate)
    if response.status >= 400:
        gate.refused[response.status] += 1
    try:
        async with asyncio.timeout(gate.options.body_timeout) as limit:
            await response.prepare(request)
            await response.write_eof()
    except ConnectionError:
        pass  # the client has gone
    except TimeoutError:
        if not limit.expired():
            raise
        if request.transport is not None:
            request.transport.abort()  # it does not read what it asked for, which would lie here for ever
    return response


async def _answer(request: web.Request, handler: Handler, gate: Gate) -> web.StreamResponse:
    try:
        gate.check_host(request)
        if request.path not in OPEN_PATHS:
            gate.check_key(request)
        return await handler(request)
    except HttpProblem as failed:
        return failed.response()
    except web.HTTPException as failed:
        if failed.status < 400:
            raise
        headers = {name: failed.headers[name] for name in ("Allow",) if name in failed.headers}
        allowed, fix = _there_is(request) if failed.status == 404 else ("", "see /openapi.json")
        problem = Problem(str(failed.reason).lower(), "", shorten(f"{request.method} {request.path}"), allowed, fix)
        return HttpProblem(failed.status, problem, headers).response()
    except Exception as failed:  # noqa: BLE001 - the outermost boundary of a request: the client gets an answer, the log the trace
        return _internal(failed).response()


def _there_is(request: web.Request) -> tuple[str, str]:
    """Return what a path that is not there could have been, and the nearest: the names served, the verbs of one, or all paths."""
    works: Mapping[str, Work] = request.app[WORKS]
    names, see = sorted(works), "see /openapi.json"
    match request.path.split("/"):
        case ["", "v1", name, verb] if name not in names:
            near = nearest(name, names)
            return ", ".join(names), f"did you mean /v1/{near[0]}/{shorten(verb)}?" if near else see
        case ["", "v1", name, verb] if verb not in VERBS:
            near = nearest(verb, VERBS)
            return ", ".join(VERBS), f"did you mean /v1/{name}/{near[0]}?" if near else see
    return f"/v1/NAME/VERB, NAME one of {', '.join(names)}, VERB one of {', '.join(VERBS)}", see


def _internal(failed: Exception) -> HttpProblem:
    sys.stderr.write("".join(traceback.format_exception(failed)))
    return HttpProblem(500, Problem(f"internal error: {type(failed).__name__}"))


def _healthy(loads: Loads) -> Handler:
    async def health(request: web.Request) -> web.Response:
        gate = request.app[GATE]
        found = Health(
            "draining" if gate.draining else "ok", time.monotonic() - gate.started, gate.in_flight, gate.options.max_in_flight,
            {name: work.tally.counts() for name, work in request.app[WORKS].items()}, loads(),
            {str(status): count for status, count in sorted(gate.refused.items())},
        )  # fmt: skip
        return json_response(found, 503 if gate.draining else 200)

    return health


def _describing(described: bytes) -> Handler:
    async def describe(_: web.Request) -> web.Response:
        return web.Response(body=described, content_type="application/json")

    return describe
