"""The journal of a run (``transcripts.jsonl``): every finished call, written before anything is done with it.

Each line is one event of one (task, rollout): ``opening`` (messages, receipts; left out where it is the task's own
messages, which no call made), ``reply`` (message, receipt), ``observe`` (messages, receipts) or ``answer`` (an answered
judge question). Replaying the lines of a row gives its transcript and the answers it has.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from gavel.envs.episode import EpisodeState, make_reply_message
from gavel.envs.types import Observe, Opening
from gavel.judges.types import StoredAnswer
from gavel.launch.runs.files import JsonLines, Tell, parse_line, read_places, refuse_fault
from gavel.models.codec import decode, load, record, to_json
from gavel.models.errors import RecordError, shorten_value
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
        state.take_opening(decode(Opening, body, where=where, parsed=True))
    elif event == "reply":
        reply = decode(_Reply, body, where=where, parsed=True)
        state.take_reply(reply.message, reply.receipt)
    elif event == "observe":
        state.take_observation(decode(Observe, body, where=where, parsed=True))
    elif event == "answer":
        answer = decode(StoredAnswer, body, where=where, parsed=True)
        state.answers[answer.key] = answer
    else:
        raise RecordError("unknown event", where=where, field="event", found=shorten_value(event))


class RowJournal:
    """Writes one row's events and keeps its state; also the row's answer log for the judge."""

    __slots__ = ("_head", "_log", "state")

    def __init__(self, log: JsonLines, key: RowKey, attempt: int, state: EpisodeState) -> None:
        self._log, self.state = log, state
        self._head = to_json({"schema": _Event.SCHEMA, "task_id": key[0], "rollout_index": key[1], "attempt": attempt})[
            :-1
        ]

    def _write_event(self, event: bytes, body: object) -> None:
        self._log.append(b'%s,"event":"%s","body":%s}' % (self._head, event, to_json(body)))

    def add_opening(self, opening: Opening, *, own: bool) -> None:
        """Store the opening, unless it is the task's ``own`` messages: they stand in ``inputs.jsonl`` already."""
        if not own:
            self._write_event(b"opening", opening)
        self.state.take_opening(opening)

    def add_reply(self, completion: Completion) -> None:
        """Store a reply of the policy."""
        message = make_reply_message(completion)
        self._write_event(b"reply", {"message": message, "receipt": completion.receipt})
        self.state.take_reply(message, completion.receipt)

    def add_observation(self, observed: Observe) -> None:
        """Store what the environment said."""
        self._write_event(b"observe", observed)
        self.state.take_observation(observed)

    def find(self, key: str) -> StoredAnswer | None:
        """Return the answer to a judge question asked before."""
        return self.state.answers.get(key)

    def keep(self, answer: StoredAnswer) -> None:
        """Store an answered judge question."""
        self._write_event(b"answer", answer)
        self.state.answers[answer.key] = answer


class StoredJournal:
    """A journal by row: where each row's lines begin, so that memory holds places and not texts.

    Args:
        path: the journal; a missing one is empty.
        tasks: each task's own messages by its id, where an episode starts whose opening was not stored.
        tell: told of each line that cannot be read, which is then left out, and of each that was changed.
    """

    def __init__(self, path: Path, tasks: Mapping[str, tuple[Message, ...]], tell: Tell = refuse_fault) -> None:
        self._path, self._tasks, self._tell = path, tasks, tell
        self._places: dict[RowKey, list[tuple[int, int]]] = {}
        for offset, number, line in read_places(path, tell):
            task_id, rollout_index = line.get("task_id"), line.get("rollout_index")
            if isinstance(task_id, str) and isinstance(rollout_index, int):
                self._places.setdefault((task_id, rollout_index), []).append((offset, number))
            else:
                field = "rollout_index" if isinstance(task_id, str) else "task_id"
                tell(
                    RecordError(
                        "this line names no row",
                        where=f"{path}:{number}",
                        field=field,
                        found=shorten_value(line.get(field)),
                    )
                )

    def list_rows(self) -> Iterable[RowKey]:
        """Return the rows that have a line."""
        return self._places.keys()

    def read_state(self, key: RowKey) -> EpisodeState | None:
        """Replay a row's lines; None where it has none.

        Raises:
            RecordError: a line that is no event, unless ``tell`` took it; names the file and the line.
        """
        if key not in self._places:
            return None
        state = EpisodeState()
        with self._path.open("rb") as lines:
            for offset, number in self._places[key]:
                lines.seek(offset)
                where = f"{self._path}:{number}"
                try:
                    event = load(_Event, parse_line(lines.readline(), where)[0], where=where, parsed=True)
                    if state.messages is None and event.event == "reply":
                        state.messages = self._tasks.get(event.task_id, ())
                    replay_event(state, event.event, event.body, where)
                except RecordError as fault:
                    self._tell(fault)
        return state


def read_journal(
    path: Path, tasks: Mapping[str, tuple[Message, ...]], skip: Container[RowKey] = ()
) -> dict[RowKey, EpisodeState]:
    """Replay a journal; see ``StoredJournal``.

    Args:
        path: the journal.
        tasks: each task's own messages by its id.
        skip: rows that are passed over.

    Raises:
        RecordError: names the file and the line.
    """
    journal = StoredJournal(path, tasks)
    states = ((key, journal.read_state(key)) for key in journal.list_rows() if key not in skip)
    return {key: state for key, state in states if state is not None}
