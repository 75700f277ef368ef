"""The journal of a run (``transcripts.jsonl``): every finished call, written before anything is done with it.

Each line is one event of one (task, rollout): ``opening`` (messages, receipts; left out where it is the task's own messages, which no
call made), ``reply`` (message, receipt), ``observe`` (messages, receipts) or ``answer`` (an answered judge question). Replaying the
lines of a row gives its transcript and the answers it has.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, ClassVar

from gavel.envs.episode import EpisodeState, make_reply_message
from gavel.envs.types import Observe, Opening
from gavel.judges.types import StoredAnswer
from gavel.launch.running.files import JsonLines, read_lines
from gavel.models.codec import decode, load, record, to_json
from gavel.models.errors import RecordError, shorten
from gavel.models.types import Completion, Message, Receipt

RowKey = tuple[str, int]
"""(task_id, rollout_index): the identity of a row."""


@record
class _Event:
    """A line of the journal; ``body`` is read by its event."""

    SCHEMA: ClassVar[str] = "gavel.journal/1"

    task_id: str
    rollout_index: int
    attempt: int
    event: str
    body: Mapping[str, Any]


@record
class _Reply:
    message: Message
    receipt: Receipt


def replay_event(state: EpisodeState, event: str, body: Mapping[str, Any], where: str) -> None:
    """Apply one stored event to an episode's state.

    Raises:
        RecordError: the event is unknown or does not fit.
    """
    if event == "opening":
        state.take_opening(decode(Opening, body, where=where))
    elif event == "reply":
        reply = decode(_Reply, body, where=where)
        state.take_reply(reply.message, reply.receipt)
    elif event == "observe":
        state.take_observation(decode(Observe, body, where=where))
    elif event == "answer":
        answer = decode(StoredAnswer, body, where=where)
        state.answers[answer.key] = answer
    else:
        raise RecordError("unknown event", where=where, field="event", found=shorten(event))


class RowJournal:
    """Writes one row's events and keeps its state; also the row's answer log for the judge."""

    __slots__ = ("_head", "_log", "state")

    def __init__(self, log: JsonLines, key: RowKey, attempt: int, state: EpisodeState) -> None:
        self._log, self.state = log, state
        self._head = to_json({"schema": _Event.SCHEMA, "task_id": key[0], "rollout_index": key[1], "attempt": attempt})[:-1]

    def _write(self, event: bytes, body: object) -> None:
        self._log.append(b'%s,"event":"%s","body":%s}' % (self._head, event, to_json(body)))

    def add_opening(self, opening: Opening, *, own: bool) -> None:
        """Store the opening, unless it is the task's ``own`` messages: they stand in ``inputs.jsonl`` already."""
        if not own:
            self._write(b"opening", opening)
        self.state.take_opening(opening)

    def add_reply(self, completion: Completion) -> None:
        """Store a reply of the policy."""
        message = make_reply_message(completion)
        self._write(b"reply", {"message": message, "receipt": completion.receipt})
        self.state.take_reply(message, completion.receipt)

    def add_observation(self, observed: Observe) -> None:
        """Store what the environment said."""
        self._write(b"observe", observed)
        self.state.take_observation(observed)

    def find(self, key: str) -> StoredAnswer | None:
        """Return the answer to a judge question asked before."""
        return self.state.answers.get(key)

    def keep(self, answer: StoredAnswer) -> None:
        """Store an answered judge question."""
        self._write(b"answer", answer)
        self.state.answers[answer.key] = answer


def read_journal(path: Path, tasks: Mapping[str, tuple[Message, ...]], skip: Container[RowKey] = ()) -> dict[RowKey, EpisodeState]:
    """Replay a journal.

    Args:
        path: the journal; a missing one is empty.
        tasks: each task's own messages by its id, where an episode starts whose opening was not stored.
        skip: rows that are passed over.

    Raises:
        RecordError: names the file and the line.
    """
    rows: dict[RowKey, EpisodeState] = {}
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        task_id, rollout_index = line.get("task_id"), line.get("rollout_index")
        if isinstance(task_id, str) and isinstance(rollout_index, int) and (task_id, rollout_index) in skip:
            continue
        event = load(_Event, line, where=where)
        state = rows.setdefault((event.task_id, event.rollout_index), EpisodeState())
        if state.messages is None and event.event == "reply":
            state.messages = tasks.get(event.task_id, ())
        replay_event(state, event.event, event.body, where)
    return rows
