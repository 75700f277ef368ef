"""The service: routes, batches, and the one place where whatever fails becomes an answer."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from aiohttp import web

from gavel.envs.interfaces.http.gate import Gate, HttpOptions, HttpProblem, make_json_response
from gavel.envs.interfaces.http.openapi import make_document
from gavel.envs.interfaces.http.records import Health, Problem, ServiceLoad
from gavel.envs.interfaces.http.work import Work
from gavel.envs.interfaces.served import ServedEnvironment
from gavel.models.codec import to_json
from gavel.models.errors import find_nearest, shorten_value

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
    app = web.Application(middlewares=[_guard_request], client_max_size=options.max_body_bytes)
    gate, works = Gate(options), {name: Work(environment) for name, environment in served.items()}
    app[GATE], app[WORKS] = gate, works
    described = to_json(make_document(list(served), options, extra_paths or {}))
    app.add_routes(
        [
            web.get("/healthz", _make_health_handler(loads), allow_head=False),
            web.get("/openapi.json", _make_describe_handler(described), allow_head=False),
            *extra_routes,
        ]
    )
    for name, work in works.items():
        for verb, operation in zip(VERBS, (work.grade_episode, work.step_episode, work.open_episode), strict=True):
            app.router.add_post(f"/v1/{name}/{verb}", _make_handler(gate, operation))
    return app


def _make_handler(gate: Gate, operation: Operation) -> Handler:
    """Return the handler of an operation: a JSON object is one item, a list a batch whose answers come in its order."""

    async def handle_request(request: web.Request) -> web.Response:
        value = await gate.read_body(request)
        items = value if isinstance(value, list) else [value]
        async with gate.admit_items(len(items)):
            answer = await _do_batch(items, operation) if isinstance(value, list) else await operation(value)
        return make_json_response(answer)

    return handle_request


async def _do_batch(items: Sequence[Any], operation: Operation) -> list[object]:
    async with asyncio.TaskGroup() as group:
        tasks = []
        for item in items:
            tasks.append(group.create_task(_do_item(item, operation)))
            if len(tasks) % _STARTED_AT_ONCE == 0:
                await asyncio.sleep(0)
    return [task.result() for task in tasks]


async def _do_item(item: Any, operation: Operation) -> object:
    """Do one item of a batch; one that fails does not spoil the others."""
    try:
        return await operation(item)
    except HttpProblem as failed:
        return failed.refused
    except Exception as failed:  # noqa: BLE001 - the outermost boundary of an item, as ``_guard_request`` is that of a request
        return _make_internal_problem(failed).refused


@web.middleware
async def _guard_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    gate = request.app[GATE]
    response = await _answer_request(request, handler, gate)
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


async def _answer_request(request: web.Request, handler: Handler, gate: Gate) -> web.StreamResponse:
    try:
        gate.check_host(request)
        if request.path not in OPEN_PATHS:
            gate.check_key(request)
        return await handler(request)
    except HttpProblem as failed:
        return failed.make_response()
    except web.HTTPException as failed:
        if failed.status < 400:
            raise
        headers = {name: failed.headers[name] for name in ("Allow",) if name in failed.headers}
        allowed, fix = _suggest_path(request) if failed.status == 404 else ("", "see /openapi.json")
        problem = Problem(
            str(failed.reason).lower(), "", shorten_value(f"{request.method} {request.path}"), allowed, fix
        )
        return HttpProblem(failed.status, problem, headers).make_response()
    except Exception as failed:  # noqa: BLE001 - the outermost boundary of a request: the client gets an answer, the log the trace
        return _make_internal_problem(failed).make_response()


def _suggest_path(request: web.Request) -> tuple[str, str]:
    """Return what a path that is not there could have been, and the nearest: the names served, the verbs of one, or all
    paths.
    """
    works: Mapping[str, Work] = request.app[WORKS]
    names, see = sorted(works), "see /openapi.json"
    match request.path.split("/"):
        case ["", "v1", name, verb] if name not in names:
            near = find_nearest(name, names)
            return ", ".join(names), f"did you mean /v1/{near[0]}/{shorten_value(verb)}?" if near else see
        case ["", "v1", name, verb] if verb not in VERBS:
            near = find_nearest(verb, VERBS)
            return ", ".join(VERBS), f"did you mean /v1/{name}/{near[0]}?" if near else see
    return f"/v1/NAME/VERB, NAME one of {', '.join(names)}, VERB one of {', '.join(VERBS)}", see


def _make_internal_problem(failed: Exception) -> HttpProblem:
    sys.stderr.write("".join(traceback.format_exception(failed)))
    return HttpProblem(500, Problem(f"internal error: {type(failed).__name__}"))


def _make_health_handler(loads: Loads) -> Handler:
    async def handle_health(request: web.Request) -> web.Response:
        gate = request.app[GATE]
        found = Health(
            "draining" if gate.draining else "ok",
            time.monotonic() - gate.started,
            gate.in_flight,
            gate.options.max_in_flight,
            {name: work.tally.read_counts() for name, work in request.app[WORKS].items()},
            loads(),
            {str(status): count for status, count in sorted(gate.refused.items())},
        )
        return make_json_response(found, 503 if gate.draining else 200)

    return handle_health


def _make_describe_handler(described: bytes) -> Handler:
    async def handle_describe(_: web.Request) -> web.Response:
        return web.Response(body=described, content_type="application/json")

    return handle_describe
