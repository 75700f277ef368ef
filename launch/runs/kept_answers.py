"""A panel that grows: what its old members said is kept, so that only the new ones are asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gavel.envs.episode import EpisodeState
from gavel.judges.answers import make_answer_key
from gavel.judges.bindings import make_member_name
from gavel.judges.panels import SAMPLE_STEP
from gavel.judges.types import JudgeQuery, StoredAnswer
from gavel.launch.runs.folder import RunFolder
from gavel.launch.runs.identity import RunIdentity
from gavel.launch.runs.journal import RowJournal, RowKey, read_journal
from gavel.launch.runs.manifest import Manifest
from gavel.models.codec import to_plain

_MOST_SAMPLES = 10


def find_kept_members(parent: Manifest, child: RunIdentity) -> dict[str, str]:
    """Return whose answers a regraded run keeps: the binding they were asked under -> the member's now.

    A judge keeps its answers where another joins it: as one of a panel that has a judge which its parent lacks, under
    the same rubric. A regrade that adds no judge asks all of them anew.
    """
    kept: dict[str, str] = {}
    for name, new in child.bindings.items():
        old = parent.identity.bindings.get(name)
        if old is None or "members" not in new or old.get("rubric") != new.get("rubric"):
            continue
        before = _list_judges(name, to_plain(old))
        now = _list_judges(name, to_plain(new))
        if set(now) - set(before):
            kept |= {before[judge]: now[judge] for judge in before if judge in now}
    return kept


def _list_judges(name: str, binding: Mapping[str, Any]) -> dict[str, str]:
    """Return under what binding each judge is asked, by its identity."""
    members: Mapping[str, Mapping[str, Any]] | None = binding.get("members")
    if members is None:
        return {str(binding.get("identity")): name}
    return {str(member["identity"]): make_member_name(name, service) for service, member in members.items()}


def rename_answers(answers: Iterable[StoredAnswer], kept: Mapping[str, str]) -> dict[str, StoredAnswer]:
    """Return the answers of kept judges, by the keys of their bindings now."""
    found = {}
    for answer in answers:
        name, sample = kept.get(answer.binding), _find_sample(answer)
        if name is not None and sample is not None:
            key = make_answer_key(JudgeQuery(name, answer.slots, sample=sample), answer.rubric_digest)
            found[key] = replace(answer, key=key, binding=name)
    return found


def _find_sample(answer: StoredAnswer) -> int | None:
    """Return which sample an answer is, as its key says; None where it is another one than panels ask for."""
    for number in range(_MOST_SAMPLES):
        query = JudgeQuery(answer.binding, answer.slots, sample=number * SAMPLE_STEP)
        if make_answer_key(query, answer.rubric_digest) == answer.key:
            return query.sample
    return None


def keep_answers(folder: RunFolder, states: Mapping[RowKey, EpisodeState], kept: Iterable[str]) -> None:
    """Write the answers that ``kept`` judges gave in the parent into a run's own journal, each once."""
    names = frozenset(kept)
    if not names:
        return
    known = read_journal(folder.path / "transcripts.jsonl", {})
    for key, state in states.items():
        stored = known.get(key, EpisodeState())
        journal = RowJournal(folder.journal, key, 1, stored)
        for answer in state.answers.values():
            if answer.binding in names and answer.key not in stored.answers:
                journal.keep(answer)
