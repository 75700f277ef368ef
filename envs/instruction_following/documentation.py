"""The tables of the documentation's page, made from the tables of the code.

    python -m gavel.envs.instruction_following.documentation docs/instruction_following.md

rewrites what stands between the page's markers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import regex

from gavel.envs.instruction_following.arguments import Argument
from gavel.envs.instruction_following.instruction import Instruction
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.languages import ALIASES, LANGUAGES, Language

_MARKED = regex.compile(r"(?<=<!-- begin (\w+) -->\n).*?(?=<!-- end \1 -->)", regex.DOTALL)


def render_page(page: str) -> str:
    """Return the page with its generated parts made anew.

    Raises:
        KeyError: the page marks a part that nothing makes.
    """
    return _MARKED.sub(lambda part: f"\n{TABLES[part[1]]()}\n\n", page)


def _format_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _format_arguments(entry: Instruction) -> str:
    return "<br>".join(f"`{argument.name}`: {_format_allowed(argument)}" for argument in entry.arguments) or "–"


def _format_allowed(argument: Argument) -> str:
    if argument.values:
        return f"{', '.join(argument.values)}{' …' if argument.open else ''}"
    return argument.kind.allowed.replace(" | ", ", ")


def _format_languages(entry: Instruction) -> str:
    return "all" if not entry.needs else ", ".join(entry.languages)


def make_fast_table() -> str:
    """Return the table of the instructions a program checks."""
    rows = (
        (f"`{entry.id}`", entry.definition, _format_order(entry), _format_languages(entry))
        for entry in INSTRUCTIONS.values()
        if entry.kind == "fast"
    )
    return _format_table(("instruction", "a reply follows it if", "arguments", "languages"), rows)


def _format_order(entry: Instruction) -> str:
    order = f"<br>`{entry.ordered[0]}` at most `{entry.ordered[1]}`" if entry.ordered else ""
    return _format_arguments(entry) + order


def make_judged_table() -> str:
    """Return the table of the instructions a judge decides."""
    rows = (
        (f"`{entry.id}`", entry.definition, _format_arguments(entry), entry.mode or "")
        for entry in INSTRUCTIONS.values()
        if entry.kind == "judged"
    )
    return _format_table(("instruction", "a reply follows it if", "arguments", "the judge decides whether it"), rows)


def make_value_table() -> str:
    """Return what a judge is told of each value of an argument."""
    rows = (
        (
            f"`{entry.id}`",
            f"`{argument.name}`",
            "; ".join(f"**{value}**: {meaning}" for value, meaning in argument.values.items()),
        )
        for entry in INSTRUCTIONS.values()
        for argument in entry.arguments
        if argument.values
    )
    return _format_table(("instruction", "argument", "values"), rows)


def make_language_table() -> str:
    """Return the table of languages."""
    rows = (
        (
            f"`{language.code}`",
            language.name,
            _format_aliases(language),
            "yes" if language.cased else "no",
            _describe_unit(language),
            _format_notes(language),
        )
        for language in LANGUAGES.values()
    )
    return _format_table(("code", "language", "alias", "letter case", "a word is", "notes"), rows)


def _format_aliases(language: Language) -> str:
    return ", ".join(f"`{alias}`" for alias, code in ALIASES.items() if code == language.code) or "–"


def _describe_unit(language: Language) -> str:
    if language.joined:
        return "what stands between blanks"
    return (
        "letters and digits, joined by inner hyphens, apostrophes and dots"
        if language.spaced
        else "a word of ICU's dictionary"
    )


_NOTES: tuple[tuple[Callable[[Language], str], str], ...] = (
    (lambda language: language.folds, "accented forms of {} count as the letter itself"),
    (lambda language: language.marks, "{} count as question and exclamation marks too"),
    (lambda language: "x" * language.elides, "a keyword is found after an elision (l'…)"),
    (
        lambda language: "x" * language.ordinals,
        "a number of one or two digits with a full stop can be an ordinal (see Sentences)",
    ),
    (lambda language: "x" * language.dates, "numbers with full stops make a date (2024. 5. 3.) that ends no sentence"),
    (
        lambda language: "x" * (bool(language.tells) and not language.cased),
        "quoted speech goes on where a verb of saying follows",
    ),
    (
        lambda language: "x" * bool(language.endings),
        "a keyword may be followed by a particle, an ending, an honorific or a suffix",
    ),
    (
        lambda language: " ".join(language.conjunctions),
        "a keyword of three letters or more is found after an attached {}",
    ),
    (lambda language: "x" * bool(language.numerals), "a dictionary word written in numerals only is a number"),
    (lambda language: "x" * language.braces, "placeholders may stand in braces"),
)


def _format_notes(language: Language) -> str:
    return "; ".join(text.format(found) for read, text in _NOTES if (found := read(language))) or "–"


TABLES: Mapping[str, Callable[[], str]] = {
    "fast": make_fast_table,
    "judged": make_judged_table,
    "values": make_value_table,
    "languages": make_language_table,
}


def main(path: Path) -> None:
    """Bring a page up to date."""
    page = path.read_text(encoding="utf-8")
    path.write_text(render_page(page), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
