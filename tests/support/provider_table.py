"""Every choice for a provider in every role, against its server of ``tests.support.providers``; prints the table of
docs/providers.md::

python -m tests.support.provider_table
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from tests.envs.instruction_following.environment_support import question
from tests.envs.instruction_following.environment_support import row as instructed
from tests.support.providers import KEY, PLAIN, PROVIDERS, Provider, ProviderServer, serve, words_of
from tests.support.runs import STRICT, rows, write_tasks

from gavel.launch.cli.command_line import main

PROMPTS = Path(__file__).parents[3] / "shared" / "data" / "abstention"
COUNT = 4
NATIVE = "judge, native rubric"
ROLES = (NATIVE, "judge, strict rubric", "judge of instructions", "policy")


def commands(role: str, under_test: ProviderServer, other: ProviderServer, folder: Path) -> list[str]:
    """The words of a rollout with a provider in a role, and a server that refuses nothing on the other side."""
    group = "policy" if role == "policy" else "judge"
    sides = [*words_of(group, under_test), *words_of("judge" if group == "policy" else "policy", other)]
    tasks = folder / "tasks.jsonl"
    if role == "judge of instructions":
        tasks.write_bytes(
            b"".join(orjson.dumps(instructed(f"i-{n}", [], [question("Is it kind?")])) + b"\n" for n in range(COUNT))
        )
        more = ["env=instruction_following"]
    else:
        write_tasks(tasks, COUNT)
        more = ["env=abstention", f"assets.mirror={PROMPTS}" if role == NATIVE else STRICT]
    return [
        "rollout",
        f"run.dir={folder / 'run'}",
        f"tasks.path={tasks}",
        *more,
        *sides,
        "report=false",
        "assets.offline=true",
        f"assets.cache={folder / 'cache'}",
    ]


def prompts_at_hand() -> bool:
    """Whether the native rubric's prompt is there."""
    return (PROMPTS / "omniscience_grader.txt").is_file()


def result(provider: Provider, role: str) -> str:
    """Play a few rows; say how many were graded, and how many requests were refused before the form was learned."""
    if role == NATIVE and not prompts_at_hand():
        return "not tried"
    with (
        TemporaryDirectory() as folder,
        serve(provider, PLAIN["judge" if role == "policy" else "policy"]) as (server, other),
    ):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main([*commands(role, server, other, Path(folder)), "concurrency=1"])
        graded = len(rows(Path(folder) / "run"))
    learned = f", {len(server.refused)} learned" if server.refused else ""
    return f"{graded}/{COUNT}{learned}" + (f", exit {code}" if code else "")


def table() -> str:
    """Return the table as Markdown; sets the variables that hold the keys."""
    lines = [f"| server | choice | {' | '.join(ROLES)} |", "|---" * (len(ROLES) + 2) + "|"]
    for name, provider in PROVIDERS.items():
        if provider.key_variable:
            os.environ[provider.key_variable] = KEY
        lines.append(f"| {name} | {provider.choice} | {' | '.join(result(provider, role) for role in ROLES)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
