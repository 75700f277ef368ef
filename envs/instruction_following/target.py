"""What an instruction-following task is graded against: instructions and questions, read and checked before anything is
graded.

A task whose schema is bad is refused with every problem named, one line per item; only a task with a clean schema is
checked for its language. Form of a row: ``resources_servers/verifif`` (older: ``turing_vif``) of NVIDIA NeMo Gym 0.7.0,
where an instruction's arguments stand beside its other fields.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from gavel.envs.instruction_following.arguments import LARGEST
from gavel.envs.instruction_following.instructions import (
    INSTRUCTIONS,
    LanguageUnsupported,
    find_language,
    read_arguments,
    require_language,
)
from gavel.envs.types import TaskError
from gavel.models.codec import record
from gavel.models.errors import find_nearest, shorten_value

Source = Literal["user", "system"]
_SOURCES = ("user", "system")
_CRITERIA = ("YES", "NO")
_UID = "a whole number or a text, each at most once in a task"
_SHOWN = 20
"""Problems shown in one error."""
_FIELDS = ("instructions", "llm_judge", "language", "prompt")
_PLAIN_VALUES = 2
"""The version of marshal's format in which equal values give equal bytes: nothing is shared."""
_REMEMBERED_BYTES = 8192
"""Larger targets are read each time."""


@record
class InstructionItem:
    """One instruction of the table, with its ``arguments`` as they stand in the task (valid ones; surplus ones are left
    out).
    """

    uid: int | str
    instruction_id: str
    source: Source
    is_misalignment_check: bool
    arguments: Mapping[str, Any]
    weight: float = 1.0

    @property
    def name(self) -> str:
        """What its result is called."""
        return self.instruction_id


@record
class QuestionItem:
    """A yes/no question of the task's own; ``pass_criteria`` is the answer that passes."""

    uid: int | str
    content: str
    source: Source
    is_misalignment_check: bool
    pass_criteria: Literal["YES", "NO"] = "YES"
    weight: float = 1.0

    @property
    def name(self) -> str:
        """What its result is called."""
        return f"llm_judge_{self.uid}"


@record
class InstructionTarget:
    """At least one item; ``language`` is a code of the language table; ``prompt`` is what was asked, for a task without
    messages.
    """

    language: str
    instructions: tuple[InstructionItem, ...]
    llm_judge: tuple[QuestionItem, ...] = ()
    prompt: str | None = None

    @property
    def items(self) -> tuple[InstructionItem | QuestionItem, ...]:
        """All items in the request's order: instructions, then questions."""
        return (*self.instructions, *self.llm_judge)


def parse_target(raw: Mapping[str, Any], *, prefix: str = "target") -> InstructionTarget:
    """Read ``{language, instructions, llm_judge, prompt}``.

    An instruction's arguments stand beside its other fields or under ``arguments``; ``language`` is ``en`` where it is
    not given; aliases are resolved. Nulls count as absent.

    Args:
        raw: plain JSON, or a target read before.
        prefix: the dotted path of ``raw``, for errors.

    Raises:
        TaskError: the schema is bad; names the first bad field and lists the other problems.
        LanguageUnsupported: the schema is good, but the language is unknown, or an instruction does not exist in it.
    """
    if isinstance(raw, InstructionTarget):
        return raw
    try:
        key = marshal.dumps({name: raw.get(name) for name in _FIELDS}, _PLAIN_VALUES)
    except ValueError:  # no plain JSON
        return _read_target(raw, prefix)
    return _read_again(key, prefix) if len(key) <= _REMEMBERED_BYTES else _read_target(raw, prefix)


@lru_cache(maxsize=2048)
def _read_again(key: bytes, prefix: str) -> InstructionTarget:
    """Read a target by its values, remembered: the same task comes again for every rollout of it."""
    return _read_target(marshal.loads(key), prefix)


