"""Which draw of its task an episode is, for the calls of an environment's own models: a seeded simulator varies with
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_DRAW: ContextVar[int] = ContextVar("gavel_draw", default=0)


@contextmanager
def number_draw(rollout_index: int) -> Iterator[None]:
    """Let the block be the ``rollout_index``-th draw of its task (from 0)."""
    token = _DRAW.set(rollout_index)
    try:
        yield
    finally:
        _DRAW.reset(token)


def get_current_draw() -> int:
    """Return which draw of its task this is; 0 outside of an episode."""
    return _DRAW.get()
