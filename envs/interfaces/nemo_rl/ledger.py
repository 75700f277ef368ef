"""The ledger of an actor: what every sample came to, and every answered judge question, kept over a death of the actor.

``<env>.rows.jsonl`` holds one row for each (uid, turn) that ended an episode, with the whole result, for comparing
runs; ``<env>.answers.jsonl`` the judge's answers of rows that were being graded. A replayed step finds both and repeats
neither.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import orjson

from gavel.envs.types import Result
from gavel.judges.types import StoredAnswer
from gavel.models.codec import decode, record, to_json
from gavel.models.errors import RecordError, shorten_value
from gavel.models.failures import Failure
from gavel.models.files import JsonLines, PersistenceError

SCHEMA = "gavel.ledger/1"
STEPS_SCHEMA = "gavel.steps/1"
TAIL_BYTES = 64 << 20
"""Read back at the start: only samples of the step under way can be asked for again."""
KEPT = 65_536
"""Verdicts and rows' answers held in memory."""


@record
class SampleVerdict:
    """What became of one sample.

    ``reward`` and ``components`` are set exactly where it is graded, ``failure`` exactly where not.
    """

    uid: str
    turn: int
    env: str
    label: str
    reward: float | None
    components: Mapping[str, float]
    failure: Failure | None
    calls: int
    seconds: float

    SCHEMA: ClassVar[str] = "gavel.verdict/1"

    def __post_init__(self) -> None:
        if (self.reward is None) == (self.failure is None):
            raise ValueError(f"a verdict has a reward or a failure: {self.reward}, {self.failure}")

    @property
    def graded(self) -> bool:
        """Whether there is a grade."""
        return self.failure is None


def make_verdict(uid: str, turn: int, env: str, result: Result) -> SampleVerdict:
    """Return the verdict of a result."""
    reward = result.reward
    return SampleVerdict(
        uid,
        turn,
        env,
        result.outcome.label,
        reward.value if reward else None,
        reward.components if reward else {},
        result.outcome.failure,
        len(result.receipts),
        result.timing.total_s,
    )


class Ledger:
    """Verdicts by uid, written before they are told.

    Args:
        folder: made if need be; None keeps everything in memory only.
        env: the environment's name among those of a training, first part of the files' names.

    Raises:
        PersistenceError: there is a folder, and nothing can be written into it.
    """

    def __init__(self, folder: Path | None, env: str) -> None:
        self.env = env
        self._verdicts: OrderedDict[str, SampleVerdict] = OrderedDict()
        self._answers: OrderedDict[tuple[str, int], dict[str, StoredAnswer]] = OrderedDict()
        self._rows: JsonLines | None = None
        self._asked: JsonLines | None = None
        if folder is not None:
            rows, asked = folder / f"{env}.rows.jsonl", folder / f"{env}.answers.jsonl"
            self._rows, self._asked = _open_file(rows), _open_file(asked)  # repairs torn tails first
            self._read_files(rows, asked)

    def find(self, uid: str) -> SampleVerdict | None:
        """Return the verdict on a sample, if it has one."""
        return self._verdicts.get(uid)

    def add(self, uid: str, turn: int, split: str, result: Result) -> SampleVerdict:
        """Store how a sample ended; the first ending stands.

        Raises:
            PersistenceError: it could not be written, and is then not known.
        """
        known = self._verdicts.get(uid)
        if known is not None:
            return known
        verdict = make_verdict(uid, turn, self.env, result)
        if self._rows is not None:
            head = {"schema": SCHEMA, "uid": uid, "turn": turn, "split": split}
            self._rows.append(b'%s,"verdict":%s,"result":%s}' % (to_json(head)[:-1], to_json(verdict), to_json(result)))
        self._remember_verdict(verdict)
        self._answers.pop((uid, turn), None)
        return verdict

    def hold_verdict(self, verdict: SampleVerdict) -> None:
        """Keep a verdict that could not be stored, so that its reason can be told; it dies with this process."""
        self._remember_verdict(verdict)

    def get_answers(self, uid: str, turn: int) -> RowAnswers:
        """Return the answer log of a sample's step, for ``judges.answers.keep_answers``."""
        return RowAnswers(self, uid, turn)

    def keep_answer(self, uid: str, turn: int, answer: StoredAnswer) -> None:
        """Store an answered judge question.

        Raises:
            PersistenceError: it could not be written.
        """
        self._take_answer(uid, turn, answer)
        if self._asked is not None:
            self._asked.append(to_json({"uid": uid, "turn": turn, "answer": answer}))

    def find_answer(self, uid: str, turn: int, key: str) -> StoredAnswer | None:
        """Return the answer to a question of a step, if it was asked before."""
        return self._answers.get((uid, turn), {}).get(key)

    def tidy_answers(self) -> None:
        """Empty the file of answers once it is large and no row under way has any, for they serve nothing else; make
        files again that somebody has removed: what is appended to those would be lost.

        Raises:
            PersistenceError: a file cannot be made again.
        """
        if self._rows is not None and not self._rows.path.exists():
            self._rows = _open_again(self._rows)
        if self._asked is None:
            return
        if not self._asked.path.exists():
            self._asked = _open_again(self._asked)
        elif not self._answers and self._asked.path.stat().st_size > TAIL_BYTES:
            self._asked.path.unlink()
            self._asked = _open_again(self._asked)

    def close(self) -> None:
        """Close the files."""
        for file in (self._rows, self._asked):
            if file is not None:
                file.close()

    def _read_files(self, rows: Path, asked: Path) -> None:
        for row in _read_tail(rows):
            self._remember_verdict(decode(SampleVerdict, row["verdict"], where=str(rows)))
        for line in _read_tail(asked):
            if line["uid"] not in self._verdicts:
                self._take_answer(line["uid"], line["turn"], decode(StoredAnswer, line["answer"], where=str(asked)))

    def _remember_verdict(self, verdict: SampleVerdict) -> None:
        self._verdicts[verdict.uid] = verdict
        if len(self._verdicts) > KEPT:
            self._verdicts.popitem(last=False)

    def _take_answer(self, uid: str, turn: int, answer: StoredAnswer) -> None:
        self._answers.setdefault((uid, turn), {})[answer.key] = answer
        if len(self._answers) > KEPT:
            self._answers.popitem(last=False)


