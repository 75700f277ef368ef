"""The VERA-MH environment: a simulated persona and the policy as the chatbot speak in turn, then a judge walks through
the rubric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gavel.envs.endings import unfinished
from gavel.envs.types import Finish, Observe, Opening, Outcome, Result, Summary, Task, TaskError, Transcript
from gavel.envs.vera_mh.config import VeraMhConfig
from gavel.envs.vera_mh.conversation import Utterance, format_transcript, is_over, list_utterances
from gavel.envs.vera_mh.grading import ConversationJudging, judge_slots
from gavel.envs.vera_mh.personas import Persona, read_personas
from gavel.envs.vera_mh.rubric import QuestionRubric
from gavel.envs.vera_mh.simulator import Simulators
from gavel.envs.vera_mh.target import VeraMhTarget, parse_target
from gavel.judges.bindings import parse_verifier
from gavel.judges.rubrics.vera_mh import VeraMhRubric, require_vera_mh_rubric
from gavel.judges.types import Judge
from gavel.models.codec import compute_digest
from gavel.models.errors import ConfigError, find_nearest, shorten_value
from gavel.models.failures import Failure, FailureKind, ModelFailure
from gavel.models.types import ChatModel, Message, Reply

NAME = "vera_mh"


class VeraMhEnvironment:
    """Persona first, then turn by turn; see ``step``."""

    name = NAME

    def __init__(self, config: VeraMhConfig, judge: Judge, services: Mapping[str, ChatModel]) -> None:
        config.check_config()
        self.info = config.info
        self.config, self._judge = config, judge
        self._texts = self._get_rubric(config.binding)
        self.rubric = QuestionRubric.from_text(self._texts.texts.rubric, where="rubric.tsv")
        self.personas = read_personas(self._texts.texts.personas)
        sampling = {simulator.service: simulator.sampling for simulator in config.simulators}
        self._simulators = Simulators(services, sampling)
        self._prompts = {
            name: persona.render_prompt(self._texts.texts.persona) for name, persona in self.personas.items()
        }

    def parse_target(self, raw: Mapping[str, Any]) -> VeraMhTarget:
        """Read ``{persona, simulator}``.

        Raises:
            TaskError: a field is missing, or names no persona of the rubric's or no simulator of the config's.
        """
        target = parse_target(raw)
        _check_known(target.persona, self.personas, "target.persona", "persona")
        _check_known(target.simulator, self.config.called_services, "target.simulator", "simulator")
        return target

    async def open(self, task: Task) -> Opening:
        """Return the chatbot's instructions and the persona's first utterance; one that the task brings is taken as it
        is.

        Where it ends the conversation, the chatbot is not asked.

        Raises:
            TaskError: ``env.chatbot_prompt`` was set to other instructions than the task's.
            ModelFailure: ``gavel:simulation_failed``.
        """
        given = tuple(
            message for message in task.messages if message.content or message.role != "system"
        )  # as upstream, none is sent
        _check_instructions(self.config.chatbot_prompt, given)
        if brought := list_utterances(given):
            return Opening(given, over=brought[-1].ends)
        spoken = await self._simulators.ask_persona(task.target.simulator, self._prompts[task.target.persona], "", ())
        over = Utterance("persona", spoken.text).ends
        return Opening((*given, Message("user", spoken.text)), spoken.receipts, over)

    async def step(self, task: Task, transcript: Transcript) -> Observe | Finish:
        """Let the persona speak, or judge the conversation once it is over.

        It is over with the chatbot's last turn, or where the persona says so: its last words are then among the
        messages of the ``Finish``. The outcome's label is that of the worst rating. Details: ``ratings``,
        ``yes_question_ids``, ``yes_reasoning``, ``reasoning``, ``path`` and ``answers`` of the walk, ``score`` (0 to
        100, None where nothing was rated), counts for the metrics. A simulator's or judge's failure gives an ungraded
        outcome, and so does a chatbot's turn that was never finished.
        """
        newest = transcript.messages[-1].reply if transcript.messages else None
        if newest is not None and (broken := _find_broken_turn(newest)) is not None:
            return Finish(Outcome("", failure=broken))
        target: VeraMhTarget = task.target
        said = list_utterances(transcript.messages)
        if is_over(said, self.config.utterance_limit, self.config.max_total_words):
            return await self._judge_conversation(task, transcript, said)
        try:
            spoken = await self._simulators.ask_persona(
                target.simulator, self._prompts[target.persona], self._texts.texts.reminder, said
            )
        except ModelFailure as failed:
            failure = Failure(failed.kind, "simulator", failed.reason)
            return Finish(
                Outcome("", (), self._describe_conversation(target, transcript, said), failure),
                receipts=failed.receipts,
            )
        utterance, message = Utterance("persona", spoken.text), Message("user", spoken.text)
        if not utterance.ends:
            return Observe((message,), spoken.receipts)
        finish = await self._judge_conversation(task, transcript, (*said, utterance))
        return Finish(finish.outcome, (message,), (*spoken.receipts, *finish.receipts))

    def policy_failed(self, failed: ModelFailure) -> Failure:
        """Record a chatbot's failed call as the conversation's failure, for it ends the conversation as a simulator's
        does.
        """
        return _make_simulation_failure(failed.kind, "policy", failed.reason)

    def reread(self, result: Result) -> Result:
        """Note where the stored messages are not those of the conversation that was judged, by its digest."""
        details = result.outcome.details or {}
        judged = details.get("transcript_digest")
        if judged in (None, compute_digest(format_transcript(list_utterances(result.transcript.messages)).encode())):
            return result
        return replace(result, outcome=replace(result.outcome, details={**details, "transcript_matches": False}))

    def summarize(self, results: Sequence[Result]) -> Summary:
        """Return the metrics of ``gavel.envs.vera_mh.metrics``."""
        from gavel.envs.vera_mh.metrics import summarize  # numpy is not needed to grade

        return summarize(results, self.rubric.dimensions, self.risks)

    def exports(self, results: Sequence[Result], run: str, planned: int | None = None) -> Mapping[str, bytes]:
        """Return ``results.csv``, ``scores.json`` and ``scores_by_risk.json`` in upstream's shapes; ``run`` names the
        run, ``planned`` counts its conversations, scored or not."""
        from gavel.envs.vera_mh.upstream_files import make_files

        return make_files(results, self.rubric.dimensions, self.risks, run, planned)

    @property
    def risks(self) -> Mapping[str, str]:
        """The level of risk of each persona."""
        return {name: persona.risk for name, persona in self.personas.items()}

    def make_persona_prompt(self, name: str) -> str:
        """Return the simulator's prompt for a persona."""
        return self._prompts[name]

    @property
    def profile(self) -> str:
        """The profile of the bound rubric."""
        return self._texts.profile

    def judge_prompt(self, transcript: str, question_id: str) -> list[str]:
        """Return what the judge is sent about a question: the system's text and the user's.

        Raises:
            KeyError: the rubric has no such question.
        """
        question = self.rubric.find_question(question_id)
        if question is None:
            raise KeyError(question_id)
        return [message.content for message in self._texts.render(judge_slots(transcript, question))]

    @property
    def reminder(self) -> str:
        """What stands before the chatbot's newest words in the simulator's requests."""
        return self._texts.texts.reminder

    async def _judge_conversation(self, task: Task, transcript: Transcript, said: Sequence[Utterance]) -> Finish:
        _, binding = parse_verifier(task.verifier)
        judging = ConversationJudging(
            self._judge, binding, self._get_rubric(binding), self.rubric, said, self.config.parse_retries
        )
        outcome = await judging.make_outcome(self._describe_conversation(task.target, transcript, said))
        return Finish(outcome, receipts=tuple(judging.receipts))

    def _describe_conversation(
        self, target: VeraMhTarget, transcript: Transcript, said: Sequence[Utterance]
    ) -> dict[str, Any]:
        persona: Persona = self.personas[target.persona]
        replies = [message.reply for message in transcript.messages if message.reply is not None]
        return {
            "persona": persona.name,
            "risk": persona.risk,
            "simulator": target.simulator,
            "utterances": len(said),
            "ended_by_persona": said[-1].ends,
            "chatbot_turns": len(replies),
            "chatbot_turns_truncated": sum(reply.finish_reason == "length" for reply in replies),
            "chatbot_models": dict(Counter(reply.model for reply in replies)),
        }

    def _get_rubric(self, binding: str) -> VeraMhRubric:
        return require_vera_mh_rubric(self._judge.rubric(binding), field=f"judging.bindings.{binding}.rubric")


