"""A rubric made of a form: its prompt filled in one pass, its reply read by the one reader of verdicts, its digest over
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gavel.judges.form_types import CRITERION, FENCE, NUMBER, VERDICTS, ReplyForm, RubricForm
from gavel.judges.neutralise import Neutraliser, make_fence
from gavel.judges.pairs.mirror import mirror_controls
from gavel.judges.rubrics.form import check_form, find_tags
from gavel.judges.rubrics.form_attacks import attack_form
from gavel.judges.rubrics.prompt import PromptRubric, compute_rubric_digest
from gavel.judges.rubrics.score_form import OUTSIDE, ScoreForm
from gavel.judges.rubrics.template import Template, check_slots, parse_template
from gavel.judges.rubrics.verdict import VerdictForm, extract_visible_reply, merge_members, read_members
from gavel.judges.types import RubricConfig, Unparseable, Verdict
from gavel.models.calls.wire import CHOICE_FIELD
from gavel.models.codec import to_plain
from gavel.models.errors import shorten_value
from gavel.models.types import ResponseFormat, Sampling

_VERSION = "1"
_DECORATION = "*_`\"'#.!"
_MOST_REASONS, _FEWEST_REASONS = 2_000, 100
"""Characters of reasons that are asked for at most, and that a short output limit still leaves."""


def make_form_rubric(form: RubricForm, config: RubricConfig) -> PromptRubric:
    """Make a rubric; what the config says of its sampling comes before the form's own.

    Raises:
        ConfigError: the form does not fit together; names the field.
    """
    check_form(form)
    template = parse_template(form.prompt, form.placeholders)
    own = form.sampling
    drawn = Sampling(
        temperature=own.temperature if config.temperature is None else config.temperature,
        top_p=own.top_p if config.top_p is None else config.top_p,
        max_response_tokens=own.max_response_tokens
        if config.max_response_tokens is None
        else config.max_response_tokens,
        reasoning_effort=own.reasoning_effort if config.reasoning_effort is None else config.reasoning_effort,
    )
    asked = _make_response_format(form)
    said = to_plain(replace(form, path=""))
    if form.pair is None:
        del said["pair"]  # rubrics that grade one text keep the digests they had
    return PromptRubric(
        profile=form.name,
        targets=form.targets,
        slots=tuple(form.slots),
        labels=tuple(form.labels),
        sampling=drawn,
        response_format=asked,
        digest=compute_rubric_digest(form.name, _VERSION, said, drawn, asked),
        controls=(*form.controls, *mirror_controls(form)),
        template=template,
        prepare=FormValues(frozenset(form.slots), form.hostile, template, find_numbered_slot(form)),
        reader=_make_reader(form),
        judged=form.hostile[0],
        neutraliser=Neutraliser(find_tags(form.prompt)) if form.neutralise else None,
        form=form,
        attacks=attack_form(form),
    )


@dataclass(frozen=True, slots=True)
class FormValues:
    """From slots to the template's values: the fence is longer than any run of backticks in a hostile slot."""

    slots: frozenset[str]
    hostile: tuple[str, ...]
    template: Template
    numbered: str = ""  # the slot whose criteria bear numbers, if any

    def __call__(self, slots: Mapping[str, str]) -> Mapping[str, str]:
        """Return the values.

        Raises:
            InputError: a slot is missing or unknown.
        """
        check_slots(self.slots, slots)
        if self.numbered and not slots[self.numbered].startswith(FIRST):
            slots = {**slots, self.numbered: number_texts([slots[self.numbered]])}
        if FENCE not in self.template.slots:
            return slots
        return {**slots, FENCE: max((make_fence(slots[name]) for name in self.hostile), key=len)}


FIRST = "1. "


def number_texts(texts: Sequence[str]) -> str:
    """Return criteria as numbered lines, from 1."""
    return "\n".join(f"{number}. {' '.join(text.split())}" for number, text in enumerate(texts, 1))


def split_numbered(text: str) -> list[str]:
    """Return the criteria that ``number_texts`` numbered, in order."""
    return [line.partition(". ")[2] for line in text.split("\n")]


def find_numbered_slot(form: RubricForm) -> str:
    """Return the slot whose criteria bear numbers, empty where a question asks of one."""
    return next(slot for slot, source in form.slots.items() if source == CRITERION) if form.numbered else ""


def _make_response_format(form: RubricForm) -> ResponseFormat | None:
    reply = form.reply
    if reply.reader == "last_line":
        return None
    if reply.reader == "choice":
        return ResponseFormat(choice=tuple(form.words))
    verdict: dict[str, Any] = {"type": "string", "enum": list(form.words)}
    if reply.reader == "score":
        verdict = {"type": "number", "minimum": form.labels["low"], "maximum": form.labels["high"]}
    reasons = {reply.reasoning: {"type": "string", "maxLength": _bound_reasons(form)}} if reply.reasoning else {}
    if not form.numbered:
        return ResponseFormat(json_schema=_make_closed_schema({**reasons, reply.verdict: verdict}))
    item = _make_closed_schema({NUMBER: {"type": "integer"}, **reasons, reply.verdict: verdict})
    return ResponseFormat(json_schema=_make_closed_schema({VERDICTS: {"type": "array", "items": item}}))


