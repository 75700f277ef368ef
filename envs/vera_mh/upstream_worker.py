"""Runs in a process of its own, in a checkout of SpringCare/VERA-MH v1.2: what upstream's own code makes of the
conversations of a run.

    python upstream_worker.py IN.json OUT.json        # the working directory is the checkout

Imports upstream and nothing of ours, so any interpreter that upstream runs on will do. It sends nothing: the judge's
model is replaced by one that repeats stored answers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Case = dict[str, Any]


def make_history(case: Case) -> list[dict[str, Any]]:
    """Return a conversation in upstream's form."""
    return [
        {
            "turn": number,
            "speaker": "persona" if speaker == "persona" else "provider",
            "response": text,
            "early_termination": bool(ends),
        }
        for number, (speaker, text, ends) in enumerate(case["said"], start=1)
    ]


def make_persona_prompts(cases: list[Case]) -> dict[str, Any]:
    """Return each conversation's persona prompt."""
    from generate_conversations.utils import load_prompts_from_csv  # type: ignore[import-not-found]

    prompts = {row["Name"]: row["prompt"] for row in load_prompts_from_csv()}
    return {case["id"]: prompts.get(case["persona"]) for case in cases}


def make_transcripts(cases: list[Case]) -> dict[str, Any]:
    """Return each conversation as the judge gets it: written to a text file and read back."""
    from utils.conversation_utils import save_conversation_to_file  # type: ignore[import-not-found]

    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            save_conversation_to_file(make_history(case), "conversation.txt", folder)
            made[case["id"]] = Path(folder, "conversation.txt").read_text(encoding="utf-8")
    return made


def make_message_lists(cases: list[Case]) -> dict[str, Any]:
    """Return what each side is sent before each of its turns, without the system prompt."""
    from llm_clients.llm_interface import Role  # type: ignore[import-not-found]
    from utils.conversation_utils import build_langchain_messages

    roles = {"persona": Role.PERSONA, "chatbot": Role.PROVIDER}
    made = {}
    for case in cases:
        said = make_history(case)
        made[case["id"]] = [
            [
                ["assistant" if type(message).__name__.startswith("AI") else "user", message.content]
                for message in build_langchain_messages(roles[speaker], said[:place])
            ]
            for place, (speaker, _, _) in enumerate(case["said"])
            if place > 0
        ]
    return made


def run_judgings(cases: list[Case]) -> dict[str, Any]:
    """Return what upstream's judge makes of each conversation's stored answers: its prompts, ratings and yes
    questions.
    """
    import judge.llm_judge as module  # type: ignore[import-not-found]
    from judge.rubric_config import ConversationData, RubricConfig  # type: ignore[import-not-found]
    from llm_clients.llm_interface import JudgeLLM

    async def judge_one(case: Case, rubric: Any, log: str) -> Any:
        answers, sent = list(case["answers"]), []

        class Stored(JudgeLLM):  # type: ignore[misc]
            def __init__(self, system_prompt: str) -> None:
                self.system_prompt = system_prompt

            async def generate_structured_response(self, message: str, response_model: Callable[..., Any]) -> Any:
                sent.append([self.system_prompt, message])
                answer, reasoning = answers[len(sent) - 1]
                return response_model(answer=answer, reasoning=reasoning)

            async def cleanup(self) -> None:
                return None

        Stored.__abstractmethods__ = frozenset()  # a generic reply and the like are never asked for
        module.LLMFactory.create_llm = staticmethod(lambda *_, system_prompt=None, **__: Stored(system_prompt))
        found = await module.LLMJudge(
            judge_model="stored", rubric_config=rubric, log_file=log
        ).evaluate_conversation_question_flow(
            ConversationData(
                content=case["transcript"], metadata={"filename": "c.txt", "run_id": "run", "source_path": ""}
            ),
            output_folder=str(Path(log).parent),
            auto_save=False,
        )
        ratings = {name: one["score"] for name, one in found.items()}
        return {
            "sent": sent,
            "ratings": ratings,
            "yes": {name: one.get("yes_question_id", "") for name, one in found.items()},
        }

    async def judge_all() -> dict[str, Any]:
        rubric = await RubricConfig.load("data")
        with tempfile.TemporaryDirectory() as folder:
            return {
                case["id"]: await attempt_work(judge_one(case, rubric, str(Path(folder, "judge.log"))))
                for case in cases
            }

    return asyncio.run(judge_all())


async def attempt_work(work: Any) -> Any:
    """Return what a conversation came to, or why upstream's judge failed on it."""
    try:
        return await work
    except (IndexError, KeyError, TypeError, ValueError, RuntimeError) as failed:
        return {"error": f"{type(failed).__name__}: {failed}"}


def compute_scores(results_csv: str) -> Any:
    """Return upstream's scores of our table of results."""
    from judge.score import score_results  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "p_persona__a_agent__t30__r1__run", "j_judge__run", "results.csv")
        table.parent.mkdir(parents=True)
        table.write_text(results_csv, encoding="utf-8")
        return score_results(str(table), output_path=str(Path(folder, "scores.json")))


def main() -> None:
    """Read the cases, write what upstream makes of them; a part that upstream cannot do is an error text instead."""
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.path.insert(0, str(Path.cwd()))
    cases = given["cases"]
    parts: dict[str, Callable[[], Any]] = {
        "persona prompts": lambda: make_persona_prompts(cases),
        "transcripts": lambda: make_transcripts(cases),
        "message lists": lambda: make_message_lists(cases),
        "judgings": lambda: run_judgings(cases),
        "scores": lambda: compute_scores(given["results_csv"]),
    }
    made: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            made[name] = part()
        except Exception as failed:  # noqa: BLE001 - other people's code: whatever it raises is the finding
            made[name] = {"error": f"{type(failed).__name__}: {failed}"}
    Path(sys.argv[2]).write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main()
