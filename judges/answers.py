"""Answered judge questions of one row: kept as soon as they are answered, and found again when the row is replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gavel.judges.types import AnswerLog, JudgeQuery
from gavel.models.codec import compute_digest

# A context variable, not a parameter: one judge serves many rows at a time, and an environment's ``step`` knows a task
# and a
# transcript, not the run that journals it. The context follows each row's own asyncio task (and the tasks it starts),
# so rows never
# see each other's answers and no environment has to hand a log through.
_LOG: ContextVar[AnswerLog | None] = ContextVar("gavel_answer_log", default=None)


@contextmanager
def keep_answers(log: AnswerLog | None) -> Iterator[None]:
    """Within this block, and in tasks started in it, judge questions are looked up in ``log`` and kept there."""
    token = _LOG.set(log)
    try:
        yield
    finally:
        _LOG.reset(token)


def get_current_log() -> AnswerLog | None:
    """Return the log of the row that is being worked on, if any."""
    return _LOG.get()


def make_answer_key(query: JudgeQuery, rubric_digest: str) -> str:
    """Return the key of a judge question: ``sha256:<hex>`` over binding, rubric, slots and sample."""
    return compute_digest([query.binding, rubric_digest, dict(query.slots), query.sample])
