"""What a VERA-MH task is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.types import TaskError
from gavel.models.codec import decode, record


@record
class VeraMhTarget:
    """The persona by name, and the service that plays it."""

    persona: str
    simulator: str


def parse_target(raw: Mapping[str, Any] | VeraMhTarget) -> VeraMhTarget:
    """Read ``{persona, simulator}``.

    Raises:
        TaskError: names the field (``target.persona``).
    """
    return raw if isinstance(raw, VeraMhTarget) else decode(VeraMhTarget, raw, prefix="target", error=TaskError)
