"""The fast checks of one reply, as a plain function from plain values to plain values, so that another process can run
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gavel.envs.instruction_following.document import Document


class FastJob(NamedTuple):
    """One reply and the instructions to check: ``(instruction_id, arguments)`` each, validated before."""

    reply: str
    language: str
    items: Sequence[tuple[str, Mapping[str, Any]]]


class FastVerdict(NamedTuple):
    """``passed`` is None where the check itself failed, which is our fault and never the reply's; ``detail`` says
    why.
    """

    passed: bool | None
    detail: str


def run_fast(job: FastJob) -> tuple[FastVerdict, ...]:
    """Check one reply: parsed once, a verdict for each item, in their order."""
    # Imported here: the checks and the libraries they need are the worker's, and the parent starts sooner without them.
    from gavel.envs.instruction_following.document import Document
    from gavel.envs.instruction_following.instructions import find_language

    document = Document(job.reply, find_language(job.language))
    return tuple(_make_verdict(document, instruction_id, arguments) for instruction_id, arguments in job.items)


def run_jobs(jobs: Sequence[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Check replies, each the fields of a ``FastJob``; verdicts are plain tuples, which cost less to send."""
    return [[tuple(verdict) for verdict in run_fast(FastJob(*job))] for job in jobs]


def _make_verdict(document: Document, instruction_id: str, arguments: Mapping[str, Any]) -> FastVerdict:
    from gavel.envs.instruction_following.checking import check_document

    try:
        check = check_document(document, instruction_id, arguments)
    except Exception as bug:  # noqa: BLE001 - one check's bug leaves the row ungraded and must not take the other verdicts with it
        return FastVerdict(None, f"the check failed: {type(bug).__name__}: {bug}")
    return FastVerdict(check.passed, check.detail)
