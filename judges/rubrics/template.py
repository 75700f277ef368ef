"""One-pass template filling: a value is put in as it is and never scanned again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass

from gavel.models.errors import InputError, find_nearest

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: texts and the slot names between them, one text more than names."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    slots: frozenset[str]

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with every ``{name}`` replaced by its value; braces in values stay what they are.

        Raises:
            InputError: a slot has no value, or a value no slot.
        """
        return "".join(self.fill_parts(values))

    def fill_parts(self, values: Mapping[str, str]) -> list[str]:
        """Return the pieces of ``fill``: the template's own at even places, values between them; as ``fill``."""
        if values.keys() != self.slots:
            check_slots(self.slots, values)
        parts = [self.texts[0]]
        for name, text in zip(self.names, self.texts[1:], strict=True):
            parts.append(values[name])
            parts.append(text)
        return parts


def parse_template(text: str, slots: Set[str]) -> Template:
    """Read a template in which ``{name}`` stands for a slot; any other brace is plain text.

    Raises:
        InputError: a placeholder that is no slot, or a slot without a placeholder.
    """
    pieces = _PLACEHOLDER.split(text)
    names = tuple(pieces[1::2])
    for name in names:
        if name not in slots:
            raise InputError(
                "the template has an unknown placeholder",
                field=f"{{{name}}}",
                allowed=", ".join(find_nearest(name, slots) or sorted(slots)),
            )
    for name in sorted(slots - set(names)):
        raise InputError("the template never uses this slot", field=f"{{{name}}}")
    return Template(tuple(pieces[0::2]), names, frozenset(slots))


def check_slots(slots: Set[str], values: Mapping[str, str]) -> None:
    """Refuse values that are not exactly the slots.

    Raises:
        InputError: names the missing or unknown slot.
    """
    for name in sorted(slots - values.keys()):
        raise InputError(
            "a slot of the rubric has no value",
            field=name,
            found=", ".join(sorted(values)),
            allowed=", ".join(sorted(slots)),
        )
    for name in sorted(values.keys() - slots):
        raise InputError(
            "the rubric has no such slot", field=name, allowed=", ".join(find_nearest(name, slots) or sorted(slots))
        )
