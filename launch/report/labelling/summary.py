"""What the labels of a run say: how people agree with one another and with its judges, and its shares corrected by
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from gavel.judges.calibration.corrected import CorrectedShare, correct_share
from gavel.judges.calibration.statistics import (
    Interval,
    compute_ac1,
    compute_accuracy_interval,
    compute_interval,
    compute_kappa,
    count_confusion,
    draw_tables,
)
from gavel.launch.report.labelling.questions import FOLDER, LabelPlan, LabelQuestion, list_questions, read_plan
from gavel.launch.report.labelling.store import SKIPPED, LabelEvent, read_annotators
from gavel.launch.report.source import ReportSource, RunSource
from gavel.models.codec import record

Labels = Mapping[str, Mapping[str, LabelEvent]]
"""What each annotator said, by name and question."""


@record
class Agreement:
    """How ``one`` and ``other`` agree over the questions that both gave a label: people by name, a judge by its
    binding.
    """

    one: str
    other: str
    share: Interval
    kappa: Interval
    ac1: Interval


@record
class LabelSummary:
    """``settled`` questions have a label that people agree on, ``disputed`` ones are left out; ``corrected`` is empty
    unless the questions were drawn at random.
    """

    planned: int
    labelled: Mapping[str, int]
    skipped: Mapping[str, int]
    settled: int
    disputed: int
    agreements: tuple[Agreement, ...]
    corrected: tuple[CorrectedShare, ...]


def settle_labels(questions: Sequence[LabelQuestion], said: Labels) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the label of each question that more people gave than any other label, and who gave it; a tie settles
    nothing.
    """
    settled = {}
    for question in questions:
        votes: dict[str, list[str]] = {}
        for name, events in said.items():
            event = events.get(question.key)
            if event is not None and event.label not in (None, SKIPPED):
                votes.setdefault(str(event.label), []).append(name)
        ranked = sorted(votes.items(), key=lambda vote: -len(vote[1]))
        if ranked and (len(ranked) == 1 or len(ranked[0][1]) > len(ranked[1][1])):
            settled[question.key] = (ranked[0][0], tuple(ranked[0][1]))
    return settled


def make_summary(
    questions: Sequence[LabelQuestion], plan: LabelPlan, labels: Sequence[str], said: Labels
) -> LabelSummary:
    """Return what the labels of a binding say.

    Args:
        questions: all of the binding, labelled or not.
        plan: which of them were drawn, and how.
        labels: of the rubric.
        said: what each annotator said.
    """
    known = {question.key: question for question in questions}
    drawn = [known[key] for key in plan.keys if key in known]
    settled = settle_labels(drawn, said)
    voted = {key for events in said.values() for key, event in events.items() if event.label != SKIPPED}
    return LabelSummary(
        planned=len(plan.keys),
        labelled={name: sum(event.label != SKIPPED for event in events.values()) for name, events in said.items()},
        skipped={name: sum(event.label == SKIPPED for event in events.values()) for name, events in said.items()},
        settled=len(settled),
        disputed=len(voted & {question.key for question in drawn}) - len(settled),
        agreements=tuple(_list_agreements(drawn, labels, said)),
        corrected=_correct_shares(questions, plan, labels, settled),
    )


def _list_agreements(drawn: Sequence[LabelQuestion], labels: Sequence[str], said: Labels) -> list[Agreement]:
    raters: dict[str, dict[str, str]] = {
        name: {key: str(event.label) for key, event in events.items() if event.label in labels}
        for name, events in said.items()
    }
    judges: dict[str, dict[str, str]] = {}
    for question in drawn:
        for judge, label in question.verdicts.items():
            judges.setdefault(judge, {})[question.key] = label
    pairs = [
        *combinations(raters.items(), 2),
        *((person, (f"judge {name}", verdicts)) for person in raters.items() for name, verdicts in judges.items()),
    ]
    clusters = {question.key: question.task_id for question in drawn}
    return [compare_raters(*one, *other, labels, clusters) for one, other in pairs]


