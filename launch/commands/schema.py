"""``gavel schema ENV``: the JSON Schema (draft 2020-12) of a task's row, made from the dataclasses that read it."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import orjson
from pydantic import TypeAdapter
from rich.console import Console

from gavel.envs.plugins import find_added
from gavel.envs.registry import ENVIRONMENTS, choose_entry, describe_environment
from gavel.envs.types import Task
from gavel.launch.config.console import print_line
from gavel.launch.config.os_errors import make_file_place
from gavel.launch.config.schema import TaskSchemaConfig
from gavel.launch.runs.files import write_whole
from gavel.models.errors import ConfigError
from gavel.models.types import Message

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_VERIFIER = r"^/*[^/\s]+/.*[^/\s]"


def run(config: TaskSchemaConfig, console: Console) -> int:
    """Run the verb; see ``gavel schema --help``. Returns 0."""
    if config.what is None:
        names = ", ".join({**ENVIRONMENTS, **find_added("env")})
        raise ConfigError(
            "no environment is named", field="what", allowed=names, remedy="name it: gavel schema abstention"
        )
    text = orjson.dumps(make_task_schema(config.what), option=orjson.OPT_INDENT_2) + b"\n"
    if not config.out:
        console.file.write(text.decode())
        return 0
    write_whole(make_file_place(config.out, "out"), text)
    print_line(console, f"written: {config.out}")
    return 0


def make_task_schema(env: str) -> dict[str, Any]:
    """Return the JSON Schema of a ``gavel.task/1`` row of an environment, its target included.

    A row that it refuses is refused by ``gavel rollout`` too, but for forms that an environment reads besides its own
    (arguments of an instruction beside its other fields, defaults). A row that it takes may still be refused for what
    its texts say: a blank one, a persona, a language, an instruction or its arguments.

    Raises:
        ConfigError: there is no such environment.
    """
    schema = TypeAdapter(Task).json_schema(ref_template="#/$defs/{model}")
    definitions: dict[str, Any] = {"Message": _make_message_schema()}
    made_by = _find_class(env)
    target = _find_target_type(made_by)
    asked = (
        {}
        if describe_environment({"name": env}).speaks_first
        else {"contains": {"properties": {"role": {"const": "user"}}}}
    )
    if target is not None:
        made = TypeAdapter(target).json_schema(ref_template="#/$defs/{model}")
        definitions.update(made.pop("$defs", {}))
        definitions["Target"] = made
    properties = {
        "schema": {"const": Task.SCHEMA},
        "task_id": {"type": "string", "pattern": r"\S", "description": "unique in its file"},
        "env": {"const": env},
        "verifier": {"type": "string", "pattern": _VERIFIER, "description": "<target format>/<binding>"},
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": {"$ref": "#/$defs/Message"},
            "description": "sent as they are",
            **asked,
        },
        "target": {"$ref": "#/$defs/Target"} if target is not None else {"type": "object"},
        "metadata": {"type": "object", "description": "what figures are sliced by, and anything else"},
    }
    assert set(schema["properties"]) == set(properties) - {"schema"}  # a field of Task that is not described here
    return {
        "$schema": DRAFT,
        "title": f"{Task.SCHEMA} of {env}",
        "description": f"One line of a task file of env={env}.",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": definitions,
    }


def _make_message_schema() -> dict[str, Any]:
    """Return the schema of a task's message: it may not bring a model's reply."""
    roles = TypeAdapter(Message).json_schema()["properties"]["role"]
    return {
        "type": "object",
        "properties": {
            "role": {key: value for key, value in roles.items() if key != "title"},
            "content": {"type": "string"},
            "reply": {"type": "null"},
            "receipts": {"type": "array", "maxItems": 0},
        },
        "required": ["role", "content"],
        "additionalProperties": False,
    }


def _find_class(env: str) -> Any:
    """Return the environment's class: what its entry makes, or says it returns; None where it does not say."""
    _, make = choose_entry("env", env, ENVIRONMENTS).load_parts()
    return make if isinstance(make, type) else typing.get_type_hints(make).get("return")


def _find_target_type(made: Any) -> Any:
    """Return the dataclass, or the union of some, that the environment's ``parse_target`` says it returns; None if it
    does not say.
    """
    parse = getattr(made, "parse_target", None)
    found = typing.get_type_hints(parse).get("return") if parse is not None else None
    if isinstance(found, types.UnionType) and all(is_dataclass(form) for form in typing.get_args(found)):
        return found
    return found if isinstance(found, type) and (is_dataclass(found) or found in (dict, Mapping)) else None
