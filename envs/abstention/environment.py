"""The abstention environment: one reply, gates, rules, and where these do not decide, one question to the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gavel.envs.abstention.extraction import Extraction, extract_answer
from gavel.envs.abstention.rules import PROFILES, Rule, apply_rules, list_rules
from gavel.envs.abstention.target import Target, parse_target
from gavel.envs.endings import unfinished
from gavel.envs.panels import describe_panel
from gavel.envs.slot_texts import fill_slots, find_form
from gavel.envs.types import Check, EnvironmentInfo, Finish, Opening, Outcome, Result, Summary, Task, Transcript
from gavel.judges.bindings import parse_verifier
from gavel.judges.controls.abstention import LABELS as VERDICTS
from gavel.judges.controls.abstention import QUESTION_SLOTS
from gavel.judges.references import write_references
from gavel.judges.types import Grade, Judge, JudgeFailure, JudgeQuery, Rubric
from gavel.models.codec import record
from gavel.models.errors import ConfigError, find_nearest
from gavel.models.failures import Failure
from gavel.models.texts.textwork import run_on_text
from gavel.models.types import ChatModel, Receipt

NAME = "abstention"
LABELS = (*VERDICTS, "truncated", "no_answer")


@record
class AbstentionConfig:
    """``binding`` judges the tasks that are adapted on the fly; ``exact_match_rule`` lets the strict profile call
    equality with the reference correct without a judge (the native profile has no such rule)."""

    binding: str = "abstention"
    exact_match_rule: bool = True

    @property
    def info(self) -> EnvironmentInfo:
        """What the environment needs."""
        return EnvironmentInfo(policy_turns=1, binding=self.binding)


class AbstentionEnvironment:
    """One question, one reply, one verdict; see ``step``."""

    name = NAME

    def __init__(self, config: AbstentionConfig, judge: Judge) -> None:
        self.info = config.info
        self._config, self._judge = config, judge
        self._rules: dict[str, tuple[Rule, ...]] = {}
        self._get_rules(config.binding)

    def parse_target(self, raw: Mapping[str, Any]) -> Target:
        """Read ``{question, reference}``, ``{question, references}`` or ``{question, answerable: false}``; raises
        ``TaskError``.
        """
        return parse_target(raw)

    async def open(self, task: Task) -> Opening:
        """Return the task's own messages, as they are."""
        return Opening(task.messages)

    async def step(self, task: Task, transcript: Transcript) -> Finish:
        """Grade the newest reply.

        The label is one of ``LABELS``. Details: ``answer`` and ``boxed``; ``rule`` where no judge was asked, else
        ``parse``, ``judge_reply`` and, where the answer looked hostile, ``judge_flags``; ``abstention`` (``explicit``
        or ``judged``) where the policy abstained. Where no answer is right, to abstain is ``correct`` (with
        ``abstention``), and any answer ``incorrect``. A reply that was never finished is ungraded
        (``gavel.envs.endings``). A judge's failure gives an ungraded outcome that keeps the answer and the raw text.
        """
        reply = transcript.messages[-1].reply
        assert reply is not None, "step is called after a policy's reply"
        if (broken := unfinished(reply)) is not None:
            return broken
        extraction = await run_on_text(len(reply.text), extract_answer, reply)
        if extraction.answer is None:
            assert extraction.gate is not None
            return _finish_gated(extraction.gate, reply.finish_reason)
        _, binding = parse_verifier(task.verifier)
        target: Target = task.target
        answer = extraction.answer
        decided = await run_on_text(len(answer), apply_rules, self._get_rules(binding), answer, target.references)
        if decided is not None:
            return _finish_ruled(extraction, decided.label, decided.rule, abstain=not target.references)
        slots = self._make_slots(task, transcript, binding, answer)
        try:
            grade = await self._judge.grade(JudgeQuery(binding, slots, prefix_key=target.question))
        except JudgeFailure as failed:
            return _finish_ungraded(extraction, failed, binding)
        return _finish_judged(extraction, grade, binding, abstain=not target.references)

    def summarize(self, results: Sequence[Result]) -> Summary:
        """Return the metrics of ``gavel.envs.abstention.metrics``."""
        from gavel.envs.abstention.metrics import summarize  # numpy is not needed to grade

        return summarize(results)

    def remarks(self, results: Sequence[Result]) -> tuple[str, ...]:
        """Say how many verdicts the judge did not give; see ``gavel.envs.abstention.metrics``."""
        from gavel.envs.abstention.metrics import remarks

        return remarks(results)

    def _get_rules(self, binding: str) -> tuple[Rule, ...]:
        rules = self._rules.get(binding)
        if rules is None:
            rubric = self._judge.rubric(binding)
            _check_rubric(rubric, binding)
            rules = self._rules[binding] = list_rules(rubric.profile, exact_match=self._config.exact_match_rule)
        return rules

    def _make_slots(self, task: Task, transcript: Transcript, binding: str, answer: str) -> Mapping[str, str]:
        rubric, target = self._judge.rubric(binding), task.target
        slots = {
            "question": target.question,
            "reference": write_references(rubric.profile, target.references),
            "answer": answer,
        }
        if (form := find_form(rubric)) is None:
            return slots
        own = {f"target.{name}": slots[name] for name in ("question", "reference")}
        return fill_slots(form, task, transcript, {**own, "reply.answer": answer, "reply.visible": answer})


