"""What people are asked of a run: the questions its judge was asked, drawn by a plan that every annotator gets
alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson

from gavel.judges.bindings import Binding
from gavel.judges.rubrics.form_rubric import find_numbered_slot, split_numbered
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.types import Rubric, Unparseable, Verdict
from gavel.launch.report.entry import ReportEntry
from gavel.launch.report.labelling.store import read_annotators
from gavel.launch.report.source import RunSource
from gavel.launch.runs.files import write_whole
from gavel.models.codec import compute_digest, dump, load, record
from gavel.models.errors import ConfigError, InputError

FOLDER = "labels"
"""Of a run folder: a plan, and a file of labels for each annotator, by binding."""
Draw = Literal["random", "slices", "disagreements"]


@record
class LabelQuestion:
    """One question that a judge was asked: the texts of its slots, and ``verdicts``, what each judge said to it (label
    by the judge's binding); no annotator sees those.
    """

    key: str
    task_id: str
    rollout_index: int
    slots: Mapping[str, str]
    verdicts: Mapping[str, str]
    slices: Mapping[str, str]

    @property
    def verdict(self) -> str | None:
        """What the first judge said; None where no reply of a judge could be read."""
        return next(iter(self.verdicts.values()), None)


@record
class LabelPlan:
    """What is labelled, in this order: keys of questions. A later plan of the same ``draw`` and ``seed`` may be
    longer.
    """

    SCHEMA: ClassVar[str] = "gavel.label_plan/1"

    binding: str
    rubric_digest: str
    draw: Draw
    slice: str | None
    seed: int
    keys: tuple[str, ...]


def list_questions(source: RunSource, name: str, bindings: Mapping[str, Binding]) -> list[LabelQuestion]:
    """Return every question that was asked of a binding, in the order of the rows; questions that are equal are one.

    Args:
        source: the run, read.
        name: of the binding.
        bindings: those of the run, panels with their members.
    """
    asked = {one.name: one for one in (bindings[name], *bindings[name].members)}
    found: dict[str, LabelQuestion] = {}
    for entry in source.entries:
        for question in _list_row(source, entry, asked):
            known = found.setdefault(question.key, question)
            if known is not question:
                found[question.key] = replace(known, verdicts={**question.verdicts, **known.verdicts})
    return list(found.values())


def _list_row(source: RunSource, entry: ReportEntry, asked: Mapping[str, Binding]) -> Iterator[LabelQuestion]:
    for answer in source.read_answers(entry):
        binding = asked.get(str(answer["binding"]))
        if binding is None or binding.rubric.digest != answer["rubric_digest"] or answer.get("unread"):
            continue
        try:
            verdict = binding.rubric.parse(answer["raw"])
        except Unparseable:
            continue
        texts = {name: str(text) for name, text in answer["slots"].items()}
        for slots, label in _split_batch(binding.rubric, texts, verdict):
            said = {binding.name: label}
            yield LabelQuestion(make_key(slots), entry.task_id, entry.rollout_index, slots, said, dict(entry.slices))


def _split_batch(rubric: Rubric, slots: dict[str, str], verdict: Verdict) -> Iterator[tuple[dict[str, str], str]]:
    """Yield what was asked and its label; of several criteria in one question each as one of its own."""
    form = rubric.form if isinstance(rubric, PromptRubric) else None
    numbered = find_numbered_slot(form) if form is not None else ""
    if not numbered:
        yield slots, verdict.label
        return
    labels = (verdict.details or {}).get("verdicts", {})
    for number, text in enumerate(split_numbered(slots[numbered]), 1):
        if (label := labels.get(str(number))) is not None:
            yield {**slots, numbered: text}, str(label)


def make_key(slots: Mapping[str, str]) -> str:
    """Return the name of a question by its texts alone, so that it is the same in every run that asks it."""
    return compute_digest(dict(slots))


def make_plan(
    questions: Sequence[LabelQuestion], binding: Binding, *, draw: Draw, slice_name: str | None, seed: int, sample: int
) -> LabelPlan:
    """Draw the questions that are labelled; the same ``seed`` gives the same order, so that a larger sample goes on
    from a smaller one.

    Raises:
        ConfigError: there is nothing to draw from, or no such slice.
    """
    order = sorted(questions, key=lambda one: one.key)
    random.Random(seed).shuffle(order)
    chosen = _DRAWS[draw](order, slice_name)
    if not chosen:
        raise ConfigError(
            "there is nothing to label",
            field="draw",
            found=f"{draw}: 0 of {len(questions)} questions of {binding.name}",
            allowed="a run whose judge was asked, and for disagreements one with a panel, or other=RUN",
        )
    keys = tuple(question.key for question in chosen[:sample])
    return LabelPlan(binding.name, binding.rubric.digest, draw, slice_name, seed, keys)


def _draw_random(order: Sequence[LabelQuestion], slice_name: str | None) -> list[LabelQuestion]:  # noqa: ARG001
    return list(order)


def _draw_disagreements(order: Sequence[LabelQuestion], slice_name: str | None) -> list[LabelQuestion]:  # noqa: ARG001
    return [question for question in order if len(set(question.verdicts.values())) > 1]


def _draw_slices(order: Sequence[LabelQuestion], slice_name: str | None) -> list[LabelQuestion]:
    """Return the questions of each value of a slice in turns, so that a sample holds as many of each."""
    name = slice_name or ""
    parts: dict[str, list[LabelQuestion]] = {}
    for question in order:
        if name in question.slices:
            parts.setdefault(question.slices[name], []).append(question)
    if not parts:
        known = sorted({name for question in order for name in question.slices})
        raise ConfigError(
            "no question has this slice",
            field="slice",
            found=str(slice_name),
            allowed=", ".join(known) or "(no slices)",
        )
    turns = [parts[value] for value in sorted(parts)]
    longest = max(map(len, turns))
    return [part[place] for place in range(longest) for part in turns if place < len(part)]


_DRAWS = {"random": _draw_random, "slices": _draw_slices, "disagreements": _draw_disagreements}


def keep_plan(folder: Path, plan: LabelPlan) -> LabelPlan:
    """Store a plan, or return the stored one where it goes further; every annotator of a run gets the same questions.

    Raises:
        ConfigError: another draw was begun here.
        InputError: the stored plan is damaged.
    """
    path = folder / "plan.json"
    known = read_plan(folder)
    if known is not None and _is_same_draw(known, plan):
        if len(known.keys) >= len(plan.keys):
            return known
    elif known is not None and any(read_annotators(folder).values()):
        raise ConfigError(
            "another draw was begun here, and its labels would not be of the same questions",
            where=str(path),
            field="draw",
            found=f"draw={plan.draw} slice={plan.slice} seed={plan.seed}",
            allowed=f"draw={known.draw} slice={known.slice} seed={known.seed}, with the same rubric",
            remedy=f"go on with that, or move {folder} away",
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, dump(plan))
    return plan


def _is_same_draw(one: LabelPlan, other: LabelPlan) -> bool:
    return (one.draw, one.slice, one.seed, one.rubric_digest) == (
        other.draw,
        other.slice,
        other.seed,
        other.rubric_digest,
    )


def read_plan(folder: Path) -> LabelPlan | None:
    """Return the stored plan of a binding's labels, None where none was begun.

    Raises:
        InputError: it is damaged.
    """
    path = folder / "plan.json"
    if not path.is_file():
        return None
    try:
        value: Any = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as failed:
        raise InputError("this plan is damaged", where=str(path), found=str(failed)) from None
    return load(LabelPlan, value, where=str(path), error=InputError)
