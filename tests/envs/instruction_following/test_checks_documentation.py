"""The page on instruction following says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from gavel.envs.instruction_following import LanguageUnsupported, TaskError, check_instruction, supported_instructions
from gavel.envs.instruction_following.documentation import TABLES, render_page
from gavel.envs.instruction_following.instructions import INSTRUCTIONS

PAGE = (Path(__file__).parents[3] / "docs" / "instruction_following.md").read_text(encoding="utf-8")


def test_the_generated_tables_of_the_page_are_current() -> None:
    assert render_page(PAGE) == PAGE
    assert set(re.findall(r"<!-- begin (\w+) -->", PAGE)) == set(TABLES)


def test_the_page_names_every_instruction() -> None:
    assert {name for name in INSTRUCTIONS if f"| `{name}` |" not in PAGE} == set()


def test_the_example_of_the_page_runs_and_says_what_its_comment_says() -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(example) == 1
    shown = {"TaskError": TaskError, "LanguageUnsupported": LanguageUnsupported}
    exec(example[0], names := dict(shown))
    assert names["check_instruction"] is check_instruction
    assert check_instruction("Grüße aus Köln!", "keywords:existence", {"keywords": ["Grüße"]}, "de").passed
    assert set(supported_instructions("ja")) == {name for name, entry in INSTRUCTIONS.items() if not entry.needs}