def _check_rubric(rubric: Rubric, binding: str) -> None:
    """Refuse a rubric whose labels or slots are not those of answers to questions.

    Raises:
        ConfigError: names the labels or slots, and the profiles that fit.
    """
    wanted = (("labels", rubric.labels, VERDICTS), ("slots", rubric.slots, QUESTION_SLOTS))
    for what, found, right in wanted:
        if set(found) != set(right) and not (what == "slots" and find_form(rubric) is not None):
            near = find_nearest(rubric.profile, PROFILES)
            raise ConfigError(
                f"the abstention environment cannot use this rubric: its {what} are others",
                field=f"judging.bindings.{binding}.rubric",
                found=f"{rubric.profile}: {', '.join(found)}",
                allowed=f"{', '.join(PROFILES)}, or a rubric with the {what} {', '.join(right)}",
                remedy=f"set its profile to {(near or PROFILES)[0]}",
            )


def build(config: AbstentionConfig, judge: Judge, services: Mapping[str, ChatModel]) -> AbstentionEnvironment:  # noqa: ARG001
    """Make the environment; it calls no service besides the judge.

    Raises:
        ConfigError: the config's binding does not exist, or its rubric grades something else.
    """
    return AbstentionEnvironment(config, judge)


def _finish_gated(gate: str, finish_reason: str) -> Finish:
    check = Check("final_answer", passed=False, score=0.0, detail=f"{gate} (finish_reason {finish_reason})")
    return Finish(Outcome(gate, (check,), {"answer": None, "rule": gate}))


def _choose_label(label: str, *, abstain: bool) -> str:
    """Return the outcome's label: where one ought to ``abstain``, having done so is right."""
    return "correct" if abstain and label == "abstained" else label


def _finish_ruled(extraction: Extraction, found: str, rule: str, *, abstain: bool) -> Finish:
    details: dict[str, Any] = {"answer": extraction.answer, "boxed": extraction.boxed, "rule": rule}
    if found == "abstained":
        details["abstention"] = "explicit"
    label = _choose_label(found, abstain=abstain)
    return Finish(Outcome(label, (_ANSWERED, _make_verdict(label, f"rule {rule}", ())), details))


def _finish_judged(extraction: Extraction, grade: Grade, binding: str, *, abstain: bool) -> Finish:
    found = grade.label
    assert found in VERDICTS, f"the judge gave the label {found}"
    details: dict[str, Any] = {
        "answer": extraction.answer,
        "boxed": extraction.boxed,
        "parse": grade.parse,
        "judge_reply": grade.raw,
        **describe_panel(binding, grade),
    }
    if found == "abstained" or (
        abstain and found == "correct"
    ):  # that the question has no answer is all that can be right of it
        details["abstention"] = "judged"
    label = _choose_label(found, abstain=abstain)
    if flags := grade.details.get("flags"):
        details["judge_flags"] = list(flags)
    checks = (_ANSWERED, _make_verdict(label, f"judge: {found} ({grade.parse})", grade.receipts))
    return Finish(Outcome(label, checks, details), receipts=grade.receipts)


def _finish_ungraded(extraction: Extraction, failed: JudgeFailure, binding: str) -> Finish:
    check = Check("verdict", passed=None, score=0.0, detail=str(failed), receipts=_call_ids(failed.receipts))
    details: dict[str, Any] = {"answer": extraction.answer, "boxed": extraction.boxed, "judge_reply": failed.raw}
    details |= describe_panel(binding, failed)
    outcome = Outcome("", (_ANSWERED, check), details, Failure(failed.kind, "judge", failed.reason))
    return Finish(outcome, receipts=failed.receipts)


_ANSWERED = Check("final_answer", passed=True, score=1.0)


def _make_verdict(label: str, detail: str, receipts: tuple[Receipt, ...]) -> Check:
    correct = label == "correct"
    return Check("verdict", passed=correct, score=float(correct), detail=detail, receipts=_call_ids(receipts))


def _call_ids(receipts: tuple[Receipt, ...]) -> tuple[str, ...]:
    return tuple(receipt.call_id for receipt in receipts)
