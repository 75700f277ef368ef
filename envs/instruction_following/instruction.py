"""What an instruction is: one row of the instruction table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gavel.envs.instruction_following.arguments import Argument
from gavel.envs.instruction_following.languages import LANGUAGES, Language

Kind = Literal["fast", "judged"]
Mode = Literal["fits", "counts"]
Needs = Literal["", "letter case", "vowels and consonants", "alphabet"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    ``definition`` says in one sentence when a reply passes, for readers and judges alike. ``needs`` names what a
    language must have for the instruction to exist in it. ``ordered`` names two arguments of which the first must not
    be above the second. ``mode`` of a judged instruction: the judge decides whether the text ``fits``, or ``counts``
    what is described and compares.
    """

    id: str
    kind: Kind
    arguments: tuple[Argument, ...]
    definition: str
    needs: Needs = ""
    ordered: tuple[str, str] | None = None
    mode: Mode | None = None

    @property
    def category(self) -> str:
        """The part of the id before the colon."""
        return self.id.partition(":")[0]

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages it exists in."""
        return tuple(code for code, language in LANGUAGES.items() if self.is_in_language(language))

    def is_in_language(self, language: Language) -> bool:
        """Whether the instruction makes sense in a language: those about case, vowels and initials need an alphabet
        with case.
        """
        return language.cased or not self.needs