def _bound_reasons(form: RubricForm) -> int:
    """Return how many characters of reasons leave room for the verdicts behind them: half of what the output limit
    holds.
    """
    limit, asked = form.sampling.max_response_tokens, form.criteria.batch if form.criteria is not None else 1
    return _MOST_REASONS if limit is None else min(max(2 * limit // asked, _FEWEST_REASONS), _MOST_REASONS)


def _make_closed_schema(members: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(members), "required": list(members), "additionalProperties": False}


def _make_reader(form: RubricForm) -> Callable[[str], Verdict]:
    names = {"member": form.reply.verdict.lower(), "reasons": form.reply.reasoning.lower() or "reasoning"}
    scores = form.scores
    if form.reply.reader == "score":
        low, high = form.labels["low"], form.labels["high"]
        return ScoreReader(ScoreForm({}, **names, low=low, high=high))
    if form.reply.reader == "choice":
        return ChoiceReader(form.words, scores)
    words = {word.strip().lower(): label for word, label in form.words.items()}
    if form.numbered:
        return NumberedReader(words, scores, form.reply)
    bare = {word.strip(_DECORATION + " ").lower(): label for word, label in form.words.items()}
    return LabelReader(VerdictForm({**bare, **words}, **names), scores, form.reply)


@dataclass(frozen=True, slots=True)
class LabelReader:
    """Reads a label that stands where a verdict stands; see ``VerdictForm.read_verdict``."""

    form: VerdictForm
    scores: Mapping[str, float]
    reply: ReplyForm

    def __call__(self, text: str) -> Verdict:
        """Return the verdict; raises ``Unparseable``."""
        verdict = self.form.read_verdict(text)
        return replace(verdict, score=self.scores[verdict.label])


@dataclass(frozen=True, slots=True)
class NumberedReader:
    """Reads an object whose list ``verdicts`` has a numbered verdict for each criterion: ``details.verdicts`` maps
    numbers to labels. One that is missing, off the labels, or stands twice with different verdicts is left out; the
    label is that of the first."""

    words: Mapping[str, str]
    scores: Mapping[str, float]
    reply: ReplyForm

    def __call__(self, text: str) -> Verdict:
        """Return the verdict; raises ``Unparseable`` where no criterion has one."""
        body, _ = extract_visible_reply(text)
        members = read_members(body, (VERDICTS,))
        items = members[VERDICTS] if members is not None else None
        found: dict[str, set[str | None]] = {}
        reasons: dict[str, str] = {}
        for item in items if isinstance(items, list) else ():
            pairs = self._read_item(item)
            number, said = str(pairs.get(NUMBER)), pairs.get(self.reply.verdict)
            found.setdefault(number, set()).add(self.words.get(said.strip().lower()) if isinstance(said, str) else None)
            reasons[number] = str(pairs.get(self.reply.reasoning, ""))
        verdicts = {
            number: label
            for number, labels in found.items()
            if len(labels) == 1 and (label := next(iter(labels))) is not None
        }
        if not verdicts:
            raise Unparseable(f"the reply is no object with a verdict on any criterion: {shorten_value(text)}")
        label = next(iter(verdicts.values()))
        return Verdict(label, "exact", self.scores[label], details={"verdicts": verdicts, "reasons": reasons})

    def _read_item(self, item: object) -> Mapping[str, Any]:
        """Return the members of one verdict; none where one stands twice and differs: nobody knows which is meant."""
        try:
            return merge_members(item, (NUMBER, self.reply.verdict, self.reply.reasoning)) or {}
        except Unparseable:
            return {}


@dataclass(frozen=True, slots=True)
class ScoreReader:
    """Reads a number: its label says which half of the range it lies in, its score where in it, ``details.value`` what
    was said.
    """

    form: ScoreForm

    def __call__(self, text: str) -> Verdict:
        """Return the verdict; raises ``Unparseable``, also for a number out of range."""
        verdict, low, high = self.form.read_verdict(text), self.form.low, self.form.high
        if verdict.label == OUTSIDE:
            raise Unparseable(f"the reply's score is not from {low:g} to {high:g}: {shorten_value(text)}")
        value = float(verdict.label)
        score = (value - low) / (high - low)
        return replace(verdict, label="high" if score >= 0.5 else "low", score=score, details={"value": value})


@dataclass(frozen=True, slots=True)
class ChoiceReader:
    """Reads a reply that is one word and nothing else, alone or as the only member of the object that is asked of
    servers without a closed choice; thinking before it, a fence around it, blanks and capitals do not count."""

    words: Mapping[str, str]
    scores: Mapping[str, float]

    def __call__(self, text: str) -> Verdict:
        """Return the verdict; raises ``Unparseable``."""
        body, _ = extract_visible_reply(text)
        members = read_members(body, (CHOICE_FIELD,))
        said = body if members is None else members[CHOICE_FIELD]
        known = {word.strip().lower(): label for word, label in self.words.items()}
        label = known.get(said.strip().lower()) if isinstance(said, str) else None
        if label is None:
            raise Unparseable(f"the reply is not one of {', '.join(self.words)}: {shorten_value(text)}")
        return Verdict(label, "exact", score=self.scores[label])