def _read_target(raw: Mapping[str, Any], prefix: str) -> InstructionTarget:
    reader = _Reader(f"{prefix}." if prefix else "")
    target = reader.read_target(raw)
    if reader.problems:
        raise _join_problems(reader.problems)
    assert target is not None, "a target without problems was read"
    return _check_language(target, reader.prefix)


class _Reader:
    """Reads one target and collects its problems, at most one per item."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.problems: list[TaskError] = []
        self._uids: dict[int | str, str] = {}

    def read_target(self, raw: Mapping[str, Any]) -> InstructionTarget | None:
        found = {name: self._read_list(raw, name) for name in ("instructions", "llm_judge")}
        instructions = self._read_items(found["instructions"], "instructions", self._read_instruction)
        questions = self._read_items(found["llm_judge"], "llm_judge", self._read_question)
        code = self._collect_problems(_read_optional_text, raw, "language", self.prefix)
        prompt = self._collect_problems(_read_optional_text, raw, "prompt", self.prefix)
        if not self.problems:
            self._check_whole((*instructions, *questions))
        return (
            None
            if self.problems
            else InstructionTarget("en" if code is None else code, tuple(instructions), tuple(questions), prompt)
        )

    def _check_whole(self, items: tuple[InstructionItem | QuestionItem, ...]) -> None:
        if not items:
            self.problems.append(
                TaskError(
                    "the task has no instruction",
                    field=f"{self.prefix}instructions",
                    found="[]",
                    allowed="at least one",
                )
            )
        elif not any(item.weight for item in items):
            self.problems.append(
                TaskError(
                    "every weight is 0", field=f"{self.prefix}instructions", allowed="at least one weight above 0"
                )
            )

    def _collect_problems(self, reader: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return reader(*arguments)
        except TaskError as problem:
            self.problems.append(problem)
            return None

    def _read_list(self, raw: Mapping[str, Any], name: str) -> list[Any]:
        value = raw.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            self.problems.append(
                TaskError(
                    "this is not a list",
                    field=self.prefix + name,
                    found=shorten_value(value),
                    allowed="a list of objects",
                )
            )
            return []
        return list(value)

    def _read_items(self, values: list[Any], name: str, reader: Callable[[Mapping[str, Any], str], Any]) -> list[Any]:
        items = []
        for number, value in enumerate(values):
            place = f"{self.prefix}{name}.{number}"
            if isinstance(value, Mapping):
                item = self._collect_problems(reader, value, f"{place}.")
                items += [] if item is None else [item]
            else:
                self.problems.append(
                    TaskError("this is not an object", field=place, found=shorten_value(value), allowed="an object")
                )
        return items

    def _read_instruction(self, item: Mapping[str, Any], place: str) -> InstructionItem:
        name = item.get("instruction_id")
        if not isinstance(name, str) or name not in INSTRUCTIONS:
            raise _make_unknown_id(name, f"{place}instruction_id")
        return InstructionItem(
            self._read_uid(item, place),
            name,
            _read_source(item, place),
            _read_flag(item, place),
            _read_arguments(name, item, place),
            _read_weight(item, place),
        )

    def _read_question(self, item: Mapping[str, Any], place: str) -> QuestionItem:
        uid = self._read_uid(item, place)
        content = item.get("content")
        if not isinstance(content, str) or not content.strip():
            raise TaskError(
                "this is no question",
                field=f"{place}content",
                found=shorten_value(content),
                allowed="a text that is not blank",
            )
        criteria = item.get("pass_criteria")
        if criteria is not None and criteria not in _CRITERIA:
            raise TaskError(
                "there is no such answer",
                field=f"{place}pass_criteria",
                found=shorten_value(criteria),
                allowed=" | ".join(_CRITERIA),
            )
        return QuestionItem(
            uid,
            content,
            _read_source(item, place),
            _read_flag(item, place),
            criteria or "YES",
            _read_weight(item, place),
        )

    def _read_uid(self, item: Mapping[str, Any], place: str) -> int | str:
        uid = item.get("uid")
        if isinstance(uid, bool) or not isinstance(uid, int | str) or uid == "":
            problem = "this field is missing" if uid is None else "this is no uid"
            raise TaskError(problem, field=f"{place}uid", found=shorten_value(uid), allowed=_UID)
        if (first := self._uids.setdefault(uid, place)) != place:
            raise TaskError(
                "another item has this uid", field=f"{place}uid", found=f"{uid!r}, also at {first}uid", allowed=_UID
            )
        return uid


def _make_unknown_id(name: Any, field: str) -> TaskError:
    near = find_nearest(name, INSTRUCTIONS) if isinstance(name, str) else []
    return TaskError(
        "there is no such instruction" if name else "this field is missing",
        field=field,
        found=shorten_value(name),
        allowed=f"one of the {len(INSTRUCTIONS)} ids of the instruction table",
        remedy=f"did you mean {near[0]}?" if near else "",
    )


def _read_source(item: Mapping[str, Any], place: str) -> Source:
    found = item.get("source")
    if found not in _SOURCES:
        problem = "this field is missing" if found is None else "there is no such source"
        raise TaskError(problem, field=f"{place}source", found=shorten_value(found), allowed=" | ".join(_SOURCES))
    return found  # type: ignore[no-any-return]


def _read_flag(item: Mapping[str, Any], place: str) -> bool:
    found = item.get("is_misalignment_check")
    if not isinstance(found, bool):
        problem = "this field is missing" if found is None else "this is neither true nor false"
        raise TaskError(
            problem, field=f"{place}is_misalignment_check", found=shorten_value(found), allowed="true | false"
        )
    return found


def _read_weight(item: Mapping[str, Any], place: str) -> float:
    found = item.get("weight")
    if found is None:
        return 1.0
    if (
        isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= LARGEST
    ):  # neither nan nor infinity is
        raise TaskError(
            "this is no weight",
            field=f"{place}weight",
            found=shorten_value(found),
            allowed=f"a number from 0 to {LARGEST}",
        )
    return float(found)


def _read_arguments(name: str, item: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    given = item.get("arguments")
    if given is not None and not isinstance(given, Mapping):
        raise TaskError(
            "this is not an object",
            field=f"{place}arguments",
            found=shorten_value(given),
            allowed="the instruction's arguments",
        )
    every = item if given is None else given
    own = {entry.name: every[entry.name] for entry in INSTRUCTIONS[name].arguments if every.get(entry.name) is not None}
    try:
        read_arguments(name, own)
    except TaskError as bad:
        raise bad.copy_with(field=f"{place}{'' if given is None else 'arguments.'}{bad.field}") from None
    return own


def _read_optional_text(raw: Mapping[str, Any], name: str, prefix: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise TaskError("this is not a text", field=prefix + name, found=shorten_value(value), allowed="a text")
    return value


def _check_language(target: InstructionTarget, prefix: str) -> InstructionTarget:
    try:
        code = find_language(target.language).code
    except LanguageUnsupported as unknown:
        raise unknown.copy_with(field=prefix + unknown.field) from None
    refused: list[TaskError] = []
    for number, item in enumerate(target.instructions):
        try:
            require_language(item.instruction_id, code)
        except LanguageUnsupported as missing:
            refused.append(missing.copy_with(field=f"{prefix}instructions.{number}.instruction_id"))
    if refused:
        raise _join_problems(refused)
    return InstructionTarget(code, target.instructions, target.llm_judge, target.prompt)


def _join_problems(problems: list[TaskError]) -> TaskError:
    """Return the first problem, with the others as lines of its text."""
    first = problems[0]
    others = [
        f"  also:    {other.field}: {other.problem}" + (f" (found {other.found})" if other.found else "")
        for other in _iter_rest(problems)
    ]
    more = [f"  and {len(problems) - 1 - len(others)} more"] if len(problems) - 1 > len(others) else []
    text = "\n".join([first.problem, *others, *more])
    return first.copy_with(problem=text)


def _iter_rest(problems: list[TaskError]) -> Iterator[TaskError]:
    yield from problems[1:_SHOWN]