def compare_raters(
    one: str,
    first: Mapping[str, str],
    other: str,
    second: Mapping[str, str],
    labels: Sequence[str],
    clusters: Mapping[str, str],
) -> Agreement:
    """Return the agreement of two raters over the questions that both labelled, clustered by task."""
    keys = [key for key in clusters if key in first and key in second]
    codes = [labels.index(first[key]) for key in keys], [labels.index(second[key]) for key in keys]
    tasks = [clusters[key] for key in keys]
    share = compute_accuracy_interval(*codes, tasks)
    if not keys:
        nothing = Interval(None, None, None, 0)
        return Agreement(one, other, share, nothing, nothing)
    table, drawn = count_confusion(*codes, len(labels)), draw_tables(*codes, tasks, len(labels))
    return Agreement(
        one,
        other,
        share,
        compute_interval(compute_kappa, table, drawn, share),
        compute_interval(compute_ac1, table, drawn, share),
    )


def _correct_shares(
    questions: Sequence[LabelQuestion],
    plan: LabelPlan,
    labels: Sequence[str],
    settled: Mapping[str, tuple[str, tuple[str, ...]]],
) -> tuple[CorrectedShare, ...]:
    """Return each label's share over all questions; only a random draw says something of those nobody labelled."""
    judged = {question.key: question.verdict for question in questions if question.verdict is not None}
    people = [(judged[key], label) for key, (label, _) in settled.items() if key in judged]
    if plan.draw != "random" or not people:
        return ()
    return tuple(correct_share(list(judged.values()), people, label) for label in labels)


def describe_summary(summary: LabelSummary) -> list[str]:
    """Say it in lines."""
    people = ", ".join(
        f"{name} {count} of {summary.planned}" + (f", {summary.skipped[name]} skipped" if summary.skipped[name] else "")
        for name, count in summary.labelled.items()
    )
    lines = [f"labelled: {people or 'nothing yet'}; {summary.settled} settled, {summary.disputed} disputed"]
    lines += [
        f"{one.one} and {one.other}: agree on {_format(one.share, percent=True)}, kappa {_format(one.kappa)}, "
        f"AC1 {_format(one.ac1)} ({one.share.n} questions)"
        for one in summary.agreements
        if one.share.n
    ]
    lines += [
        f"share of {one.label}: the judge's {one.judged:.1%} of {one.n}; corrected by {one.labelled} labels "
        f"{_format(one.powered, percent=True)} (prediction-powered), {_format(one.rogan_gladen, percent=True)} "
        "(Rogan-Gladen)"
        for one in summary.corrected
    ]
    return lines


def describe_people(source: ReportSource) -> tuple[str, ...]:
    """Return what people said of a run, each binding's lines after its name; nothing where nobody labelled it."""
    folders = [folder for folder in sorted((source.path / FOLDER).glob("*")) if (folder / "plan.json").is_file()]
    bindings = source.read_bindings() if folders and isinstance(source, RunSource) else {}
    lines: list[str] = []
    for folder in folders:
        plan, binding = read_plan(folder), bindings.get(folder.name)
        said = read_annotators(folder)
        if plan is None or binding is None or not said or not isinstance(source, RunSource):
            continue
        questions = list_questions(source, folder.name, bindings)
        summary = make_summary(questions, plan, binding.rubric.labels, said)
        lines += [f"{folder.name}: {line}" for line in describe_summary(summary)]
    return tuple(lines)


def _format(interval: Interval, *, percent: bool = False) -> str:
    def show(value: float) -> str:
        return f"{value:.1%}" if percent else f"{value:.2f}"

    if interval.value is None:
        return "not known"
    if interval.low is None or interval.high is None:
        return show(interval.value)
    return f"{show(interval.value)} [{show(interval.low)}, {show(interval.high)}]"
