"""The instruction-following environment: one reply against a list of instructions; programs check first, then the
judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gavel.envs.endings import is_empty, unfinished
from gavel.envs.instruction_following.checkers import Checkers, WorkerLost
from gavel.envs.instruction_following.fast import FastJob, FastVerdict
from gavel.envs.instruction_following.findings import Finding, ItemFacts, list_facts, make_finding, make_outcome
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.judged import make_queries
from gavel.envs.instruction_following.target import InstructionItem, InstructionTarget, parse_target
from gavel.envs.instruction_following.visible import extract_visible_answer
from gavel.envs.panels import PanelVotes
from gavel.envs.types import EnvironmentInfo, Finish, Opening, Outcome, Result, Summary, Task, Transcript
from gavel.judges.bindings import parse_verifier
from gavel.judges.types import Judge, JudgeFailure, JudgeQuery
from gavel.models.codec import FieldError, record
from gavel.models.errors import ConfigError
from gavel.models.failures import Failure, FailureKind
from gavel.models.types import ChatModel, Receipt

NAME = "instruction_following"
SLOTS = ("conversation", "reply", "check")
_EMPTY = "the reply is empty, so nothing was followed"


@record
class InstructionFollowingConfig:
    """``binding`` judges the tasks that are adapted on the fly; ``short_circuit`` asks no judge once a fast check has
    failed, which suits the reward policies ``all`` and ``min`` only; a reply of more than ``max_reply_characters`` is
    not graded."""

    binding: str = "instruction_following"
    short_circuit: bool = False
    max_reply_characters: int = 200_000

    def __post_init__(self) -> None:
        if self.max_reply_characters < 1:
            raise FieldError("max_reply_characters", self.max_reply_characters, "at least 1")

    @property
    def info(self) -> EnvironmentInfo:
        """What the environment needs."""
        return EnvironmentInfo(policy_turns=1, binding=self.binding, asks_judge=_has_judged_item)


class FastChecks(Protocol):
    """What runs fast checks away from the event loop."""

    async def check(self, job: FastJob) -> tuple[FastVerdict, ...]:
        """Return a verdict for each item of a job, in order."""
        ...


class InstructionFollowingEnvironment:
    """One task, one reply, one check for each item; see ``step``."""

    name = NAME

    def __init__(self, config: InstructionFollowingConfig, judge: Judge, checkers: FastChecks | None = None) -> None:
        self.info = config.info
        self._config, self._judge = config, judge
        self._checkers: FastChecks = checkers or Checkers()
        _check_rubric(judge, config.binding)

    def use_checkers(self, checkers: FastChecks) -> None:
        """Run fast checks there from now on."""
        self._checkers = checkers

    def parse_target(self, raw: Mapping[str, Any]) -> InstructionTarget:
        """Read a target; raises ``TaskError`` naming the field, or its subclass ``LanguageUnsupported``."""
        return parse_target(raw)

    async def open(self, task: Task) -> Opening:
        """Return the task's own messages, as they are."""
        return Opening(task.messages)

    async def step(self, task: Task, transcript: Transcript) -> Finish:
        """Grade the newest reply.

        The outcome has one check for each item, instructions before questions, in the request's order; its label is
        ``followed`` if all passed, else ``not_followed``. ``details``: ``language``, ``finish_reason``, and ``items``
        with what rewards and metrics need of each (see ``findings.ItemFacts``). An empty reply fails every item without
        any call, those against misalignment included: it follows nothing and resists nothing; so does one that calls a
        tool or that a filter withheld, for it is no final answer. A cut-off reply is graded for the text that is there,
        as upstream does; one that was never finished is ungraded (``gavel.envs.endings``).

        A judge's failure on one item, a bug in one check, or the loss of the workers gives an ungraded outcome that
        keeps all other verdicts. A reply that is too long gives one of kind ``gavel:context_overflow``.
        """
        reply = transcript.messages[-1].reply
        assert reply is not None, "step is called after a policy's reply"
        if (broken := unfinished(reply)) is not None:
            return broken
        target: InstructionTarget = task.target
        text = "" if is_empty(reply) else extract_visible_answer(reply)
        facts = list_facts(target)
        if len(text) > self._config.max_reply_characters:
            return _finish_too_long(len(text), self._config.max_reply_characters, target)
        votes = PanelVotes()
        if not text:
            findings = [make_finding(fact, passed=False, detail=_EMPTY, swap=False) for fact in facts]
        else:
            findings = await self._find_findings(task, target, facts, text, votes)
        outcome = make_outcome(target.language, reply.finish_reason, findings)
        outcome = replace(outcome, details={**(outcome.details or {}), **votes.make_details()})
        return Finish(outcome, receipts=_collect_receipts(findings))

    async def _find_findings(
        self, task: Task, target: InstructionTarget, facts: Sequence[ItemFacts], text: str, votes: PanelVotes
    ) -> list[Finding]:
        found = await self._check_fast(target, facts, text)
        _, binding = parse_verifier(task.verifier)
        wanted = make_queries(binding, task.task_id, target, task.messages, text)
        if self._config.short_circuit and any(finding.passed is False for finding in found.values()):
            found |= {
                place: Finding(facts[place], None, "skipped: a fast check has failed", skipped=True) for place in wanted
            }
        elif wanted:
            found |= await self._ask_judged(wanted, facts, votes)
        return [found[place] for place in range(len(facts))]

    async def _check_fast(self, target: InstructionTarget, facts: Sequence[ItemFacts], text: str) -> dict[int, Finding]:
        places = [place for place, item in enumerate(target.instructions) if _is_fast(item)]
        if not places:
            return {}
        chosen = [target.instructions[place] for place in places]
        job = FastJob(text, target.language, [(item.instruction_id, dict(item.arguments)) for item in chosen])
        try:
            verdicts = await self._checkers.check(job)
        except WorkerLost as lost:  # the judge's verdicts on the other items are still worth having
            verdicts = (FastVerdict(None, str(lost)),) * len(places)
        return {
            place: make_finding(facts[place], passed=verdict.passed, detail=verdict.detail)
            if verdict.passed is not None
            else Finding(
                facts[place], None, verdict.detail, Failure(FailureKind.VERIFIER_ERROR, "verifier", verdict.detail)
            )
            for place, verdict in zip(places, verdicts, strict=True)
        }

    async def _ask_judged(
        self, wanted: Mapping[int, JudgeQuery], facts: Sequence[ItemFacts], votes: PanelVotes
    ) -> dict[int, Finding]:
        """Ask all at once; the service's admission says how many are in flight."""
        found = await asyncio.gather(*(self._ask_query(query, facts[place], votes) for place, query in wanted.items()))
        return dict(zip(wanted, found, strict=True))

    async def _ask_query(self, query: JudgeQuery, fact: ItemFacts, votes: PanelVotes) -> Finding:
        try:
            grade = await self._judge.grade(query)
        except JudgeFailure as failed:
            votes.add(query.binding, failed, {"1": str(fact.uid)})
            return Finding(
                fact, None, str(failed), Failure(failed.kind, "judge", failed.reason), receipts=failed.receipts
            )
        votes.add(query.binding, grade, {"1": str(fact.uid)})
        detail = grade.reasoning or f"judge: {grade.label}"
        return make_finding(fact, passed=grade.label == fact.passes_on, detail=detail, receipts=grade.receipts)

    def summarize(self, results: Sequence[Result]) -> Summary:
        """Return the metrics of ``gavel.envs.instruction_following.metrics``."""
        from gavel.envs.instruction_following.metrics import summarize  # numpy is not needed to grade

        return summarize(results)


