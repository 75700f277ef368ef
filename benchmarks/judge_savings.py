"""What rules, single flight, the cache and the layout of the prompt save of a judge's work, measured on a real vLLM on
the CPU.

    GAVEL_VLLM_PYTHON=… python -m benchmarks.judge_savings [--questions 24] [--rollouts 16] [--layout-calls 24]

The batch is one of GRPO: each question ``--rollouts`` times. What a policy answers is assumed, not measured: drawn from
our labelled answers to the question, the reference itself in two spellings, and [IDK], by Zipf's law (the k-th
likeliest has weight 1/k, in an order of the question's own); the table says how many are distinct. Two steps over the
same questions, each with draws of its own, show what the cache adds. Grading is the abstention environment's, with the
strict profile.

The layout is measured with calls that are neither shared nor kept, all different: as designed (rubric, question,
reference, candidate) and candidate first, with the same words; hits are vLLM's own count of prompt tokens
(``vllm:prefix_cache_queries``, ``…_hits``).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import orjson
from tests.support.vllm import smollm2

from gavel.envs.abstention.environment import AbstentionConfig, AbstentionEnvironment, build
from gavel.envs.abstention.target import AbstentionTarget
from gavel.envs.types import Task, Transcript
from gavel.judges.assets import AssetStore
from gavel.judges.bindings import Binding, bind_rubrics
from gavel.judges.judge import BoundJudges
from gavel.judges.types import BindingConfig, RubricConfig
from gavel.models.pool import ServicePool, open_services
from gavel.models.types import ChatModel, ChatRequest, Message, Reply

DATA = Path(__file__).parents[1] / "envs" / "abstention" / "data" / "calibration.jsonl"
NAME = "abstention"
STEPS = 2
SPLIT = "Now the answer to check.\n"
_METRIC = re.compile(r"^vllm:prefix_cache_(queries|hits)(?:_total)?\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """A question with what policies answer, likeliest first."""

    text: str
    reference: str
    answers: tuple[str, ...]


def questions(count: int, seed: int) -> list[Question]:
    """Return the first ``count`` questions of the labelled data, answers in an order of their own."""
    draw = random.Random(seed)
    found: dict[str, list[dict[str, str]]] = {}
    for line in DATA.read_bytes().splitlines():
        row = orjson.loads(line)
        found.setdefault(row["question"], []).append(row)
    made = []
    for text, rows in list(found.items())[:count]:
        reference = rows[0]["reference"]
        answers = [reference, f"{reference}.", "[IDK]", *(row["answer"] for row in rows)]
        made.append(Question(text, reference, tuple(draw.sample(answers, len(answers)))))
    return made


def batch(asked: Sequence[Question], rollouts: int, draw: random.Random) -> list[tuple[Question, str]]:
    """Draw ``rollouts`` answers to each question by Zipf's law."""
    return [
        (question, answer)
        for question in asked
        for answer in draw.choices(
            question.answers, [1 / (rank + 1) for rank in range(len(question.answers))], k=rollouts
        )
    ]


async def grade(environment: AbstentionEnvironment, rows: Sequence[tuple[Question, str]]) -> Counter[str]:
    """Grade every row at once; count how each verdict came about."""

    async def one(question: Question, answer: str) -> str:
        text = f"\\boxed{{{answer}}}"
        task = Task(
            "t",
            "abstention",
            "nemo_abstention_v1/abstention",
            (Message("user", question.text),),
            AbstentionTarget(question.text, question.reference),
            {},
        )
        said = Message("assistant", text, reply=Reply(text, "stop", "policy"))
        finish = await environment.step(task, Transcript((*task.messages, said)))
        assert finish.outcome.graded, finish.outcome.failure
        if not finish.receipts:
            return "rule"
        receipt = finish.receipts[-1]
        return "cache" if receipt.cache_hit else "shared" if receipt.shared else "call"

    return Counter(await asyncio.gather(*(one(*row) for row in rows)))


async def prefix_counts(root: str) -> dict[str, float]:
    """Return prompt tokens looked up in the prefix cache (``queries``) and found there (``hits``), as vLLM counts
    them.
    """
    async with aiohttp.ClientSession() as session, session.get(f"{root}/metrics") as response:
        return {name: float(value) for name, value in _METRIC.findall(await response.text())}


