"""A finished run against upstream's own code: pinned files, prompts, transcripts, message lists, ratings and scores,
and how many are identical.

Upstream is a checkout of SpringCare/VERA-MH v1.2 on this machine, imported in a process of its own
(``upstream_worker``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from gavel.envs.types import Result
from gavel.envs.vera_mh import upstream_worker
from gavel.envs.vera_mh.conversation import (
    Utterance,
    format_transcript,
    list_utterances,
    make_chatbot_messages,
    make_persona_messages,
)
from gavel.envs.vera_mh.environment import VeraMhEnvironment
from gavel.envs.vera_mh.scoring import DISCLAIMER
from gavel.envs.vera_mh.upstream_files import make_files
from gavel.judges.assets import AssetStore
from gavel.judges.rubrics.vera_mh import ASSETS, PROFILE
from gavel.models.codec import record
from gavel.models.errors import ConfigError, InputError, shorten_value
from gavel.models.pinned import RepositoryFile
from gavel.models.types import Message

TIMEOUT_S = 600.0
SHOWN = 5
_INTERPRETER, _LACKING = "upstream_python=PYTHON", ("ModuleNotFoundError", "ImportError")
_SCORES = ("summary", "aggregates", "dimensions")


@record
class ComparedPart:
    """One kind of thing compared: how many, how many identical, and which differ; ``error`` where upstream could not do
    it.
    """

    compared: int
    identical: int
    differing: tuple[str, ...] = ()
    error: str = ""

    @property
    def whole(self) -> bool:
        """Whether everything was compared and is identical."""
        return not self.error and self.compared == self.identical


@record
class UpstreamComparison:
    """The parts by name."""

    parts: Mapping[str, ComparedPart]

    @property
    def identical(self) -> bool:
        """Whether every part is whole."""
        return all(part.whole for part in self.parts.values())

    def describe_lines(self) -> tuple[str, ...]:
        """Return the comparison for a person, one line for each part."""
        return (*(f"{name}: {_describe_part(part)}" for name, part in self.parts.items()), DISCLAIMER)


def _describe_part(part: ComparedPart) -> str:
    if part.error:
        hint = (
            f"; name an interpreter that has what it needs: {_INTERPRETER}" if part.error.startswith(_LACKING) else ""
        )
        return f"not compared, upstream failed: {part.error}{hint}"
    more = (
        f"; different: {', '.join(part.differing[:SHOWN])}{', …' if len(part.differing) > SHOWN else ''}"
        if part.differing
        else ""
    )
    return f"{part.identical} of {part.compared} identical{more}"


def compare_upstream(
    environment: VeraMhEnvironment,
    results: Sequence[Result],
    upstream: str | Path,
    *,
    run: str = "run",
    python: str = sys.executable,
    timeout: float = TIMEOUT_S,
) -> UpstreamComparison:
    """Compare the graded conversations of a run with what upstream's code makes of them.

    Args:
        environment: the one that graded, with upstream's rubric.
        results: of the run, transcripts included; those without a grade are left out.
        upstream: the checkout's folder.
        run: names the run in the table of results.
        python: an interpreter that has what upstream needs.
        timeout: seconds for upstream's process.

    Raises:
        ConfigError: ``upstream`` is no checkout, or the run has another rubric.
        InputError: nothing is graded, or upstream's process failed.
    """
    folder = _check_folder(Path(upstream).expanduser(), environment)
    graded = sorted(
        (result for result in results if result.status == "graded"), key=lambda row: (row.task_id, row.rollout_index)
    )
    if not graded:
        raise InputError(
            "there is nothing to compare", where=run, found="no graded conversation", remedy="finish the run first"
        )
    cases = {f"{result.task_id}#{result.rollout_index}": _Case.from_result(result, environment) for result in graded}
    tables = make_files(graded, environment.rubric.dimensions, environment.risks, run)
    given = {
        "cases": [case.to_plain(name) for name, case in cases.items()],
        "results_csv": tables["results.csv"].decode(),
    }
    theirs = _ask_upstream(given, folder, python, timeout)
    return UpstreamComparison(
        {
            "assets": _compare_assets(folder),
            "persona prompts": _compare_each(
                theirs["persona prompts"], {name: case.prompt for name, case in cases.items()}
            ),
            "transcripts": _compare_each(
                theirs["transcripts"], {name: case.transcript for name, case in cases.items()}
            ),
            "message lists": _compare_each(theirs["message lists"], {name: case.lists for name, case in cases.items()}),
            "judge prompts": _compare_each(
                _pick_part(theirs["judgings"], "sent"), {name: case.sent for name, case in cases.items()}
            ),
            "ratings": _compare_each(
                _pick_part(theirs["judgings"], "ratings"), {name: case.ratings for name, case in cases.items()}
            ),
            "yes questions": _compare_each(
                _pick_part(theirs["judgings"], "yes"), {name: case.yes for name, case in cases.items()}
            ),
            "scores": _compare_each(_pick_scores(theirs["scores"]), _pick_scores(json.loads(tables["scores.json"]))),
        }
    )


@record
class _Case:
    """One conversation, and what we made of it."""

    persona: str
    prompt: str
    said: tuple[Utterance, ...]
    transcript: str
    lists: list[list[list[str]]]
    answers: list[list[str]]
    sent: list[list[str]]
    ratings: Mapping[str, str]
    yes: Mapping[str, str]

    @classmethod
    def from_result(cls, result: Result, environment: VeraMhEnvironment) -> _Case:
        details = result.outcome.details or {}
        said = list_utterances(result.transcript.messages)
        transcript = format_transcript(said)
        asked = [answer for answer in details["answers"] if answer["asked"]]
        return cls(
            details["persona"],
            environment.make_persona_prompt(details["persona"]),
            said,
            transcript,
            _list_messages(said, environment.reminder),
            [[answer["said"], answer["reasoning"]] for answer in asked],
            [environment.judge_prompt(transcript, answer["question_id"]) for answer in asked],
            details["ratings"],
            details["yes_question_ids"],
        )

    def to_plain(self, name: str) -> dict[str, Any]:
        said = [[utterance.speaker, utterance.text, utterance.ends] for utterance in self.said]
        return {
            "id": name,
            "persona": self.persona,
            "said": said,
            "transcript": self.transcript,
            "answers": self.answers,
        }


def _list_messages(said: Sequence[Utterance], reminder: str) -> list[list[list[str]]]:
    """Return what each side was sent before each turn but the first, without the system prompt."""
    return [
        _to_plain(
            (
                make_persona_messages("", reminder, said[:place])
                if utterance.speaker == "persona"
                else make_chatbot_messages("", said[:place])
            )[1:]
        )
        for place, utterance in enumerate(said)
        if place > 0
    ]


def _to_plain(messages: Sequence[Message]) -> list[list[str]]:
    return [[message.role, message.content] for message in messages]


def _check_folder(folder: Path, environment: VeraMhEnvironment) -> Path:
    for needed in ("judge/llm_judge.py", "generate_conversations/utils.py", "data/rubric.tsv"):
        if not (folder / needed).is_file():
            raise ConfigError(
                "this is no checkout of SpringCare/VERA-MH v1.2",
                field="upstream",
                found=str(folder),
                allowed=f"a folder with {needed}",
                remedy="git clone the repository, check out its tag v1.2.0, and give the folder",
            )
    if environment.profile != PROFILE:
        raise ConfigError(
            "only upstream's own rubric can be compared", field="rubrics", found=environment.profile, allowed=PROFILE
        )
    return folder.resolve()


def _compare_assets(folder: Path) -> ComparedPart:
    """Compare the checkout's files with those that are pinned, byte for byte: where one is another, so is what is made
    of it.
    """
    pins = [
        (pin, source.path)
        for pin in AssetStore().pins.values()
        for source in pin.sources
        if isinstance(source, RepositoryFile)
    ]
    ours = {path: pin.sha256 for pin, path in pins if pin.name in ASSETS and path.startswith("data/")}
    found = {path: sha256((folder / path).read_bytes()).hexdigest() for path in ours if (folder / path).is_file()}
    differing = tuple(path for path in ours if found.get(path) != ours[path])
    return ComparedPart(len(ours), len(ours) - len(differing), differing)


def _ask_upstream(given: Mapping[str, Any], folder: Path, python: str, timeout: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gavel-upstream-") as scratch:
        source, target = Path(scratch, "in.json"), Path(scratch, "out.json")
        source.write_text(json.dumps(given), encoding="utf-8")
        try:
            done = subprocess.run(
                [python, str(Path(upstream_worker.__file__)), str(source), str(target)],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as failed:
            raise InputError(
                "upstream's process did not end well", where=str(folder), found=shorten_value(str(failed), 300)
            ) from None
        if done.returncode or not target.is_file():
            raise InputError(
                "upstream's process failed",
                where=str(folder),
                found=shorten_value(done.stderr.strip()[-600:], 600),
                remedy=f"name an interpreter that has upstream's requirements: {_INTERPRETER}",
            )
        made: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        return made


def _pick_part(theirs: Mapping[str, Any], part: str) -> dict[str, Any]:
    if "error" in theirs:
        return dict(theirs)
    return {name: found.get(part, found) for name, found in theirs.items()}


def _pick_scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {name: scores[name] for name in ("error", *_SCORES) if name in scores}


def _compare_each(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> ComparedPart:
    if "error" in theirs and "error" not in ours:
        return ComparedPart(0, 0, error=str(theirs["error"]))
    # Compared as JSON values: upstream's came through JSON.
    differing = tuple(name for name, value in ours.items() if json.loads(json.dumps(value)) != theirs.get(name))
    return ComparedPart(len(ours), len(ours) - len(differing), differing)
