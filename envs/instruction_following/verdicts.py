"""What all checks share: a check looks at a document and arguments, and says pass or fail with a short reason."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from gavel.envs.instruction_following.arguments import AT_LEAST, EQUAL_TO, LESS_THAN
from gavel.envs.instruction_following.document import Document
from gavel.models.errors import shorten_value


class CheckVerdict(NamedTuple):
    """Whether a reply follows an instruction, and why."""

    passed: bool
    reason: str


Arguments = Mapping[str, Any]
CheckFunction = Callable[[Document, Arguments], CheckVerdict]

COMPARE: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {AT_LEAST: operator.ge, EQUAL_TO: operator.eq, LESS_THAN: operator.lt}
)


def make_count_check(
    count: Callable[[Document, Arguments], int], number: str, unit: str, relation: str = "relation"
) -> CheckFunction:
    """Return the check that compares a count with the argument ``number``."""

    def check(document: Document, arguments: Arguments) -> CheckVerdict:
        found, wanted = count(document, arguments), arguments[number]
        named = arguments[relation]
        return CheckVerdict(COMPARE[named](found, wanted), f"{unit}: {found}; wanted: {named} {wanted}")

    return check


def compare_each(counts: Sequence[int], arguments: Arguments, number: str, unit: str) -> CheckVerdict:
    """Compare every one of ``counts``; none at all is a fail, because nothing is there that could follow the
    instruction.
    """
    wanted, named = arguments[number], arguments["relation"]
    wrong = [f"{place}: {found}" for place, found in enumerate(counts, 1) if not COMPARE[named](found, wanted)]
    if not counts:
        return CheckVerdict(False, f"no {unit}")
    return CheckVerdict(not wrong, f"{unit}: {', '.join(wrong[:5]) or 'all'}; wanted: {named} {wanted} each")


def check_none_wrong(wrong: Iterable[str], what: str) -> CheckVerdict:
    """Pass if nothing is wrong; else name the first that is."""
    first = next(iter(wrong), None)
    return CheckVerdict(first is None, what if first is None else f"not {what}: {shorten_value(first, 60)}")


def check_between(value: float, low: float, high: float, unit: str) -> CheckVerdict:
    """Pass if a value lies between two bounds, both included."""
    return CheckVerdict(low <= value <= high, f"{unit}: {value:.4g}; wanted: {low:g} to {high:g}")