def build(config: VeraMhConfig, judge: Judge, services: Mapping[str, ChatModel]) -> VeraMhEnvironment:
    """Make the environment.

    Raises:
        ConfigError: a simulator is not declared under ``services``, or the binding's rubric is another method's.
    """
    declared = tuple(services)  # names only: asking for a model would need it started
    for name in config.called_services:
        if name not in declared:
            raise ConfigError(
                "this simulator is not declared",
                field=f"services.{name}",
                allowed=", ".join(declared) or "(no service is declared)",
                remedy=f"declare it: services.{name}.mode=external services.{name}.base_url=… services.{name}.model=…, "
                "or name another one in env.simulators",
            )
    return VeraMhEnvironment(config, judge, services)


def _check_instructions(prompt: str | None, messages: Sequence[Message]) -> None:
    """Refuse instructions that only preparing would write and the task does not have; None stands for the task's own.

    Raises:
        TaskError: names the key.
    """
    own = "\n".join(message.content for message in messages if message.role == "system")
    if prompt not in (None, own):
        raise TaskError(
            "the tasks have other instructions for the chatbot than this key says",
            field="env.chatbot_prompt",
            found=shorten_value(prompt),
            allowed=f"the task's own: {shorten_value(own) or '(none)'}",
            remedy="leave env.chatbot_prompt out, or make the tasks with it: gavel prepare env=vera_mh "
            "env.chatbot_prompt=…",
        )


def _find_broken_turn(reply: Reply) -> Failure | None:
    """Say why a chatbot's turn is none; one that a filter cut is a turn, also where nothing is left of it."""
    end = unfinished(reply)
    if end is None or end.outcome.failure is None:
        return None
    return _make_simulation_failure(end.outcome.failure.kind, "policy", end.outcome.failure.reason)


def _make_simulation_failure(kind: FailureKind, stage: str, reason: str) -> Failure:
    """What we stopped ourselves keeps its kind: it is no attempt of the row's."""
    if kind in (FailureKind.SHUTDOWN, FailureKind.CANCELLED):
        return Failure(kind, stage, reason)
    return Failure(FailureKind.SIMULATION_FAILED, stage, f"{kind}: {reason}")


def _check_known(name: str, choices: Any, field: str, what: str) -> None:
    if name not in choices:
        near = find_nearest(name, choices)
        raise TaskError(
            f"there is no such {what}",
            field=field,
            found=name,
            allowed=", ".join(near or list(choices)[:5]),
            remedy=f"did you mean {near[0]}?" if near else "",
        )