def candidate_first(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the same words with the candidate in front and the rubric after it."""
    (message,) = messages
    rubric, _, item = message.content.partition(SPLIT)
    before, _, candidate = item.partition("<candidate>")
    candidate, _, cue = candidate.partition("</candidate>")
    return (Message("user", f"{SPLIT}<candidate>{candidate}</candidate>{before}{rubric}{cue}"),)


@dataclass(frozen=True)
class Layout:
    """Prompt tokens, those found in the prefix cache, and seconds of a round of calls."""

    tokens: float
    hits: float
    seconds: float


async def layout(model: ChatModel, root: str, requests: Sequence[ChatRequest]) -> Layout:
    """Make the calls, in the order of a batch."""
    before, began = await prefix_counts(root), time.monotonic()
    await asyncio.gather(*(model.complete(request) for request in requests))
    after = await prefix_counts(root)
    return Layout(after["queries"] - before["queries"], after["hits"] - before["hits"], time.monotonic() - began)


async def layouts(pool: ServicePool, binding: Binding, rows: Sequence[tuple[Question, str]]) -> dict[str, Layout]:
    """Measure both layouts over the same queries."""
    rubric, model = binding.rubric, pool.get_model("general")
    root = pool.list_urls("general")[0].removesuffix("/v1")
    designed = [rubric.render({"question": q.text, "reference": q.reference, "answer": answer}) for q, answer in rows]
    made: dict[str, Layout] = {}
    for name, prompts in (
        ("as designed", designed),
        ("candidate first", [candidate_first(prompt) for prompt in designed]),
    ):
        fixed = ChatRequest((), "judge", rubric.sampling, rubric.response_format, fresh=True)
        made[name] = await layout(model, root, [replace(fixed, messages=prompt) for prompt in prompts])
    return made


async def measure(
    python: str, options: argparse.Namespace, folder: Path
) -> tuple[list[tuple[int, Counter[str]]], dict[str, Layout]]:
    """Start the judge, measure both layouts and both steps; a step is (distinct answers, rows by how they were
    judged).
    """
    services = {"general": replace(smollm2(python), cache=True)}
    rubrics, joined = {NAME: RubricConfig("gavel/qa-abstention-v1")}, {NAME: BindingConfig("general", NAME)}
    bindings: Mapping[str, Binding] = bind_rubrics(rubrics, joined, services, AssetStore())
    asked = questions(options.questions, options.seed)
    async with open_services(services, log_dir=folder, progress=print, replies=folder / "replies.sqlite") as pool:
        draw = random.Random(options.seed)
        apart = [
            (q, q.answers[rank])
            for rank in range(7)
            for q in asked
            if rank < len(q.answers) and q.answers[rank] != "[IDK]"
        ]
        made = await layouts(pool, bindings[NAME], apart[: options.layout_calls])
        environment = build(AbstentionConfig(), BoundJudges(bindings, pool.get_model), {})
        steps = []
        for _ in range(STEPS):
            rows = batch(asked, options.rollouts, draw)
            steps.append((len(set(rows)), await grade(environment, rows)))
    return steps, made


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=24)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--layout-calls", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        steps, made = asyncio.run(measure(os.environ.get("GAVEL_VLLM_PYTHON", sys.executable), options, Path(folder)))
    total = options.questions * options.rollouts
    print(f"{options.questions} questions, {options.rollouts} rollouts each: {total} rows a step")
    print(f"{'':<8}{'distinct':>9}{'by rule':>9}{'shared':>8}{'cached':>8}{'calls':>7}{'saved':>8}")
    for step, (distinct, ways) in enumerate(steps, 1):
        counts = (ways["rule"], ways["shared"], ways["cache"], ways["call"])
        print(
            f"step {step:<3}{distinct:>9}{counts[0]:>9}{counts[1]:>8}{counts[2]:>8}{counts[3]:>7}{1 - counts[3] / total:>8.0%}"  # noqa: E501
        )
    print(
        f"\n{options.layout_calls} different calls, no "
        f"sharing\n{'':<18}{'prompt tokens':>14}{'found':>8}{'hit rate':>10}{'seconds':>9}"
    )
    for name, found in made.items():
        print(
            f"{name:<18}{found.tokens:>14.0f}{found.hits:>8.0f}{found.hits / found.tokens:>10.0%}{found.seconds:>9.1f}"
        )
    rates = [found.hits / found.tokens for found in made.values()]
    passed = rates[0] > rates[1] and all(ways["call"] < distinct for distinct, ways in steps)
    print("pass" if passed else "FAIL: the layout or the savings do not hold")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
