"""The personas: a table of people at some risk of suicide, and the simulator's prompt for one (SpringCare/VERA-MH
v1.2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gavel.models.codec import record
from gavel.models.errors import InputError, shorten_value

_NAME, _RISK = "Name", "Short Current Suicide Risk Level"
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


@record
class Persona:
    """One persona: ``risk`` is ``None``, ``Low``, ``High`` or ``Immediate``, from the short column only; ``cells`` are
    the raw cells by column, blanks and all."""

    name: str
    risk: str
    cells: Mapping[str, str]

    def render_prompt(self, template: str) -> str:
        """Return the simulator's prompt: each ``{column}`` of the template replaced by the raw cell, in one pass.

        Raises:
            InputError: the table lacks a column that the template names.
        """
        return _PLACEHOLDER.sub(self._fill_column, template)

    def _fill_column(self, found: re.Match[str]) -> str:
        try:
            return self.cells[found[1]]
        except KeyError:
            raise InputError(
                "the personas lack a column of the prompt",
                field=found[1],
                allowed=shorten_value(", ".join(self.cells), 400),
            ) from None


def read_personas(text: str, *, where: str = "personas.tsv") -> Mapping[str, Persona]:
    """Return the personas by name, in the table's order. No cell is a missing value: ``None`` is a level of risk.

    Raises:
        InputError: a column is missing, a row has too few cells, or a name stands twice.
    """
    lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n")
    columns = lines[0].rstrip("\r").split("\t")
    for column in (_NAME, _RISK):
        if column not in columns:
            raise InputError(
                "this table lacks a column", where=where, field=column, found=shorten_value(", ".join(columns), 400)
            )
    personas: dict[str, Persona] = {}
    for number, line in enumerate(lines[1:], start=2):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(columns):
            raise InputError(
                "wrong number of cells", where=f"{where}:{number}", found=str(len(cells)), allowed=str(len(columns))
            )
        row = dict(zip(columns, cells, strict=True))
        if row[_NAME] in personas:
            raise InputError("a persona stands twice", where=f"{where}:{number}", field=_NAME, found=row[_NAME])
        personas[row[_NAME]] = Persona(row[_NAME], row[_RISK].strip(), row)
    return personas
