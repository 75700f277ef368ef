"""Running the fast checks: one table of functions, and the two ways in, with a reply or with a document that several
checks share.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gavel.envs.instruction_following.checks.case import CASE
from gavel.envs.instruction_following.checks.content import CONTENT
from gavel.envs.instruction_following.checks.format import FORMAT
from gavel.envs.instruction_following.checks.keywords import KEYWORDS
from gavel.envs.instruction_following.checks.length import LENGTH
from gavel.envs.instruction_following.checks.letters import LETTERS
from gavel.envs.instruction_following.checks.punctuation import PUNCTUATION
from gavel.envs.instruction_following.checks.startend import START_END
from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.instructions import find_instruction, read_entry_arguments, require_language
from gavel.envs.instruction_following.table_fast import FAST
from gavel.envs.instruction_following.verdicts import CheckFunction
from gavel.envs.types import Check, TaskError

CHECKS: Mapping[str, CheckFunction] = MappingProxyType(
    {**CASE, **CONTENT, **FORMAT, **KEYWORDS, **LENGTH, **LETTERS, **PUNCTUATION, **START_END}
)
if missing := [entry.id for entry in FAST if entry.id not in CHECKS]:
    raise ImportError(f"instructions of table_fast without a function in checks/: {', '.join(missing)}")


def check_instruction(response: str, instruction_id: str, arguments: Mapping[str, Any], language: str = "en") -> Check:
    """Check one reply against one fast instruction.

    Args:
        response: the final text of a reply, thinking removed.
        instruction_id: an id of the instruction table whose kind is ``fast``.
        arguments: its arguments; others are ignored.
        language: a language code or alias.

    Returns:
        A check named like the instruction; ``passed`` is a bool, ``score`` 1.0 or 0.0, ``detail`` says why. A reply
        without any visible character fails whatever is asked.

    Raises:
        TaskError: unknown or judged instruction, or an argument that is missing or does not fit (named, with what is
            allowed).
        LanguageUnsupported: unknown language, or the instruction does not exist in it.
    """
    read = _read_fast(instruction_id, arguments)
    return _run_check(Document(response, require_language(instruction_id, language)), instruction_id, read)


def check_document(document: Document, instruction_id: str, arguments: Mapping[str, Any]) -> Check:
    """Check a parsed reply; several checks of one reply share its parse. The language has been checked with
    ``require_language``.

    Raises:
        TaskError: as ``check_instruction``.
    """
    return _run_check(document, instruction_id, _read_fast(instruction_id, arguments))


def _read_fast(instruction_id: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of an instruction that a program decides."""
    entry = find_instruction(instruction_id)
    if entry.kind != "fast":
        raise TaskError(
            "only a judge can decide this instruction",
            field="instruction_id",
            found=instruction_id,
            allowed="a fast instruction",
            remedy="put it into a task and run the environment with a judge",
        )
    return read_entry_arguments(entry, arguments)


def _run_check(document: Document, instruction_id: str, arguments: Mapping[str, Any]) -> Check:
    if not document.is_seen:
        return Check(instruction_id, False, 0.0, "the reply is empty")
    passed, reason = CHECKS[instruction_id](document, arguments)
    return Check(instruction_id, passed, float(passed), reason)
