"""Text that is not ours never steers the terminal, and never breaks the page it is shown on."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from tests.support.fault_server import FaultServer
from tests.support.faults import Answer
from tests.support.runs import POLICY, arguments, gavel, source_row

from gavel.launch.config.console import SafeConsole

HOSTILE = "\x1b[2J\x1b]0;owned\x07 \x9b31m[red]\x08[/]"
SHOWN = r"\x1b[2J\x1b]0;owned\x07 \x9b31m[red]\x08[/]"


def controls(text: str) -> set[str]:
    return {
        character
        for character in text
        if (ord(character) < 32 and character not in "\n\t") or 127 <= ord(character) < 160
    }


async def test_a_story_shows_control_characters_written_out(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> Answer:
        if body["model"] == POLICY:
            return Answer(f"\\boxed{{{HOSTILE}}}", model=POLICY)
        return Answer("INCORRECT \x1b[31m")

    task_id = f"[/]{HOSTILE}"
    (tmp_path / "t.jsonl").write_bytes(orjson.dumps(source_row(0, id=task_id)) + b"\n")
    async with FaultServer(reply=reply) as server:
        words = arguments(tmp_path / "t.jsonl", tmp_path / "run", server.base_url, "concurrency=1")
        first = await gavel(*words)
        done = await gavel(*words, f"inspect={task_id}")
        wrong = await gavel(*words, f"inspect=\x1b[31m{task_id}")
    assert [controls(text) for text in (first.out, first.err, done.out, done.err, wrong.out, wrong.err)] == [set()] * 6
    assert SHOWN in done.out
    assert r"INCORRECT \x1b[31m" in done.out
    assert (done.code, wrong.code) == (3, 2)


def test_a_console_writes_out_whatever_it_is_given_and_keeps_its_own_colours() -> None:
    table = Table(HOSTILE, title=Text(HOSTILE))
    table.add_row(Text(HOSTILE), Panel(Text(HOSTILE)))
    file = io.StringIO()
    console = SafeConsole(file=file, width=300, highlight=False)
    for item in (table, Text(HOSTILE), "a\x1b[31mb\x07c"):
        console.print(item)
    assert controls(file.getvalue()) == set()
    assert r"a\x1b[31mb\x07c" in file.getvalue()
    colours = io.StringIO()
    SafeConsole(file=colours, force_terminal=True, color_system="standard").print("[red]x[/red]")
    plain = io.StringIO()
    Console(file=plain, force_terminal=True, color_system="standard").print("[red]x[/red]")
    assert colours.getvalue() == plain.getvalue() != "x\n"
