"""What an abstention task is graded against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.envs.types import TaskError
from gavel.models.codec import decode, record


@record
class AbstentionTarget:
    """The question as asked and the reference answer; neither is blank."""

    question: str
    reference: str


def parse_target(raw: Mapping[str, Any]) -> AbstentionTarget:
    """Read ``{question, reference}``.

    Raises:
        TaskError: names the field (``target.question``).
    """
    if isinstance(raw, AbstentionTarget):
        return raw
    target = decode(AbstentionTarget, raw, prefix="target", error=TaskError)
    for field in ("question", "reference"):
        if not getattr(target, field).strip():
            raise TaskError("this text is blank", field=f"target.{field}", allowed="a text with at least one visible character")
    return target