class RowAnswers:
    """The answered judge questions of one step of one sample."""

    __slots__ = ("_ledger", "_turn", "_uid")

    def __init__(self, ledger: Ledger, uid: str, turn: int) -> None:
        self._ledger, self._uid, self._turn = ledger, uid, turn

    def find(self, key: str) -> StoredAnswer | None:
        """Return the answer to a judge question asked before."""
        return self._ledger.find_answer(self._uid, self._turn, key)

    def keep(self, answer: StoredAnswer) -> None:
        """Store an answered judge question."""
        self._ledger.keep_answer(self._uid, self._turn, answer)


class StepLedger:
    """``steps.jsonl``: which samples each step of the trainer used and with what weight, which an environment cannot
    know.

    Each row names the start of the trainer that wrote it: a step may train on samples of an earlier start, out of a
    replay buffer.
    """

    def __init__(self, folder: Path) -> None:
        self._file = _open_file(folder / "steps.jsonl")
        self._start = os.urandom(6).hex()

    def add(self, step: int, split: str, weights: Mapping[str, float]) -> None:
        """Store one step: uid -> weight in the loss (validation: 1 where it counts, else 0).

        Raises:
            PersistenceError: it could not be written.
        """
        rows = [
            {"schema": STEPS_SCHEMA, "step": step, "split": split, "uid": uid, "weight": weight, "start": self._start}
            for uid, weight in weights.items()
        ]
        if rows:
            self._file.append(b"\n".join(map(to_json, rows)))  # all of a step or nothing

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_start(row: Mapping[str, Any]) -> str:
    """Return what the rows of one start of a trainer share: ``start``, in older ledgers the head of ``uid``."""
    return str(row.get("start") or str(row["uid"]).rpartition("-")[0])


def _read_tail(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of the file's last ``TAIL_BYTES``, from the first whole line on."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size > TAIL_BYTES:
            file.seek(size - TAIL_BYTES)
            file.readline()
        for line in file:
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as failed:
                raise RecordError(
                    "this ledger has a line that is no JSON",
                    where=str(path),
                    found=shorten_value(line.decode("utf-8", "replace")),
                    remedy="take the line out (keep a copy) and start again",
                ) from failed


def encode_verdicts(verdicts: Sequence[SampleVerdict | None]) -> bytes:
    """Return verdicts as one JSON text: what carries them to the driver may lack this package."""
    return to_json(verdicts)


def decode_verdicts(raw: bytes) -> list[SampleVerdict | None]:
    """Read what ``encode_verdicts`` made."""
    return decode(list[SampleVerdict | None], raw)


def _open_file(path: Path) -> JsonLines:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return JsonLines(path)
    except OSError as failed:
        raise PersistenceError(
            f"{path}: could not be opened: {failed.strerror}\n  fix:     name a folder that can be written to (ledger)"
        ) from failed


def _open_again(file: JsonLines) -> JsonLines:
    file.close()
    return _open_file(file.path)
