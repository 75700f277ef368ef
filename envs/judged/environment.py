"""The judged environment: rows of one's own, one reply or fixed turns of the user, and every rubric's verdict on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gavel.envs.endings import is_cut, is_empty, unfinished
from gavel.envs.judged.criteria import (
    CRITERIA,
    CriteriaAsker,
    compute_earned_score,
    count_batches,
    make_plain_criterion,
    read_criteria,
)
from gavel.envs.judged.labels import PAIRS, PARTIAL, PASSES
from gavel.envs.judged.rules import RULES, RuleChecks, describe_worth, read_rules
from gavel.envs.judged.target import TURNS, check_schema, check_target
from gavel.envs.panels import PANELS, describe_panel
from gavel.envs.slot_texts import fill_slots, find_form, format_visible
from gavel.envs.types import (
    Check,
    EnvironmentInfo,
    Finish,
    Observe,
    Opening,
    Outcome,
    Result,
    Summary,
    Task,
    TaskError,
    Transcript,
)
from gavel.judges.form_types import FIELD_SOURCE_TARGET, RIVAL, RubricForm
from gavel.judges.pairs.asking import PairAnswer, ask_pair
from gavel.judges.pairs.rules import PAIR_SCORES
from gavel.judges.types import Judge, JudgeFailure, JudgeQuery
from gavel.models.codec import FieldError, record
from gavel.models.errors import ConfigError
from gavel.models.failures import Failure, FailureKind
from gavel.models.types import ChatModel, Message, Receipt

NAME = "judged"
TARGET_FORMAT = "judged"


@record
class JudgedConfig:
    """``rubrics`` are the bindings that grade each task, in the config every one that is declared; ``target`` is the
    kind of each field of a target (``{reference: "text?"}``), None for any; ``max_turns`` bounds the replies of one
    episode; ``instructions``: programs check each task's ``target.instructions`` too."""

    rubrics: tuple[str, ...] = ()
    target: Mapping[str, str] | None = field(default=None)
    max_turns: int = 1
    instructions: bool = False

    def __post_init__(self) -> None:
        if self.max_turns < 1:
            raise FieldError("max_turns", self.max_turns, "at least 1")

    @property
    def info(self) -> EnvironmentInfo:
        """What the environment needs."""
        first = self.rubrics[0] if self.rubrics else None
        return EnvironmentInfo(policy_turns=self.max_turns, binding=first, also_binds=self.rubrics[1:])


@dataclass(frozen=True, slots=True)
class GradedReply:
    """What one rubric says of a reply: its checks, and of one with criteria what each is worth; ``failed``: it says
    nothing; ``score`` is None where it says something, but not on each criterion.
    """

    checks: tuple[Check, ...]
    raw: str
    receipts: tuple[Receipt, ...]
    label: str = ""
    reasoning: str = ""
    flags: tuple[str, ...] = ()
    score: float | None = None
    worth: Mapping[str, Any] = field(default_factory=dict)
    failed: JudgeFailure | None = None
    votes: Mapping[str, Any] = field(default_factory=dict)
    pair: Mapping[str, Any] = field(default_factory=dict)


