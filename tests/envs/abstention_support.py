"""Judges, tasks and transcripts for the tests of the abstention environment."""

from collections.abc import Callable
from typing import Any

from gavel.envs.abstention.environment import AbstentionConfig, AbstentionEnvironment, build
from gavel.envs.abstention.rules import NATIVE, STRICT
from gavel.envs.abstention.target import AbstentionTarget
from gavel.envs.types import Finish, Task, Transcript
from gavel.judges.bindings import Binding
from gavel.judges.judge import BoundJudges
from gavel.judges.rubrics import gavel_abstention as rubric_gavel_abstention
from gavel.judges.rubrics import nvidia_abstention as rubric_nvidia_abstention
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.rubrics.template import parse_template
from gavel.judges.types import Rubric
from gavel.models.failures import ModelFailure
from gavel.models.types import ChatModel, ChatRequest, Completion, Message, Receipt, Reply, Sampling

QUESTION, REFERENCE = "What is the capital of France?", "Paris"
VERIFIER = "nemo_abstention_v1/abstention"
SLOTS = ("question", "reference", "answer")
PARSERS = {NATIVE: rubric_nvidia_abstention.parse, STRICT: rubric_gavel_abstention.parse}


def rubric(profile: str) -> PromptRubric:
    """The profile's own reading of a reply, behind a prompt that needs no asset."""
    return PromptRubric(
        profile=profile,
        targets=("nemo_abstention_v1",),
        slots=SLOTS,
        labels=("correct", "incorrect", "abstained"),
        sampling=Sampling(),
        response_format=None,
        digest=f"sha256:{profile}",
        controls=(),
        template=parse_template("{question}|{reference}|{answer}", set(SLOTS)),
        prepare=lambda slots: slots,
        reader=PARSERS[profile],
        judged="answer",
    )


class Script:
    """A model that answers as ``reply`` says, and keeps what it was asked."""

    name = "general"

    def __init__(self, reply: Callable[[str], str | ModelFailure]) -> None:
        self.reply = reply
        self.asked: list[str] = []

    async def complete(self, request: ChatRequest) -> Completion:
        self.asked.append(request.messages[0].content)
        said = self.reply(self.asked[-1])
        if isinstance(said, ModelFailure):
            raise said
        receipt = Receipt(f"{len(self.asked):016x}", "judge", self.name, "m", "sha256:0")
        return Completion(Reply(said, "stop", "m"), receipt)


def environment(profile: str, model: ChatModel, *, made: Rubric | None = None, **options: Any) -> AbstentionEnvironment:
    bindings = {"abstention": Binding("abstention", "general", made or rubric(profile))}
    return build(AbstentionConfig(**options), BoundJudges(bindings, lambda _: model), {})


def task(reference: str = REFERENCE, question: str = QUESTION) -> Task:
    target = AbstentionTarget(question, reference)
    return Task("t", "abstention", VERIFIER, (Message("user", question),), target, {"domain": "general"})


def transcript(text: str, finish_reason: str = "stop") -> Transcript:
    return Transcript((Message("user", QUESTION), Message("assistant", text, reply=Reply(text, finish_reason, "p"))))


async def grade(
    profile: str,
    text: str,
    *,
    says: str | ModelFailure = "B",
    reference: str = REFERENCE,
    finish_reason: str = "stop",
    **options: Any,
) -> tuple[Finish, list[str]]:
    """Step once; return the end and what the judge was asked."""
    model = Script(lambda _: says)
    finish = await environment(profile, model, **options).step(task(reference), transcript(text, finish_reason))
    return finish, model.asked
