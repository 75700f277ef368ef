"""``gavel label RUN``: people label what its judge was asked, in the browser and blind to its verdicts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gavel.judges.bindings import Binding
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import LabelConfig
from gavel.launch.report.labelling.questions import (
    FOLDER,
    LabelPlan,
    LabelQuestion,
    keep_plan,
    list_questions,
    make_plan,
    read_plan,
)
from gavel.launch.report.labelling.server import Labelling, serve_labelling
from gavel.launch.report.labelling.store import LabelStore, check_name, read_annotators
from gavel.launch.report.labelling.summary import describe_summary, make_summary
from gavel.launch.report.overview import read_notes
from gavel.launch.report.source import RunSource
from gavel.launch.rollout.session import run_async
from gavel.launch.runs.child import find_existing_run
from gavel.launch.runs.lease import FolderLock
from gavel.models.errors import ConfigError


def run(config: LabelConfig, console: Console) -> int:
    """Run the verb until Ctrl-C, then say how the labels agree; see ``gavel label --help``. Returns 0."""
    path = find_existing_run(config.run.dir, "label")
    source = RunSource.open_run(path)
    source.refresh()
    bindings = source.read_bindings()
    binding = _choose_binding(bindings, config.binding, path)
    questions = _add_verdicts(list_questions(source, binding.name, bindings), config.other, binding.name)
    folder = path / FOLDER / binding.name
    if config.annotator is None:
        known = read_plan(folder)
        if known is None:
            word = shlex.quote(str(config.run.dir))
            print_line(console, f"nobody has labelled this run yet: gavel label {word} annotator=NAME")
            return 0
        return _tell(questions, known, binding, folder, console)
    check_name(config.annotator)
    plan = make_plan(
        questions, binding, draw=config.draw, slice_name=config.slice, seed=config.seed, sample=config.sample
    )
    plan = keep_plan(folder, plan)
    store_folder = folder / ".locks" / config.annotator
    store_folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(store_folder), LabelStore(folder, config.annotator) as store:
        labelling = Labelling(
            path.resolve().name,
            folder,
            questions,
            plan,
            binding.rubric.labels,
            config.annotator,
            store,
            " ".join(filter(None, read_notes(source))),
        )
        labelling.write_files()
        try:
            code = run_async(
                lambda: serve_labelling(labelling, config.port, console), console, "the page is served no more"
            )
        finally:
            _tell(questions, plan, binding, folder, console)
    return code


def _choose_binding(bindings: Mapping[str, Binding], name: str | None, path: Path) -> Binding:
    own = {key: one for key, one in bindings.items() if "[" not in key}  # not the members of a panel
    if name is None and len(own) == 1:
        return next(iter(own.values()))
    if name is not None and name in own:
        return own[name]
    raise ConfigError(
        "say which judge's questions are labelled"
        if own
        else "this run has no judge whose questions could be labelled",
        where=str(path),
        field="binding",
        found=str(name),
        allowed=", ".join(own) or "a run with a judge, of this version",
    )


def _add_verdicts(questions: list[LabelQuestion], other: str | None, name: str) -> list[LabelQuestion]:
    """Return the questions with what the judge of another run said to the same ones, for a draw where judges
    disagree.
    """
    if other is None:
        return questions
    source = RunSource.open_run(find_existing_run(other, "label"))
    source.refresh()
    bindings = source.read_bindings()
    if name not in bindings:
        raise ConfigError("this run has no such binding", field="other", found=other, allowed=f"a run with {name}")
    said = {question.key: question.verdicts for question in list_questions(source, name, bindings)}
    return [
        replace(
            question,
            verdicts={
                **question.verdicts,
                **{f"{key} of {other}": label for key, label in said.get(question.key, {}).items()},
            },
        )
        for question in questions
    ]


def _tell(questions: list[LabelQuestion], plan: LabelPlan, binding: Binding, folder: Path, console: Console) -> int:
    for line in describe_summary(make_summary(questions, plan, binding.rubric.labels, read_annotators(folder))):
        print_line(console, line)
    print_line(console, f"settled labels: {folder / 'labelled.jsonl'}")
    return 0