class JudgedEnvironment:
    """Every rubric grades every reply; see ``step``."""

    name = NAME

    def __init__(self, config: JudgedConfig, judge: Judge) -> None:
        self.info = config.info
        self._config, self._judge = config, judge
        self._schema = config.target or {}
        check_schema(self._schema)
        self._forms = {name: _require_form(judge, name) for name in config.rubrics}
        self._rules = RuleChecks() if config.instructions else None
        self._criteria = any(form.criteria is not None for form in self._forms.values())
        self.info = replace(self.info, count_questions=self._count_questions)
        self._needed = {
            source.removeprefix(FIELD_SOURCE_TARGET): form.name
            for form in self._forms.values()
            for slot, source in form.sources.items()
            if source.startswith(FIELD_SOURCE_TARGET) and slot not in form.optional
        }

    def parse_target(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Read a target of the config's schema.

        Raises:
            TaskError: names the field.
        """
        for name, form in self._forms.items():
            if RIVAL in form.sources.values():
                raise ConfigError(
                    "this rubric compares the replies of two runs",
                    field=f"judging.bindings.{name}.rubric",
                    found=form.name,
                    allowed="a pair whose second text is a field of the row, such as target.reference",
                    remedy=f"gavel duel RUN_A RUN_B rubrics.{name}.file=…",
                )
        target = check_target(raw, self._schema, self._needed)
        if self._criteria:
            read_criteria(target.get(CRITERIA))
        if self._rules is not None:
            read_rules(target)
        replies = len(target.get(TURNS, [])) + 1
        if replies > self._config.max_turns:
            raise TaskError(
                "this conversation is longer than an episode may be",
                field=f"target.{TURNS}",
                found=f"{replies} replies",
                allowed=f"at most {self._config.max_turns} (env.max_turns)",
                remedy=f"set env.max_turns={replies}",
            )
        return target

    async def open(self, task: Task) -> Opening:
        """Return the task's own messages, as they are."""
        return Opening(task.messages)

    async def step(self, task: Task, transcript: Transcript) -> Observe | Finish:
        """Say the user's next turn, or grade the whole.

        The outcome has one check for each rubric, by its name: the score of the label it gave, passed from ``PASSES``
        on. Its label is the one rubric's label; with several, or with criteria, it is ``passed`` or ``failed``, as all
        or not all passed, and ``partial`` where a criterion has no verdict: then there is no score. A reply that was
        cut or says nothing passes none and asks no judge. Where one rubric has no verdict, the outcome is ungraded and
        keeps the others' checks.

        Raises:
            TaskError: a rubric needs a text that the task lacks.
        """
        reply = transcript.messages[-1].reply
        assert reply is not None, "step is called after a policy's reply"
        if (broken := unfinished(reply)) is not None:
            return broken
        if is_cut(reply):
            return self._finish_gated("truncated", reply.finish_reason)
        if is_empty(reply) or not format_visible(transcript.messages[-1]):
            return self._finish_gated("no_answer", reply.finish_reason)
        turns = task.target.get(TURNS, [])
        if len(transcript.replies) <= len(turns):
            return Observe((Message("user", turns[len(transcript.replies) - 1]),))
        ruled = {} if self._rules is None else {RULES: await _check_rules(self._rules, task, transcript)}
        found = await asyncio.gather(
            *(self._grade_rubric(name, form, task, transcript) for name, form in self._forms.items())
        )
        return _make_finish(dict(zip(self._forms, found, strict=True)) | ruled)

    def summarize(self, results: Sequence[Result]) -> Summary:
        """Return the metrics of ``gavel.envs.judged.metrics``."""
        from gavel.envs.judged.metrics import summarize  # numpy is not needed to grade

        return summarize(results)

    async def _grade_rubric(self, name: str, form: RubricForm, task: Task, transcript: Transcript) -> GradedReply:
        if form.criteria is not None:
            return await self._grade_criteria(name, form, task, transcript)
        query = JudgeQuery(name, fill_slots(form, task, transcript, {}), prefix_key=task.digest)
        try:
            if form.pair is not None:
                return _make_pair_reply(name, await ask_pair(self._judge, query, form.pair))
            grade = await self._judge.grade(query)
        except JudgeFailure as failed:
            calls = tuple(receipt.call_id for receipt in failed.receipts)
            check = Check(name, passed=None, score=0.0, detail=str(failed), receipts=calls)
            return GradedReply(
                (check,), failed.raw or "", failed.receipts, failed=failed, votes=describe_panel(name, failed)
            )
        calls, score = tuple(receipt.call_id for receipt in grade.receipts), grade.score
        assert score is not None, "a rubric made of a form scores each of its labels"
        check = Check(
            name, passed=score >= PASSES, score=score, detail=f"judge: {grade.label} ({grade.parse})", receipts=calls
        )
        flags = tuple(grade.details.get("flags", ()))
        votes = describe_panel(name, grade)
        return GradedReply((check,), grade.raw, grade.receipts, grade.label, grade.reasoning, flags, score, votes=votes)

    async def _grade_criteria(self, name: str, form: RubricForm, task: Task, transcript: Transcript) -> GradedReply:
        criteria = read_criteria(task.target[CRITERIA])
        asker = CriteriaAsker(self._judge, name, form, task, transcript)
        checks = await asker.ask_criteria(criteria)
        failed = asker.failed
        if failed is None and all(check.passed is None for check in checks):
            failed = JudgeFailure(
                FailureKind.JUDGE_UNPARSEABLE, "no criterion has a readable verdict", tuple(asker.receipts)
            )
        met = [check.passed for check in checks if check.passed is not None]
        score = None
        if len(met) == len(criteria):
            score = compute_earned_score(
                [(one.points, one.veto, passed) for one, passed in zip(criteria, met, strict=True)]
            )
        worth = {one.id: make_plain_criterion(one) for one in criteria}
        label = _find_label([score])
        votes = asker.votes.make_details()
        return GradedReply(
            checks, "\n\n".join(asker.raw), tuple(asker.receipts), label, "", (), score, worth, failed, votes
        )

    def _count_questions(self, task: Task, binding: str) -> int:
        form = self._forms.get(binding)
        if form is None or form.criteria is None:
            return 2 if form is not None and form.pair is not None else 1
        return count_batches(len(task.target.get(CRITERIA, [])), form)

    def _finish_gated(self, label: str, finish_reason: str) -> Finish:
        detail = f"{label} (finish_reason {finish_reason}): no judge was asked"
        names = (*self._forms, *((RULES,) if self._rules is not None else ()))
        checks = tuple(Check(name, passed=False, score=0.0, detail=detail) for name in names)
        return Finish(Outcome(label, checks, {"rule": label}))


def build(config: JudgedConfig, judge: Judge, services: Mapping[str, ChatModel]) -> JudgedEnvironment:  # noqa: ARG001
    """Make the environment; it calls no service besides its judges.

    Raises:
        ConfigError: no rubric is named, or one is no rubric of slots that this environment can fill.
    """
    if not config.rubrics:
        raise ConfigError(
            "no rubric grades these tasks",
            field="env.rubrics",
            found="none",
            allowed="at least one binding",
            remedy="name a rubric of your own: rubrics.helpful.file=helpful.yaml; `gavel new rubric helpful` "
            "writes one",
        )
    if config.instructions and RULES in config.rubrics:
        raise ConfigError(
            "a rubric and the checks of instructions have one name",
            field=f"judging.bindings.{RULES}",
            remedy="give the binding another name, or set env.instructions=false",
        )
    return JudgedEnvironment(config, judge)


async def _check_rules(rules: RuleChecks, task: Task, transcript: Transcript) -> GradedReply:
    """Return what programs find of the newest reply; without its thinking, as everywhere."""
    target = read_rules(task.target)
    checks = await rules.check_reply(target, format_visible(transcript.messages[-1]))
    passed = [check.passed for check in checks]
    failed, score = None, None
    if None in passed:
        detail = next(check.detail for check in checks if check.passed is None)
        failed = JudgeFailure(FailureKind.VERIFIER_ERROR, detail)
    else:
        items = zip(target.instructions, passed, strict=True)
        score = compute_earned_score([(item.weight, False, bool(one)) for item, one in items])
    return GradedReply(checks, "", (), _find_label([score]), score=score, worth=describe_worth(target), failed=failed)


def _require_form(judge: Judge, name: str) -> RubricForm:
    rubric = judge.rubric(name)
    if (form := find_form(rubric)) is None:
        raise ConfigError(
            "this rubric does not say where the texts of its slots come from",
            field=f"judging.bindings.{name}.rubric",
            found=rubric.profile,
            allowed="a rubric of a file, or of a plugin that makes it of one",
            remedy=f"rubrics.{name}.file=FILE.yaml",
        )
    return form


def _make_finish(found: Mapping[str, GradedReply]) -> Finish:
    receipts = tuple(receipt for one in found.values() for receipt in one.receipts)
    checks = tuple(check for one in found.values() for check in one.checks)
    known = {name: one for name, one in found.items() if one.failed is None}
    details: dict[str, Any] = {
        "labels": {name: one.label for name, one in known.items()},
        "scores": {name: one.score for name, one in known.items() if one.score is not None},
        "reasons": {name: one.reasoning for name, one in known.items() if one.reasoning},
        "judge_reply": "\n\n".join(
            f"{name}: {one.raw}" if len(found) > 1 else one.raw for name, one in found.items() if name != RULES
        ),
    }
    if votes := {name: panel for one in found.values() for name, panel in one.votes.get(PANELS, {}).items()}:
        details[PANELS] = votes
    if worth := {name: one.worth for name, one in found.items() if one.worth}:
        details["criteria"] = worth
    if pairs := {name: one.pair for name, one in found.items() if one.pair}:
        details[PAIRS] = pairs
    if flags := {name: list(one.flags) for name, one in known.items() if one.flags}:
        details["judge_flags"] = flags
    failed = next((one.failed for one in found.values() if one.failed is not None), None)
    if failed is not None:
        stage = "verifier" if failed.kind is FailureKind.VERIFIER_ERROR else "judge"
        return Finish(Outcome("", checks, details, Failure(failed.kind, stage, failed.reason)), receipts=receipts)
    (label, *others) = details["labels"].values()
    if others:
        label = _find_label([one.score for one in found.values()])
    return Finish(Outcome(label, checks, details), receipts=receipts)


def _make_pair_reply(name: str, answer: PairAnswer) -> GradedReply:
    """Return what both orders say: the label of the pair's rule and its score; each order's own stays with it."""
    label, score = answer.grade.winner, PAIR_SCORES[answer.grade.winner]
    calls = tuple(receipt.call_id for receipt in answer.receipts)
    said = " and ".join(answer.grade.orders) + (", by its place" if answer.grade.position_flip else "")
    shown, _ = answer.orders
    return GradedReply(
        (Check(name, passed=score >= PASSES, score=score, detail=f"judge: {said}", receipts=calls),),
        "\n\n".join(one.raw for one in answer.orders),
        answer.receipts,
        label,
        shown.reasoning,
        tuple(dict.fromkeys(flag for one in answer.orders for flag in one.details.get("flags", ()))),
        score,
        pair={"orders": list(answer.grade.orders), "position_flip": answer.grade.position_flip},
        votes=describe_panel(name, shown),
    )


def _find_label(scores: Sequence[float | None]) -> str:
    """Return the label of a reply that has these scores; one that is missing says neither passed nor failed."""
    if any(score is None for score in scores):
        return PARTIAL
    return "passed" if all(score is not None and score >= PASSES for score in scores) else "failed"
