"""The source ``rows``: plain rows of anybody's, with a ``prompt``, a ``question`` or ``messages``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.judged.criteria import CRITERIA, read_criteria
from gavel.envs.judged.environment import NAME, TARGET_FORMAT
from gavel.envs.judged.rules import RULES, read_rules
from gavel.envs.judged.target import TURNS, check_target
from gavel.envs.messages import read_messages
from gavel.envs.sources import Licence, read_json_cell, read_optional_id
from gavel.envs.types import Task, TaskError
from gavel.models.errors import shorten_value
from gavel.models.types import Message

ASKS = ("messages", "prompt", "question")
"""Fields with what the policy is asked; the first that a row has is taken."""
KNOWN = ("reference", "answer")
"""Fields with what a reply is compared with; it becomes ``target.reference``."""
CRITERIA_FIELDS = (CRITERIA, "rubrics")
"""Fields with a task's criteria; HealthBench calls them rubrics."""
_WORDS = {"criterion": "text", "title": "text"}
_IDS = ("id", "task_id", "prompt_id")


class PlainRows:
    """Adapts ``prompt`` (or ``question``, or ``messages``), ``system``, ``reference`` (or ``answer``), ``target``,
    ``turns``, ``criteria`` (or ``rubrics``, as in HealthBench), ``instructions`` that programs check, and an id; every
    other field is kept as metadata."""

    name = "rows"
    env = NAME
    binding = ""  # the environment's first rubric
    skips_bad_rows = False
    licence = Licence({})

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row asks something."""
        return any(field in row for field in ASKS)

    def adapt(self, row: Mapping[str, Any], binding: str) -> Task:
        """Return the row's task; raises ``TaskError`` naming the field."""
        asked = next((field for field in ASKS if row.get(field) is not None), None)
        if asked is None:
            raise TaskError(
                "this row asks nothing",
                field="prompt",
                found=f"the fields {', '.join(sorted(map(str, row))) or '(none)'}",
                allowed="a text, or a list of messages",
                remedy=f"name the field {', '.join(ASKS)}",
            )
        id_field = next((field for field in _IDS if row.get(field) is not None), "id")
        said = read_messages(read_json_cell(row[asked]), asked)
        _check_asked_once(row, asked, said)
        messages = (*_read_system(row), *said)
        _check_asks(messages, asked)
        target, taken = _read_target(row)
        rest = {str(field): value for field, value in row.items() if field not in (*taken, asked, id_field, "system")}
        return Task(
            read_optional_id(row, id_field),
            self.env,
            f"{TARGET_FORMAT}/{binding}",
            messages,
            target,
            {"source": self.name, **rest},
        )


def _read_system(row: Mapping[str, Any]) -> tuple[Message, ...]:
    system = row.get("system")
    if system is None:
        return ()
    if not isinstance(system, str):
        raise TaskError("this is not a text", field="system", found=shorten_value(system), allowed="a text")
    return (Message("system", system),)


def _check_asked_once(row: Mapping[str, Any], asked: str, said: tuple[Message, ...]) -> None:
    """Refuse a row that asks two things: nobody could tell which of them was played."""
    users = [message.content for message in said if message.role == "user"]
    for other in ASKS[ASKS.index(asked) + 1 :]:
        if row.get(other) is None:
            continue
        found = read_messages(read_json_cell(row[other]), other)
        same = found == said or (len(found) == 1 and found[0].role == "user" and found[0].content in users)
        if not same:
            raise TaskError(
                f"this row asks two things: in {asked} and in {other}",
                field=other,
                found=shorten_value(row[other]),
                allowed="one question, or the same in both",
                remedy="keep one of them; a text for the judge alone goes into target or a field of another name",
            )


def _check_asks(messages: tuple[Message, ...], field: str) -> None:
    roles = [message.role for message in messages]
    if "user" not in roles or roles[-1] == "assistant" or not all(message.content.strip() for message in messages):
        raise TaskError(
            "the policy has nothing to reply to",
            field=field,
            found=f"roles {', '.join(roles)}",
            allowed="a user's message, none of the assistant's at the end, and none blank",
        )


def _read_target(row: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a row's target and the fields it was made of."""
    given = read_json_cell(row.get("target"))
    if given is not None and not isinstance(given, Mapping):
        raise TaskError("the target is not an object", field="target", found=shorten_value(given), allowed="an object")
    target = dict(given or {})
    known = [field for field in KNOWN if row.get(field) is not None]
    for field in known:
        _set_once(target, "reference", field, read_json_cell(row[field]))
    if row.get(TURNS) is not None:
        _set_once(target, TURNS, TURNS, read_json_cell(row[TURNS]))
    criteria = [field for field in CRITERIA_FIELDS if row.get(field) is not None]
    if criteria:
        _set_once(target, CRITERIA, criteria[0], _read_criteria(read_json_cell(row[criteria[0]])))
        read_criteria(target[CRITERIA])
    if criteria[1:]:
        raise TaskError(
            "a row has its criteria once", field=criteria[1], found=", ".join(criteria), remedy="keep one of them"
        )
    rules = read_json_cell(row.get(RULES))
    ruled = isinstance(rules, list) and any(isinstance(one, Mapping) and "instruction_id" in one for one in rules)
    if ruled:  # other fields of this name are texts, such as an answer's rules of style
        _set_once(target, RULES, RULES, rules)
        read_rules(target)
    check_target(target, {}, {})
    return target, ("target", TURNS, *known, *criteria, *([RULES] if ruled else []))


def _set_once(target: dict[str, Any], name: str, field: str, value: Any) -> None:
    """Set a field of a target that a row's own field gives.

    Raises:
        TaskError: the target has another value already.
    """
    if target.setdefault(name, value) != value:
        raise TaskError(
            f"this row says it twice, and not alike: in {field} and in target.{name}",
            field=field,
            found=shorten_value(value),
            allowed=shorten_value(target[name]),
            remedy="keep one of them",
        )


def _read_criteria(given: Any) -> Any:
    """Return criteria in our words: an id for each (its place, from ``c1``), and ``text``, which data sets also call
    ``criterion`` or ``title``.

    Raises:
        TaskError: a criterion has its text twice.
    """
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        return given  # refused with its field
    for place, one in enumerate(given):
        if len(texts := [name for name in one if name == "text" or name in _WORDS]) > 1:
            raise TaskError(
                "a criterion has its text once", field=f"{CRITERIA}.{place}.{texts[1]}", found=", ".join(texts)
            )
    return [
        {"id": f"c{place}", **{_WORDS.get(name, name): value for name, value in one.items()}}
        for place, one in enumerate(given, start=1)
    ]
