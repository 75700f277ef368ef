"""The judge: renders a query with its bound rubric, asks the service, checks and reads the reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import cast

from gavel.judges.answers import get_current_log, make_answer_key
from gavel.judges.bindings import Binding, add_members, advise_limit
from gavel.judges.panels import ask_panel
from gavel.judges.types import (
    Grade,
    JudgeFailure,
    JudgeQuery,
    Rubric,
    StoredAnswer,
    TokenGuarding,
    Unparseable,
    Verdict,
)
from gavel.models.calls.incomplete import describe_incomplete
from gavel.models.calls.quirks import LENGTH, STOP, finish_word
from gavel.models.errors import ConfigError, find_nearest
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.texts.textwork import LONGEST, describe_too_long, run_on_text
from gavel.models.texts.thinking import split_reply
from gavel.models.types import (
    ChatModel,
    ChatRequest,
    Completion,
    Confirming,
    Message,
    Receipt,
    SpecialTokens,
    TellingTokens,
)

RETRY_SAMPLE = 1_000_000
"""Added to the sample for each parse retry: a draw of its own, which no wanted sample is ever equal to."""


class BoundJudges:
    """Grades queries with the bound rubrics.

    Args:
        bindings: the bindings by name.
        models: gives a service's model by the service's name.
        fresh: ask the model each time; no cache, no sharing (probes, flip rates, canaries).
    """

    def __init__(
        self, bindings: Mapping[str, Binding], models: Callable[[str], ChatModel], *, fresh: bool = False
    ) -> None:
        self._bindings, self._models, self._fresh = add_members(bindings), models, fresh
        self._guarded: dict[tuple[str, SpecialTokens], Rubric] = {}
        self._guarding: dict[tuple[str, type], bool] = {}  # a test of a protocol takes as long as a whole prompt

    def rubric(self, binding: str) -> Rubric:
        """Return the rubric a binding grades with.

        Raises:
            ConfigError: there is no such binding.
        """
        return self._get_binding(binding).rubric

    async def grade(self, query: JudgeQuery) -> Grade:
        """Return the verdict on one query.

        A reply that cannot be read is asked for again (``query.retries`` times), each time as a fresh draw of its own.
        A question that the row's answer log knows is read again without a call.

        Raises:
            JudgeFailure: no verdict; says kind and reason, keeps the raw text and the receipts of all calls.
            ConfigError: there is no such binding.
            InputError: the slots are not the rubric's.
        """
        binding = self._get_binding(query.binding)
        rubric = binding.rubric
        if binding.rule is not None:
            asks = {member.service: self._ask_as(member.name) for member in binding.members}
            return await ask_panel(binding.rule, rubric, query, asks)
        key = make_answer_key(query, rubric.digest)
        return await _replay_answer(rubric, query, key) or await self._ask_model(binding, query, key)

    def _ask_as(self, name: str) -> Callable[[JudgeQuery], Awaitable[Grade]]:
        """Return what asks one member of a panel; a failure that the panel may go on without is kept like an answer, so
        that every receipt of a row stands in its journal.
        """

        async def ask_member(query: JudgeQuery) -> Grade:
            query = replace(query, binding=name)
            try:
                return await self.grade(query)
            except JudgeFailure as failed:
                digest = self._get_binding(name).rubric.digest
                key = make_answer_key(query, digest)
                if failed.receipts and failed.receipts != _list_earlier_receipts(key):
                    raw = failed.raw or ""
                    _keep_answer(StoredAnswer(key, name, query.slots, digest, raw, failed.receipts, unread=True))
                raise

        return ask_member

    def _get_binding(self, name: str) -> Binding:
        try:
            return self._bindings[name]
        except KeyError:
            near = find_nearest(name, self._bindings)
            raise ConfigError(
                "there is no such binding",
                field=name,
                allowed=", ".join(self._bindings) or "(none is declared)",
                remedy=f"did you mean `{near[0]}`?" if near else "",
            ) from None

    async def _ask_model(self, binding: Binding, query: JudgeQuery, key: str) -> Grade:
        model = self._models(binding.service)
        rubric, note = await self._guard_rubric(binding, model)
        length = _count_characters(query.slots.values())
        messages = await run_on_text(length, rubric.render, query.slots)
        receipts = _list_earlier_receipts(key)
        for retry in range(query.retries + 1):
            try:
                request = self._make_request(rubric, query, messages, retry=retry)
                completion = _add_note(await _complete_once(model, request), note)
                reply, receipts = completion.reply, (*receipts, completion.receipt)
                _keep_answer(StoredAnswer(key, query.binding, query.slots, rubric.digest, reply.text, receipts))
                verdict = await run_on_text(len(reply.text), rubric.parse, reply.text)
                if binding.judge is not None and binding.judge.cache and isinstance(model, Confirming):
                    model.confirm(request, completion)  # only what could be read is kept
                return await _make_grade(rubric, query, verdict, reply.text, receipts)
            except Unparseable as failed:
                problem, raw = str(failed), reply.text
            except ModelFailure as failed:
                receipts, problem, raw = (*receipts, *failed.receipts), failed.reason, failed.raw or ""
                if failed.kind is not FailureKind.JUDGE_UNPARSEABLE:
                    raise JudgeFailure(failed.kind, failed.reason, receipts, failed.raw) from failed
                if receipts and finish_word(receipts[-1].finish_reason or "") == LENGTH:
                    problem = f"{problem}; {advise_limit(binding)}"
                _keep_answer(StoredAnswer(key, query.binding, query.slots, rubric.digest, raw, receipts, unread=True))
        reason = f"{query.retries + 1} replies in a row without a verdict; the last: {problem}"
        raise JudgeFailure(FailureKind.JUDGE_UNPARSEABLE, reason, receipts, raw)

    async def _guard_rubric(self, binding: Binding, model: ChatModel) -> tuple[Rubric, str]:
        """Return the rubric for the model that is asked, and what its receipts say of the model's special tokens."""
        rubric = binding.rubric
        kind = (binding.name, type(model))
        if kind not in self._guarding:
            guards = isinstance(rubric, TokenGuarding) and rubric.guards_tokens
            self._guarding[kind] = guards and isinstance(model, TellingTokens)
        if not self._guarding[kind]:
            return rubric, ""
        found = await cast("TellingTokens", model).read_special_tokens()
        if not found.tokens:
            return rubric, ""
        if (key := (binding.name, found)) not in self._guarded:
            self._guarded[key] = cast("TokenGuarding", rubric).guard_tokens(found.tokens)
        return self._guarded[key], found.note

    def _make_request(
        self, rubric: Rubric, query: JudgeQuery, messages: tuple[Message, ...], *, retry: int
    ) -> ChatRequest:
        return ChatRequest(
            messages,
            "judge",
            rubric.sampling,
            rubric.response_format,
            sample=query.sample + retry * RETRY_SAMPLE,
            fresh=retry > 0 or self._fresh,
            prefix_key=f"{rubric.digest}/{query.prefix_key}",
        )


