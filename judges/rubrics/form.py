"""What must hold of a rubric that is data: its slots, prompt, labels, reader, hostile slots and controls together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gavel.judges.form_types import CRITERION, ENDS, FENCE, FIELD_SOURCE_TARGET, Control, RubricForm
from gavel.judges.rubrics.template import parse_template
from gavel.models.errors import ConfigError, InputError, find_nearest, shorten_value

FEWEST_CONTROLS = 8
POLICY_SOURCES = ("reply.visible", "reply.text", "reply.all", "reply.answer", "transcript.visible")
"""Sources of a slot with words of the policy: the last reply without its thinking, with it, all replies, the answer
that an environment finds in the reply, and everything that was said."""
TASK_SOURCES = ("task.last_user", "task.first_user", "task.system", "task.messages")
FIELD_SOURCES = (FIELD_SOURCE_TARGET, "metadata.")
"""Beginnings of sources that name a field of the task's target or metadata."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_TAG = re.compile(r"</?[a-z_]{1,40}>")
_RESERVED = frozenset((FENCE, "name", "expected", "label", "cluster", "labelled_by", "reviewed_by"))
_DECORATION = " \t\r\n*_`\"'#.!"


def check_form(form: RubricForm) -> None:
    """Refuse a rubric that does not fit together.

    Raises:
        ConfigError: names the field, what was found, what is allowed and what to do.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", form.name):
        raise ConfigError(
            "this is no name of a rubric",
            field="name",
            found=shorten_value(form.name),
            allowed="owner/name, as in acme/helpful-v1",
        )
    _check_slots(form)
    _check_criteria(form)
    _check_prompt(form)
    _check_labels(form)
    _check_reply(form)
    _check_controls(form)
    for name, labels in form.attacks.items():
        _check_known(labels, form.labels, f"attacks.{name}", "label")


def _check_slots(form: RubricForm) -> None:
    for slot, source in form.slots.items():
        if not _NAME.fullmatch(slot) or slot in _RESERVED:
            raise ConfigError(
                "this is no name of a slot",
                field=f"slots.{slot}",
                found=slot,
                allowed=f"a letter, then letters, digits and underscores; not {', '.join(sorted(_RESERVED))}",
            )
        bare = source.removesuffix("?")
        if bare not in (*TASK_SOURCES, *POLICY_SOURCES, CRITERION) and not _is_field_source(bare):
            known = (*TASK_SOURCES, *POLICY_SOURCES, CRITERION, "target.FIELD", "metadata.FIELD")
            near = find_nearest(bare, known)
            raise ConfigError(
                "there is no such source of text",
                field=f"slots.{slot}",
                found=source,
                allowed=", ".join(known),
                remedy=f"did you mean {near[0]}?" if near else "",
            )
    _check_known(form.hostile, form.slots, "hostile", "slot")
    open_slots = [
        slot for slot, source in form.sources.items() if source in POLICY_SOURCES and slot not in form.hostile
    ]
    if open_slots or not form.hostile:
        missing = ", ".join(open_slots)
        raise ConfigError(
            "a slot with the policy's words is not hostile" if missing else "no slot is hostile",
            field="hostile",
            found=", ".join(form.hostile) or "none",
            allowed="every slot with text under judgement",
            remedy=f"add {missing}; `gavel probe` attacks it then" if missing else "name the slot that is judged",
        )


def _check_criteria(form: RubricForm) -> None:
    asked = [slot for slot, source in form.slots.items() if source == CRITERION]
    if len(asked) != (form.criteria is not None):
        raise ConfigError(
            "a rubric that asks about criteria has one slot for them, and no other rubric has one",
            field="slots",
            found=f"criteria {'set' if form.criteria is not None else 'not set'}; from {CRITERION}: "
            f"{', '.join(asked) or 'none'}",
            allowed="criteria: {batch: 1} and slots: {criterion: criterion, …}",
        )
    if form.numbered and form.reply.reader != "json":
        raise ConfigError(
            "several criteria are answered in one object",
            field="reply.reader",
            found=form.reply.reader,
            allowed="json, or criteria.batch 1",
        )


def _is_field_source(source: str) -> bool:
    return any(source.startswith(start) and _NAME.fullmatch(source.removeprefix(start)) for start in FIELD_SOURCES)


def _check_known(names: Iterable[str], known: Iterable[str], place: str, what: str) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            near = find_nearest(name, known)
            raise ConfigError(
                f"there is no such {what}",
                field=place,
                found=shorten_value(name),
                allowed=", ".join(known),
                remedy=f"did you mean {near[0]}?" if near else "",
            )


def _check_prompt(form: RubricForm) -> None:
    try:
        parse_template(form.prompt, form.placeholders)
    except InputError as failed:
        raise ConfigError(
            failed.problem,
            field="prompt",
            found=failed.field,
            allowed=failed.allowed,
            remedy="every {name} is a slot, and every slot stands in the prompt",
        ) from None


def _check_labels(form: RubricForm) -> None:
    if form.reply.reader == "score":
        low, high = form.labels.get("low"), form.labels.get("high")
        if set(form.labels) != set(ENDS) or low is None or high is None or not low < high:
            raise ConfigError(
                "the labels of a score are the ends of its range",
                field="labels",
                found=shorten_value(dict(form.labels)),
                allowed="{low: NUMBER, high: a greater NUMBER}",
            )
        return
    if len(form.labels) < 2:
        raise ConfigError(
            "a rubric needs two labels",
            field="labels",
            found=shorten_value(dict(form.labels)),
            allowed="{good: 1.0, bad: 0.0}",
        )
    for label, score in form.labels.items():
        if not label.strip() or not 0.0 <= score <= 1.0:
            raise ConfigError(
                "this is no label with a score",
                field=f"labels.{label}",
                found=f"{score:g}",
                allowed="a text, and 0 to 1",
                remedy="give the best label 1.0; what it earns is the reward policy's to say",
            )
    seen: dict[str, str] = {}
    for word in form.words:
        bare = word.strip(_DECORATION).casefold()
        if not bare or bare in seen or "\n" in word:
            raise ConfigError(
                "labels that overlap: no reader can tell them apart",
                field="reply.words" if form.reply.words else "labels",
                found=f"{seen[bare]} and {word}" if bare in seen else shorten_value(word),
                allowed="words that differ by more than capitals, marks and blanks",
                remedy="rename one of them",
            )
        seen[bare] = word


def _check_reply(form: RubricForm) -> None:
    reply = form.reply
    for name, value in (("verdict", reply.verdict), ("reasoning", reply.reasoning)):
        if (value or name == "verdict") and not _NAME.fullmatch(value):
            raise ConfigError(
                "this is no name of a member",
                field=f"reply.{name}",
                found=shorten_value(value),
                allowed="letters and digits",
            )
    if reply.reasoning and reply.reader not in ("json", "score"):
        raise ConfigError(
            "such a reply has no member for reasons",
            field="reply.reasoning",
            found=f"{reply.reasoning}, reader {reply.reader}",
            allowed="reader json or score",
            remedy="remove it; with reader last_line any text may stand before the last line",
        )
    if reply.reasoning == reply.verdict:
        raise ConfigError(
            "two members have one name", field="reply.reasoning", found=reply.reasoning, allowed=f"not {reply.verdict}"
        )
    if not reply.words:
        return
    if reply.reader == "score":
        raise ConfigError(
            "a score has no words", field="reply.words", found=shorten_value(dict(reply.words)), remedy="remove it"
        )
    _check_known(reply.words.values(), form.labels, "reply.words", "label")
    if unsaid := set(form.labels) - set(reply.words.values()):
        raise ConfigError(
            "no word says this label",
            field="reply.words",
            found=", ".join(sorted(unsaid)),
            allowed="a word for each label",
        )


def _check_controls(form: RubricForm) -> None:
    if len(form.controls) < FEWEST_CONTROLS:
        raise ConfigError(
            "these are too few known answers",
            field="controls",
            found=str(len(form.controls)),
            allowed=f"at least {FEWEST_CONTROLS}",
            remedy="add rows whose verdict is plain, and near misses beside them",
        )
    asked: dict[str, Control] = {}
    for control in form.controls:
        _check_known(control.expected, form.labels, f"controls.{control.name}.expected", "label")
        key = repr(sorted(control.slots.items()))
        if not control.expected or (key in asked and set(asked[key].expected) != set(control.expected)):
            raise ConfigError(
                "two controls ask the same and expect different verdicts"
                if key in asked
                else "this control expects nothing",
                field=f"controls.{control.name}",
                found=f"{asked[key].name}: {', '.join(asked[key].expected)}" if key in asked else "",
            )
        asked[key] = control
    if len({control.name for control in form.controls}) < len(form.controls):
        raise ConfigError("two controls have one name", field="controls", allowed="each name once")
    known = {label for control in form.controls if len(control.expected) == 1 for label in control.expected}
    if missing := [label for label in form.labels if label not in known]:
        raise ConfigError(
            "controls that miss a label: nobody would notice a judge that never gives it",
            field="controls",
            found=", ".join(missing),
            allowed="at least one control that expects exactly each label",
            remedy=f'add a row with "expected": "{missing[0]}"',
        )


def find_tags(prompt: str) -> tuple[str, ...]:
    """Return the tags by which a prompt sets its slots apart, such as ``<candidate>``: no text of a slot may hold
    them.
    """
    return tuple(dict.fromkeys(_TAG.findall(prompt)))


def lint_form(form: RubricForm) -> tuple[str, ...]:
    """Return what works and costs: a prompt that a server's prefix cache cannot share, words that contain one
    another.
    """
    return (*_lint_order(form), *_lint_words(form))


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
