"""What ``gavel --help`` and ``gavel VERB --help`` say; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gavel.launch.compose.verbs import VERBS, Verb
from gavel.launch.config.groups import list_choices

_EXIT_CODES = (
    ("0", "everything was done"), ("2", "bad input or config"),
    ("3", "some rows are ungraded or were skipped; a probed judge did not qualify"),
    ("4", "stopped by a failure policy or a budget"), ("130", "interrupted"),
)  # fmt: skip
_OPTIONS = (
    ("-h, --help", "this text; after a verb, that verb's"), ("--version", "the version"),
    ("--config-dir DIR", "a folder of your own configs, searched before those of gavel; may be given more than once"),
    ("-m, --multirun", "train, rescore: one run for each value of KEY=VALUE,VALUE"),
    ("--traceback", "show the trace of an unexpected error"),
)  # fmt: skip


def render_overview() -> str:
    """Return the text of ``gavel --help``."""
    return (
        "\n".join(
            [
                "gavel: judge-graded training environments for NeMo-RL",
                "",
                "usage: gavel VERB [RUN] [KEY=VALUE …] [GROUP=CHOICE …]",
                "",
                "start here:",
                *_format_commands([("rollout", "experiment=demo"), ("rollout", "--help")]),
                "",
                "verbs:",
                *_format_columns((verb.name, verb.summary) for verb in VERBS.values()),
                "",
                "options:",
                *_format_columns(_OPTIONS),
                "",
                "exit codes:",
                *_format_columns(_EXIT_CODES),
            ]
        )
        + "\n"
    )


def render_verb_help(verb: Verb, folders: Sequence[Path]) -> str:
    """Return the text of ``gavel VERB --help``, with the choices found in ``folders``."""
    lines = [f"gavel {verb.name}: {verb.summary}", "", "examples:"]
    for tail, meaning in verb.examples:
        lines += [f"  # {meaning}", f"  gavel {verb.name} {_wrap_command(tail, verb.name)}"]
    listed = ((f"{group}=", ", ".join(list_choices(group, folders)) or "(none)") for group in verb.groups)
    if verb.groups:
        lines += ["", "groups and their choices:", *_format_columns(listed)]
    lines += ["", "keys:", *_format_columns(verb.keys)]
    return "\n".join([*lines, "", "options:", *_format_columns(_OPTIONS)]) + "\n"


def _format_commands(commands: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  gavel {verb} {tail}" for verb, tail in commands]


def _format_columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    width = max((len(left) for left, _ in rows), default=0)
    return [f"  {left.ljust(width)}  {right}" for left, right in rows]


def _wrap_command(tail: str, verb: str, width: int = 100) -> str:
    """Break a long command at its blanks, so that it can be copied."""
    lines = [""]
    for word in tail.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) + len(verb) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return " \\\n    ".join(lines)