async def _complete_once(model: ChatModel, request: ChatRequest) -> Completion:
    """Ask once; a reply that is not whole cannot hold a verdict, whatever the kind of model.

    Raises:
        ModelFailure: ``judge_unparseable`` for such a reply, or what the call failed with.
    """
    completion = await model.complete(request)
    reply, receipt = completion.reply, completion.receipt
    problem = ""
    if reply.finish_reason != STOP:
        problem = describe_incomplete(reply.finish_reason, reply.text, reply.reasoning, reply.usage)
    elif len(reply.text) > LONGEST:
        problem = describe_too_long(len(reply.text))
    elif not reply.text.strip():
        problem = "the reply is empty"
    elif reply.think_prefilled and not split_reply(reply).finished:
        problem = "the thinking block that the prompt opened never ends"
    if problem:
        raise ModelFailure(FailureKind.JUDGE_UNPARSEABLE, problem, (receipt,), reply.text)
    return completion


def _add_note(completion: Completion, note: str) -> Completion:
    if not note:
        return completion
    receipt = completion.receipt
    return replace(completion, receipt=replace(receipt, notes=(*receipt.notes, note)))


def _keep_answer(answer: StoredAnswer) -> None:
    if (log := get_current_log()) is not None:
        log.keep(answer)


def _list_earlier_receipts(key: str) -> tuple[Receipt, ...]:
    """Return the receipts of earlier calls for this question, whose replies could not be read: they count as
    retries.
    """
    log = get_current_log()
    stored = log.find(key) if log is not None else None
    return stored.receipts if stored is not None else ()


async def _replay_answer(rubric: Rubric, query: JudgeQuery, key: str) -> Grade | None:
    """Read a stored reply again; one that has no verdict is not used, so that a resumed row asks anew."""
    log = get_current_log()
    stored = log.find(key) if log is not None else None
    if stored is None or stored.unread:
        return None
    try:
        verdict = await run_on_text(len(stored.raw), rubric.parse, stored.raw)
    except Unparseable:
        return None
    return await _make_grade(rubric, query, verdict, stored.raw, stored.receipts)


def _count_characters(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


async def _make_grade(
    rubric: Rubric, query: JudgeQuery, verdict: Verdict, raw: str, receipts: tuple[Receipt, ...]
) -> Grade:
    details = {**(verdict.details or {}), "parse": verdict.parse, "calls": len(receipts)}
    if flags := await run_on_text(_count_characters(query.slots.values()), rubric.flags, query.slots):
        details["flags"] = flags
    return Grade(verdict.label, verdict.score, verdict.reasoning, verdict.parse, raw, details, receipts)
