"""The OpenAPI 3.1 document of a service, made of the classes that decode its requests and encode its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import TypeAdapter

import gavel
from gavel.envs.interfaces.http.gate import HttpOptions
from gavel.envs.interfaces.http.records import (
    GradeAnswer,
    Health,
    OpenAnswer,
    OpenRequest,
    Refused,
    SaidRequest,
    StepAnswer,
)

_REF = "#/components/schemas/{model}"
_ROUTES: Mapping[str, tuple[str, Any, Any]] = {
    "open": ("Begin an episode: the messages it starts with.", OpenRequest, OpenAnswer),
    "step": (
        "Say what follows the policy's newest reply: further messages, or the end with its grade.",
        SaidRequest,
        StepAnswer,
    ),
    "grade": ("Grade a reply, or a conversation that is over.", SaidRequest, GradeAnswer),
}
_ERRORS: Mapping[int, str] = {
    400: "The body is not JSON, or broken.",
    401: "The key is missing or wrong.",
    403: "The request is not made to this machine's own name.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON in UTF-8, or is compressed.",
    422: "The document is no request, its messages are not those of the task, or the batch is too long.",
    429: "Too much is in flight.",
    503: "The service is ending.",
}
"""Every status of an error, and what it means; 401 only where a key is asked for, 403 only where none is."""
_WAIT = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}
_ANYTHING = {"description": "Anything else is answered by an error of its own, and spoils no other item."}
_WHOLE = {"minimum": -(2**63), "maximum": 2**64 - 1}
"""Python's integers have no end, those of the parser do."""
_Mode = Literal["validation", "serialization"]


def make_document(names: Sequence[str], options: HttpOptions, extra_paths: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a service with the environments ``names``."""
    schemas, refs = _make_schemas()
    paths: dict[str, Any] = {
        f"/v1/{name}/{verb}": {"post": _make_operation(name, verb, refs, options)} for name in names for verb in _ROUTES
    }
    paths["/healthz"] = {
        "get": {
            "operationId": "health",
            "summary": "How the service fares: counters, what is in flight.",
            "security": [],
            "responses": {
                "200": _describe_answer("It works.", refs["Health"]),
                "503": _describe_answer("It is ending.", refs["Health"]),
            },
        }
    }
    paths["/openapi.json"] = {
        "get": {
            "operationId": "document",
            "summary": "This document.",
            "security": [],
            "responses": {"200": _describe_answer("This document.", {"type": "object"})},
        }
    }
    components: dict[str, Any] = {"schemas": schemas}
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Gavel",
            "version": gavel.__version__,
            "description": "Judge-graded environments over HTTP. A body that is an object is one item; a list is a "
            "batch, answered by "
            "a list in the same order, in which an item that cannot be read is an error of its own.",
        },
        "paths": {**paths, **extra_paths},
        "components": components,
    }
    if options.api_key is not None:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
    return made


def _make_schemas() -> tuple[Any, dict[str, Any]]:
    """Return the components, and by name the schema of each body."""
    wanted: list[tuple[str, _Mode, Any]] = [("Health", "serialization", Health), ("Refused", "serialization", Refused)]
    for verb, (_, request, answer) in _ROUTES.items():
        wanted += [(f"{verb} request", "validation", request), (f"{verb} answer", "serialization", answer)]
    found, shared = TypeAdapter.json_schemas(
        [(name, mode, TypeAdapter(kind)) for name, mode, kind in wanted], ref_template=_REF
    )
    return _bound_integers(dict(shared.get("$defs", {}))), {name: found[name, mode] for name, mode, _ in wanted}


def _bound_integers(schema: Any) -> Any:
    """Return a schema whose integers have the bounds that they have on the wire."""
    if isinstance(schema, dict):
        bounds = _WHOLE if schema.get("type") == "integer" else {}
        return {**bounds, **{key: _bound_integers(part) for key, part in schema.items()}}
    return [_bound_integers(part) for part in schema] if isinstance(schema, list) else schema


def _make_operation(name: str, verb: str, refs: Mapping[str, Any], options: HttpOptions) -> dict[str, Any]:
    summary, _, _ = _ROUTES[verb]
    one, answer = refs[f"{verb} request"], refs[f"{verb} answer"]
    batch = {"type": "array", "items": {"anyOf": [*_list_branches(one), _ANYTHING]}, "maxItems": options.max_batch}
    answers = {"type": "array", "items": {"anyOf": [*_list_branches(answer), refs["Refused"]]}}
    responses: dict[str, Any] = {
        "200": _describe_answer("The answer, or a batch's in order.", {"anyOf": [*_list_branches(answer), answers]})
    }
    for status, meaning in _ERRORS.items():
        if (status == 401 and options.api_key is None) or (status == 403 and not options.loopback_hosts):
            continue
        responses[str(status)] = _describe_answer(meaning, refs["Refused"], _WAIT if status in (429, 503) else None)
    return {
        "operationId": f"{name}.{verb}",
        "summary": summary,
        "tags": [name],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"anyOf": [*_list_branches(one), batch]}}},
        },
        "responses": responses,
    }


def _list_branches(schema: Mapping[str, Any]) -> list[Any]:
    return list(schema["anyOf"]) if set(schema) == {"anyOf"} else [schema]


def _describe_answer(
    meaning: str, schema: Mapping[str, Any], headers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    made: dict[str, Any] = {"description": meaning, "content": {"application/json": {"schema": schema}}}
    return {**made, "headers": headers} if headers else made
