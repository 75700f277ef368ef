"""The judged environment: rows of one's own, one reply or fixed turns of the user, and every rubric's verdict on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from gavel.envs.endings import says_nothing, unfinished, was_cut
from gavel.envs.judged.target import TURNS, check_schema, check_target
from gavel.envs.slot_texts import fill_slots, form_of, say_visible
from gavel.envs.types import Check, EnvironmentInfo, Finish, Observe, Opening, Outcome, Result, Summary, Task, TaskError, Transcript
from gavel.judges.form_types import FIELD_SOURCE_TARGET, RubricForm
from gavel.judges.types import Grade, Judge, JudgeFailure, JudgeQuery
from gavel.models.codec import FieldError, record
from gavel.models.errors import ConfigError
from gavel.models.failures import Failure
from gavel.models.types import ChatModel, Message

NAME = "judged"
TARGET_FORMAT = "judged"
PASSES = 0.5
"""The score from which a reply passes a rubric."""
GATES = ("truncated", "no_answer")
"""Labels of replies that no judge is asked about: cut at the limit of tokens, or nothing is said."""


@record
class JudgedConfig:
    """``rubrics`` are the bindings that grade each task, in the config every one that is declared; ``target`` is the kind of each field
    of a target (``{reference: "text?"}``), None for any; ``max_turns`` bounds the replies of one episode."""

    rubrics: tuple[str, ...] = ()
    target: Mapping[str, str] | None = field(default=None)
    max_turns: int = 1

    def __post_init__(self) -> None:
        if self.max_turns < 1:
            raise FieldError("max_turns", self.max_turns, "at least 1")

    @property
    def info(self) -> EnvironmentInfo:
        """What the environment needs."""
        first = self.rubrics[0] if self.rubrics else None
        return EnvironmentInfo(policy_turns=self.max_turns, binding=first, also_binds=self.rubrics[1:])


class JudgedEnvironment:
    """Every rubric grades every reply; see ``step``."""

    name = NAME

    def __init__(self, config: JudgedConfig, judge: Judge) -> None:
        self.info = config.info
        self._config, self._judge = config, judge
        self._schema = config.target or {}
        check_schema(self._schema)
        self._forms = {name: _form_of(judge, name) for name in config.rubrics}
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
        target = check_target(raw, self._schema, self._needed)
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

        The outcome has one check for each rubric, by its name: the score of the label it gave, passed from ``PASSES`` on. Its label is
        the one rubric's label; with several it is ``passed`` or ``failed``, as all or not all passed. A reply that was cut or says
        nothing passes none and asks no judge. Where one rubric has no verdict, the outcome is ungraded and keeps the others' checks.

        Raises:
            TaskError: a rubric needs a text that the task lacks.
        """
        reply = transcript.messages[-1].reply
        assert reply is not None, "step is called after a policy's reply"
        if (broken := unfinished(reply)) is not None:
            return broken
        if was_cut(reply):
            return self._gate("truncated", reply.finish_reason)
        if says_nothing(reply) or not say_visible(transcript.messages[-1]):
            return self._gate("no_answer", reply.finish_reason)
        turns = task.target.get(TURNS, [])
        if len(transcript.replies) <= len(turns):
            return Observe((Message("user", turns[len(transcript.replies) - 1]),))
        slots = {name: fill_slots(form, task, transcript, {}) for name, form in self._forms.items()}
        return _finish(dict(zip(slots, await asyncio.gather(*(self._ask(name, slots[name], task) for name in slots)), strict=True)))

    def summarize(self, results: Sequence[Result]) -> Summary:
        """Return the metrics of ``gavel.envs.judged.metrics``."""
        from gavel.envs.judged.metrics import summarize  # numpy is not needed to grade

        return summarize(results)

    async def _ask(self, name: str, slots: Mapping[str, str], task: Task) -> Grade | JudgeFailure:
        try:
            return await self._judge.grade(JudgeQuery(name, slots, prefix_key=task.digest))
        except JudgeFailure as failed:
            return failed

    def _gate(self, label: str, finish_reason: str) -> Finish:
        detail = f"{label} (finish_reason {finish_reason}): no judge was asked"
        checks = tuple(Check(name, passed=False, score=0.0, detail=detail) for name in self._forms)
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
            remedy="name a rubric of your own: rubrics.helpful.file=helpful.yaml; `gavel new rubric helpful` writes one",
        )
    return JudgedEnvironment(config, judge)


def _form_of(judge: Judge, name: str) -> RubricForm:
    rubric = judge.rubric(name)
    if (form := form_of(rubric)) is None:
        raise ConfigError(
            "this rubric does not say where the texts of its slots come from",
            field=f"judging.bindings.{name}.rubric",
            found=rubric.profile,
            allowed="a rubric of a file, or of a plugin that makes it of one",
            remedy=f"rubrics.{name}.file=FILE.yaml",
        )
    return form


def _finish(found: Mapping[str, Grade | JudgeFailure]) -> Finish:
    receipts = tuple(receipt for one in found.values() for receipt in one.receipts)
    checks = tuple(_check(name, one) for name, one in found.items())
    grades = {name: one for name, one in found.items() if isinstance(one, Grade)}
    details: dict[str, Any] = {
        "labels": {name: grade.label for name, grade in grades.items()},
        "reasons": {name: grade.reasoning for name, grade in grades.items() if grade.reasoning},
        "judge_reply": "\n\n".join(f"{name}: {one.raw}" if len(found) > 1 else str(one.raw) for name, one in found.items()),
    }
    if flags := {name: list(grade.details["flags"]) for name, grade in grades.items() if "flags" in grade.details}:
        details["judge_flags"] = flags
    failed = next((one for one in found.values() if isinstance(one, JudgeFailure)), None)
    if failed is not None:
        return Finish(Outcome("", checks, details, Failure(failed.kind, "judge", failed.reason)), receipts=receipts)
    (label, *others) = details["labels"].values()
    if others:
        label = "passed" if all(check.passed for check in checks) else "failed"
    return Finish(Outcome(label, checks, details), receipts=receipts)


def _check(name: str, one: Grade | JudgeFailure) -> Check:
    calls = tuple(receipt.call_id for receipt in one.receipts)
    if isinstance(one, JudgeFailure):
        return Check(name, passed=None, score=0.0, detail=str(one), receipts=calls)
    score = one.score or 0.0
    return Check(name, passed=score >= PASSES, score=score, detail=f"judge: {one.label} ({one.parse})", receipts=calls)
