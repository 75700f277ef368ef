"""Whole runs in tests: tasks of any number, models whose replies follow from the question, and the command as a
process.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from tests.support.preloaded import Done, run_command

from gavel.models.files import LINE_DIGEST

POLICY, JUDGE = "policy-model", "judge-model"
SYSTEM = "Answer the question in \\boxed{}; if you are unsure, \\boxed{[IDK]}."
STRICT = "rubrics.abstention.profile=gavel/qa-abstention-v1"


def write_tasks(path: Path, count: int, start: int = 0) -> Path:
    """Write ``count`` source rows with the ids ``q-<number>``."""
    path.write_bytes(b"".join(orjson.dumps(source_row(number)) + b"\n" for number in range(start, start + count)))
    return path


def source_row(number: int, **changes: Any) -> dict[str, Any]:
    """One row of the abstention source."""
    question = f"Which town lies at kilometre {number} of the old road?"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    row = {
        "id": f"q-{number}",
        "question": question,
        "answer": f"Town {number}",
        "responses_create_params": {"input": messages},
    }
    return {**row, **changes}


def number_of(body: dict[str, Any]) -> int:
    """The number in the question a request is about."""
    found = re.findall(r"kilometre (\d+) of", body["messages"][-1]["content"])
    return int(found[-1])


def reply(body: dict[str, Any]) -> str:
    """Answer like a policy (right, wrong, abstaining, cut short of an answer) or a judge that grades rightly; by the
    number alone.
    """
    number = number_of(body)
    if body["model"] == POLICY:
        return (
            f"It is \\boxed{{The place called Town {number}}}",
            f"\\boxed{{Village {number + 1}}}",
            "\\boxed{[IDK]}",
            "<think>The road is long</think>\\boxed{I would have to look that up}",
        )[number % 4]
    return ("CORRECT", "INCORRECT", "NOT_ATTEMPTED", "NOT_ATTEMPTED")[number % 4]


def expected_label(number: int) -> str:
    """The label of a row under ``reply``."""
    return ("correct", "incorrect", "abstained", "abstained")[number % 4]


def arguments(tasks: Path, run: Path, url: str, *more: str, judge_url: str | None = None) -> list[str]:
    """The words of a rollout with both models at ``url``."""
    return [
        "rollout",
        f"run.dir={run}",
        f"tasks.path={tasks}",
        "env=abstention",
        STRICT,
        "policy=external",
        f"policy.base_url={url}",
        f"policy.model={POLICY}",
        "judge=external",
        f"judge.base_url={judge_url or url}",
        f"judge.model={JUDGE}",
        *more,
    ]


def without_digests(text: str) -> str:
    """The lines of a run's file as a version wrote them that had no digests, so that a test may change them."""
    return re.sub(rf',"{LINE_DIGEST}":"[0-9a-f]{{16}}"}}$', "}", text, flags=re.MULTILINE)


async def start(*words: str, **options: Any) -> asyncio.subprocess.Process:
    """Start ``gavel`` as a process of its own."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gavel.launch.cli",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        **options,
    )


async def gavel(
    *words: str, timeout: float = 60.0, cwd: Path | None = None, env: Mapping[str, str] | None = None, **options: Any
) -> Done:
    """Run ``gavel`` to its end; as a new interpreter where there are further options of a process."""
    if not options:
        return await asyncio.to_thread(run_command, words, cwd=cwd, env=env, timeout=timeout)
    process = await start(*words, cwd=cwd, env=env, **options)
    async with asyncio.timeout(timeout):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


def rows(run: Path, name: str = "results.jsonl") -> list[dict[str, Any]]:
    """The rows of a file of a run; every line must be whole."""
    return [orjson.loads(line) for line in (run / name).read_bytes().splitlines()]


def essence(run: Path) -> dict[tuple[str, int], Any]:
    """What must not depend on how a run came about: label, details, reward and texts, by row; fails on a duplicate."""
    found: dict[tuple[str, int], Any] = {}
    for row in rows(run):
        key = (row["task_id"], row["rollout_index"])
        assert key not in found, f"row {key} stands twice"
        texts = [message["content"] for message in row["transcript"]["messages"]]
        found[key] = (row["task_digest"], row["outcome"]["label"], row["outcome"]["details"], row["reward"], texts)
    return found
