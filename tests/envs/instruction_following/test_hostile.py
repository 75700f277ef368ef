"""Replies made to be slow: all checks together take a time that grows with the reply, whatever it repeats."""

from __future__ import annotations

import time

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
    once = min(seconds(unit, CHARACTERS, language) for _ in range(2))
    twice = min(seconds(unit, 2 * CHARACTERS, language) for _ in range(2))
    assert twice <= LARGEST_GROWTH * once + SLACK_S
