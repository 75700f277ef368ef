"""What works in a rubric of a file and costs: money at a server, or verdicts that are hard to come by."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gavel.judges.form_types import ENDS, FENCE, POLICY_SOURCES, RubricForm
from gavel.judges.rubrics.template import parse_template

_MARKS = "<>`\"'-=#*~[]()|{}_"
"""What may set a text apart from the words around it."""
_TOKENS_OF_VERDICT, _TOKENS_OF_REASONS = 16, 24
"""The least that a verdict, and the reasons before it, take of a reply."""


def lint_form(form: RubricForm) -> tuple[str, ...]:
    """Return what works and costs, a line each: a prompt that a server's prefix cache cannot share or that leaves the
    judge in doubt, words that contain one another, a limit that cuts replies off.
    """
    return (
        *_lint_order(form),
        *_lint_marks(form),
        *_lint_words(form),
        *_lint_unsaid(form),
        *_lint_limit(form),
        *_lint_criteria(form),
        *_lint_sources(form),
    )


def _lint_order(form: RubricForm) -> Iterator[str]:
    order = parse_template(form.prompt, form.placeholders).names
    own = [order.index(slot) for slot in form.hostile]
    late = [slot for slot in form.slots if slot not in form.hostile and order.index(slot) > min(own)]
    if late:
        first = form.hostile[own.index(min(own))]
        yield (
            f"candidate first: {{{first}}} stands before {', '.join(f'{{{slot}}}' for slot in late)}, so that the "
            f"prompts of one task "
            "share nothing behind it and a server's prefix cache is wasted; put what tasks share first"
        )
    begins = form.prompt.find("{" + order[0] + "}")
    if begins < len(form.prompt) // 4:
        yield (
            f"short head: only {begins} of {len(form.prompt)} characters stand before {{{order[0]}}}; put the fixed "
            f"text first, since "
            "every call shares it"
        )


def _lint_words(form: RubricForm) -> Iterator[str]:
    if form.reply.reader == "choice":
        return  # a whole reply is one word: nothing can be taken for a part of it
    for word in form.words:
        inside = [
            other
            for other in form.words
            if other != word and re.search(rf"\b{re.escape(word)}\b", other, re.IGNORECASE)
        ]
        if inside:
            yield (
                f"labels that overlap: {word} stands within {', '.join(inside)}; a judge that writes freely may "
                f"be read short"
            )


def _lint_marks(form: RubricForm) -> Iterator[str]:
    template = parse_template(form.prompt, form.placeholders)
    for slot in form.slots:
        if (times := template.names.count(slot)) > 1:
            yield f"twice: {{{slot}}} stands {times} times in the prompt, and is paid for each time"
    for place, slot in enumerate(template.names):
        before, after = template.texts[place].rstrip()[-1:], template.texts[place + 1].lstrip()[:1]
        marked = before and after and before in _MARKS and after in _MARKS
        fenced = FENCE in template.names[max(place - 1, 0) : place]
        if slot in form.hostile and not fenced and not marked:
            yield (
                f"no bounds: nothing marks where {{{slot}}} begins and ends, so that what it says may be taken for "
                f"your own words; put it between <{slot}> and </{slot}>"
            )
    if "\r" in form.prompt:
        yield "line ends: the prompt has those of Windows, which are sent as they are; save it with plain ones"


def _lint_unsaid(form: RubricForm) -> Iterator[str]:
    words = [f"{form.labels[end]:g}" for end in ENDS] if form.reply.reader == "score" else list(form.words)
    unsaid = [word for word in words if word.casefold() not in form.prompt.casefold()]
    if unsaid:
        yield f"labels unsaid: the prompt never says {', '.join(unsaid)}, so that the judge must guess what it means"


def _lint_limit(form: RubricForm) -> Iterator[str]:
    limit, asked = form.sampling.max_response_tokens, form.criteria.batch if form.criteria is not None else 1
    if limit is None or form.reply.reader == "choice":
        return
    free = form.reply.reader == "last_line"
    needed = asked * (_TOKENS_OF_VERDICT + (_TOKENS_OF_REASONS if form.reply.reasoning else 0))
    if limit < needed and not free:
        yield (
            f"short replies: {limit} tokens hold no reply that takes {needed} or more; a reply that is cut off is no "
            "verdict: raise sampling.max_response_tokens"
        )


def _lint_criteria(form: RubricForm) -> Iterator[str]:
    if form.criteria is None or form.reply.reader == "score":
        return
    if between := [label for label, score in form.labels.items() if score not in (0.0, 1.0)]:
        yield (
            f"all or nothing: a criterion is met from 0.5 on and earns its points whole, so that "
            f"{', '.join(between)} earns no part of them"
        )


def _lint_sources(form: RubricForm) -> Iterator[str]:
    if not set(form.sources.values()) & set(POLICY_SOURCES):
        yield "nothing judged: no slot holds words of the policy, so that every reply to a task is graded alike"
    if not form.neutralise:
        yield "exact bytes: control characters and chat-template tokens of a reply reach the judge as they are"