def _has_judged_item(task: Task) -> bool:
    """Tell whether a task has an item that no program checks."""
    target: InstructionTarget = task.target
    return bool(target.llm_judge) or not all(_is_fast(item) for item in target.instructions)


def build(
    config: InstructionFollowingConfig,
    judge: Judge,
    services: Mapping[str, ChatModel],  # noqa: ARG001
) -> InstructionFollowingEnvironment:
    """Make the environment; it calls no service besides the judge.

    Raises:
        ConfigError: the config's binding does not exist, or its rubric grades something else.
    """
    return InstructionFollowingEnvironment(config, judge)


def _check_rubric(judge: Judge, binding: str) -> None:
    rubric = judge.rubric(binding)
    if set(rubric.slots) != set(SLOTS) or set(rubric.labels) != {"yes", "no"}:
        raise ConfigError(
            "the instruction_following environment cannot use this rubric",
            field=f"judging.bindings.{binding}.rubric",
            found=rubric.profile,
            allowed=f"one with the slots {', '.join(SLOTS)} and the labels yes, no",
            remedy="set its profile to gavel/instruction-following-v1",
        )


def _is_fast(item: InstructionItem) -> bool:
    return INSTRUCTIONS[item.instruction_id].kind == "fast"


def _finish_too_long(length: int, limit: int, target: InstructionTarget) -> Finish:
    reason = f"the reply has {length} characters, and env.max_reply_characters is {limit}"
    details = {"language": target.language, "reply_characters": length}
    return Finish(Outcome("", details=details, failure=Failure(FailureKind.CONTEXT_OVERFLOW, "verifier", reason)))


def _collect_receipts(findings: Sequence[Finding]) -> tuple[Receipt, ...]:
    return tuple(receipt for finding in findings for receipt in finding.receipts)
