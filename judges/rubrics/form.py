"""What must hold of a rubric that is data: its slots, prompt, labels, reader, hostile slots and controls together."""

from __future__ import annotations

import re
from dataclasses import replace

from gavel.judges.form_types import CRITERION, FENCE, FIELD_SOURCE_TARGET, POLICY_SOURCES, RIVAL, Control, RubricForm
from gavel.judges.pairs.rules import FIRST, SECOND, TIE
from gavel.judges.rubrics.form_attacks import attack_form
from gavel.judges.rubrics.form_lint import lint_form as lint_form
from gavel.judges.rubrics.form_words import check_known, check_labels, check_reply
from gavel.judges.rubrics.template import parse_template
from gavel.models.errors import ConfigError, InputError, find_nearest, shorten_value

FEWEST_CONTROLS = 8
TASK_SOURCES = ("task.last_user", "task.first_user", "task.system", "task.messages")
FIELD_SOURCES = (FIELD_SOURCE_TARGET, "metadata.")
"""Beginnings of sources that name a field of the task's target or metadata."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_TAG = re.compile(r"</?[a-z_]{1,40}>")
_RESERVED = frozenset((FENCE, "name", "expected", "label", "cluster", "labelled_by", "reviewed_by"))
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def check_form(form: RubricForm) -> None:
    """Refuse a rubric that does not fit together.

    Raises:
        ConfigError: names the field, what was found, what is allowed and what to do.
    """
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", form.name):
        raise ConfigError(
            "this is no name of a rubric",
            field="name",
            found=shorten_value(form.name),
            allowed="owner/name, as in acme/helpful-v1",
        )
    _check_slots(form)
    _check_criteria(form)
    _check_prompt(form)
    check_labels(form)
    check_reply(form)
    _check_pair(form)
    _check_sampling(form)
    _check_controls(form)
    _check_attacks(form)


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
    check_known(form.hostile, form.slots, "hostile", "slot")
    if len(set(form.hostile)) < len(form.hostile):
        raise ConfigError(
            "a slot is named twice", field="hostile", found=", ".join(form.hostile), allowed="each slot once"
        )
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
    if not form.targets:
        raise ConfigError("this rubric grades no task", field="targets", found="none", allowed="leave it out for any")


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


def _check_pair(form: RubricForm) -> None:
    """Refuse a rubric of pairs whose slots or labels do not say which text is better."""
    if (pair := form.pair) is None:
        if rivals := [slot for slot, source in form.sources.items() if source == RIVAL]:
            raise ConfigError(
                "only a rubric of pairs has a rival",
                field=f"slots.{rivals[0]}",
                found=RIVAL,
                remedy="say which slots are compared: pair: {first: candidate, second: rival}",
            )
        return
    check_known((pair.first, pair.second), form.hostile, "pair", "hostile slot")
    if pair.first == pair.second or form.sources[pair.first] == RIVAL:
        raise ConfigError(
            "a pair is a reply, and a text that it is compared with",
            field="pair",
            found=f"{pair.first}, {pair.second}",
            allowed="two slots; of another run's reply the second",
        )
    whole = {FIRST: 1.0, TIE: 0.5, SECOND: 0.0}
    if dict(form.labels) not in (whole, {FIRST: 1.0, SECOND: 0.0}):
        raise ConfigError(
            "the labels of a pair say which text is better",
            field="labels",
            found=shorten_value(dict(form.labels)),
            allowed="{first: 1.0, tie: 0.5, second: 0.0}, or without tie",
            remedy="what the judge writes for each is reply.words: {A: first, B: second, C: tie}",
        )
    if form.criteria is not None:
        raise ConfigError("a pair is compared as a whole", field="criteria", remedy="remove it, or pair")


def _is_field_source(source: str) -> bool:
    return any(source.startswith(start) and _NAME.fullmatch(source.removeprefix(start)) for start in FIELD_SOURCES)


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
    if (found := _CONTROL.search(form.prompt)) is not None:
        line = form.prompt[: found.start()].count("\n") + 1
        raise ConfigError(
            "the prompt holds a control character",
            field="prompt",
            found=f"{found[0]!r} in its line {line}",
            allowed="text, line ends and tabs",
            remedy="remove it",
        )


def _check_sampling(form: RubricForm) -> None:
    bounds = (("max_response_tokens", 1, 1_000_000), ("temperature", 0.0, 2.0), ("top_p", 1e-6, 1.0))
    for name, low, high in bounds:
        value = getattr(form.sampling, name)
        if value is not None and not low <= value <= high:
            raise ConfigError(
                "out of range", field=f"sampling.{name}", found=f"{value:g}", allowed=f"{low:g} to {high:g}"
            )


def _check_attacks(form: RubricForm) -> None:
    known = {attack.name for attack in attack_form(replace(form, attacks={}))}
    check_known(form.attacks, known, "attacks", "attack")
    for name, labels in form.attacks.items():
        check_known(labels, form.labels, f"attacks.{name}", "label")
        if not labels:
            raise ConfigError("no label withstands this attack", field=f"attacks.{name}", allowed="a label, or a list")


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
        check_known(control.expected, form.labels, f"controls.{control.name}.expected", "label")
        key = repr(sorted(control.slots.items()))
        if key in asked:
            same = set(asked[key].expected) == set(control.expected)
            raise ConfigError(
                "two controls ask the same" + ("" if same else " and expect different verdicts"),
                field=f"controls.{control.name}",
                found=f"{asked[key].name}: {', '.join(asked[key].expected)}",
                remedy="change one: a question that is asked twice tests nothing more",
            )
        if not set(form.labels) - set(control.expected):
            raise ConfigError(
                "this control expects any label, so it tests nothing",
                field=f"controls.{control.name}.expected",
                found=", ".join(control.expected) or "none",
                allowed="the labels that are right",
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
