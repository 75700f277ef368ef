"""Keys that stand twice in a JSON object: readers keep the last value, and nobody is told which was meant."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

_KEY = re.compile(rb'"\s*:')


def find_repeated_key(text: bytes, value: Any) -> str | None:
    """Return a key that stands twice in one object of a JSON text, None where each stands once.

    Args:
        text: the text, in UTF-8.
        value: what was read of it. Its keys are counted first, so that texts without a repeated key are not read again
            as a rule.
    """
    if len(_KEY.findall(text)) <= _count_keys(value):
        return None
    repeated: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        repeated.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)

    with contextlib.suppress(RecursionError):  # nested more deeply than this reader goes; what it has seen counts
        json.loads(text, object_pairs_hook=look)
    return repeated[0] if repeated else None


def _count_keys(value: Any) -> int:
    """Count keys without recursion, for a row may be nested deeply."""
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            count += len(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return count
