"""``labelled.jsonl``: what people settled, in the form that ``gavel calibrate labelled=FILE`` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gavel.launch.report.labelling.questions import LabelPlan, LabelQuestion
from gavel.launch.report.labelling.summary import Labels, settle_labels
from gavel.launch.runs.files import write_whole
from gavel.models.codec import to_json

FILE = "labelled.jsonl"


def write_labelled(folder: Path, questions: Sequence[LabelQuestion], plan: LabelPlan, said: Labels) -> int:
    """Write the settled questions of a binding, in the order in which they were drawn; return how many."""
    known = {question.key: question for question in questions}
    drawn = [known[key] for key in plan.keys if key in known]
    settled = settle_labels(drawn, said)
    rows = [_make_row(question, plan, said, *settled[question.key]) for question in drawn if question.key in settled]
    write_whole(folder / FILE, b"".join(to_json(row) + b"\n" for row in rows))
    return len(rows)


def _make_row(
    question: LabelQuestion, plan: LabelPlan, said: Labels, label: str, people: tuple[str, ...]
) -> Mapping[str, object]:
    events = [said[name][question.key] for name in people]
    notes = {name: said[name][question.key].note for name in people if said[name][question.key].note}
    return {
        **question.slices,
        **question.slots,
        "label": label,
        "cluster": question.task_id,
        "labelled_by": people[0],
        "reviewed_by": ", ".join(people),
        "time": max(event.time for event in events),
        "rubric_digest": plan.rubric_digest,
        "task_id": question.task_id,
        "rollout_index": question.rollout_index,
        **({"notes": notes} if notes else {}),
    }
