"""The table of all instructions: those that a program checks (fast) and those that a judge does (judged).

One table drives everything that must agree: which arguments a task needs and what they may be, which languages an
instruction exists in, and the page of the documentation. The ids and arguments are those of
``resources_servers/verifif`` (older: ``turing_vif``) of NVIDIA NeMo Gym 0.7.0, so that its data sets are read as they
are; ranges, refusals and definitions are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gavel.envs.instruction_following.instruction import Instruction
from gavel.envs.instruction_following.languages import ALIASES, LANGUAGES, Language
from gavel.envs.instruction_following.table_fast import FAST
from gavel.envs.instruction_following.table_judged import JUDGED
from gavel.envs.types import TaskError
from gavel.models.errors import find_nearest, shorten_value
from gavel.models.failures import FailureKind

INSTRUCTIONS: Mapping[str, Instruction] = {entry.id: entry for entry in (*FAST, *JUDGED)}


class LanguageUnsupported(TaskError):
    """A language this package does not know, or an instruction that does not exist in a language."""

    kind: ClassVar[FailureKind] = FailureKind.LANGUAGE_UNSUPPORTED


def find_instruction(instruction_id: str) -> Instruction:
    """Return the table's entry.

    Raises:
        TaskError: there is no such instruction.
    """
    found = INSTRUCTIONS.get(instruction_id) if isinstance(instruction_id, str) else None
    if found is None:
        near = find_nearest(instruction_id, INSTRUCTIONS) if isinstance(instruction_id, str) else []
        raise TaskError(
            "there is no such instruction",
            field="instruction_id",
            found=shorten_value(instruction_id),
            allowed=f"one of the {len(INSTRUCTIONS)} ids of the instruction table",
            remedy=f"did you mean {near[0]}?" if near else "",
        )
    return found


def find_language(code: str) -> Language:
    """Return a language by its code or alias.

    Raises:
        LanguageUnsupported: the code is unknown.
    """
    found = LANGUAGES.get(ALIASES.get(code, code)) if isinstance(code, str) else None
    if found is None:
        raise LanguageUnsupported(
            "this language is not supported", field="language", found=shorten_value(code), allowed=_CODES
        )
    return found


_CODES = f"{', '.join(LANGUAGES)} (also {', '.join(f'{alias} for {code}' for alias, code in ALIASES.items())})"


def read_arguments(instruction_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an instruction's arguments as its check uses them; what the instruction does not take is left out.

    Raises:
        TaskError: unknown instruction, or an argument that is missing or does not fit; names it, what was found and
            what is allowed.
    """
    return read_entry_arguments(find_instruction(instruction_id), arguments)


def read_entry_arguments(entry: Instruction, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of an instruction of the table; see ``read_arguments``."""
    if not isinstance(arguments, Mapping):
        raise TaskError(
            "the arguments are not an object",
            field=entry.id,
            found=shorten_value(arguments),
            allowed=_describe_fields(entry),
        )
    read: dict[str, Any] = {}
    for argument in entry.arguments:
        if argument.name not in arguments:
            given = ", ".join(map(str, arguments)) or "(none)"
            raise TaskError(
                f"{entry.id} needs this argument",
                field=argument.name,
                found=f"the arguments {given}",
                allowed=argument.kind.allowed,
            )
        value = arguments[argument.name]
        try:
            read[argument.name] = argument.kind.read(value)
        except ValueError as wrong:
            raise TaskError(
                f"{wrong} ({entry.id})", field=argument.name, found=repr(value)[:120], allowed=argument.kind.allowed
            ) from None
    _require_order(entry, read)
    return read


def _require_order(entry: Instruction, read: Mapping[str, Any]) -> None:
    if entry.ordered is None:
        return
    low, high = entry.ordered
    if read[low] > read[high]:
        raise TaskError(
            f"the smallest allowed value is above the largest ({entry.id})",
            field=low,
            found=f"{low} {read[low]}, {high} {read[high]}",
            allowed=f"{low} at most {high}",
        )


def require_language(instruction_id: str, language_code: str) -> Language:
    """Return the language.

    Raises:
        LanguageUnsupported: unknown language, or the instruction does not exist in it.
    """
    found = find_language(language_code)
    entry = find_instruction(instruction_id)
    if not entry.is_in_language(found):
        raise LanguageUnsupported(
            f"{entry.id} does not exist in {found.name}, which has no {entry.needs}",
            field="language",
            found=language_code,
            allowed=", ".join(code for code, other in LANGUAGES.items() if entry.is_in_language(other)),
        )
    return found


def list_supported_instructions(language_code: str) -> tuple[str, ...]:
    """Return the ids that exist in a language, in the table's order: fewer where letters have no case.

    Raises:
        LanguageUnsupported: the language is unknown.
    """
    found = find_language(language_code)
    return tuple(entry.id for entry in INSTRUCTIONS.values() if entry.is_in_language(found))


def _describe_fields(entry: Instruction) -> str:
    return f"an object with {', '.join(argument.name for argument in entry.arguments) or 'no fields'}"
