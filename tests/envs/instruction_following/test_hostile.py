"""Replies made to be slow: all checks together take a time that grows with the reply, whatever it repeats."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from benchmarks.instruction_checks import ARGUMENTS, HOSTILE

from gavel.envs.instruction_following.checking import CHECKS, check_document
from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.languages import LANGUAGES

CHARACTERS = 10_000
LARGEST_GROWTH, SLACK_S = 3.0, 0.03


def seconds(unit: str, characters: int, language: str) -> float:
    text = unit * (characters // len(unit))
    begun = time.process_time()
    document = Document(f"Start {text} end", LANGUAGES[language])
    for name in CHECKS:
        if LANGUAGES[language].code in INSTRUCTIONS[name].languages:
            check_document(document, name, ARGUMENTS.get(name, {}))
    return time.process_time() - begun


@pytest.mark.parametrize("name", HOSTILE)
def test_all_checks_take_a_time_that_grows_with_the_reply(name: str) -> None:
    language, unit = HOSTILE[name]
    assert grows_with_its_text(lambda characters: seconds(unit, characters, language), CHARACTERS)


def grows_with_its_text(read: Callable[[int], float], characters: int) -> bool:
    """Tell whether twice the text takes no more than three times as long; asked again, as what another process takes of
    the cache looks like growth, but not each time.
    """
    for _ in range(3):
        once, twice = (min(read(many) for _ in range(2)) for many in (characters, 2 * characters))
        if twice <= LARGEST_GROWTH * once + SLACK_S:
            return True
    return False


@pytest.mark.parametrize("unit", ["a\n", "\ta\n", "| a | b |\n", "P.S. a\n", "> a\n"])
def test_the_lines_of_one_paragraph_of_a_megabyte_are_each_read_once(unit: str) -> None:
    def read(characters: int) -> float:
        document = Document("Start\n" + unit * (characters // len(unit)), LANGUAGES["en"])
        begun = time.process_time()
        assert document.blocks
        return time.process_time() - begun

    assert grows_with_its_text(read, 500_000)
