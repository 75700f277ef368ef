"""Who meets in a duel: a run's graded replies, or a file of replies from anywhere."""

from __future__ import annotations

from pathlib import Path

from gavel.envs.messages import read_messages
from gavel.envs.rows import read_rows
from gavel.envs.types import Task, TaskError, Transcript
from gavel.launch.comparing.duels import Contestant
from gavel.launch.runs.existing import find_existing_run
from gavel.launch.runs.folder import read_results
from gavel.launch.runs.inputs import read_inputs
from gavel.models.calls.quirks import STOP
from gavel.models.errors import shorten_value
from gavel.models.types import Message, Reply

_QUESTIONS = ("messages", "prompt", "question")


def read_contestant(text: str, name: str) -> Contestant:
    """Read a run folder, or a file of rows ``{id, prompt, reply}`` (``question`` or ``messages`` do as well; other
    fields are kept).

    Args:
        text: the path.
        name: what the contestant is called.

    Raises:
        RunFolderError: there is no run and no file.
        TaskError: a line lacks what is asked about; names file, line and field.
    """
    path = Path(text).expanduser()
    return _read_file(path, name) if path.is_file() else _read_run(find_existing_run(text, "duel"), name)


def _read_run(path: Path, name: str) -> Contestant:
    planned = {row.key: row.task for row in read_inputs(path)}
    rows = {
        (result.task_id, result.rollout_index): (planned[result.task_id, result.rollout_index], result.transcript)
        for result in read_results(path)
        if result.status == "graded" and (result.task_id, result.rollout_index) in planned
    }
    return Contestant(name, rows, len(planned) - len(rows))


def _read_file(path: Path, name: str) -> Contestant:
    replies: dict[tuple[str, int], tuple[Task, Transcript]] = {}
    for line in read_rows(path):
        if line.error is not None:
            raise line.error
        where, row = f"{path}:{line.number}", line.row
        task_id, reply = row.get("id"), row.get("reply")
        asked = next((field for field in _QUESTIONS if row.get(field) is not None), _QUESTIONS[1])
        for field, value in (("id", task_id), ("reply", reply)):
            if not isinstance(value, str):
                raise TaskError("this is not a text", where=where, field=field, found=shorten_value(value))
        try:
            messages = read_messages(row.get(asked), asked)
        except TaskError as failed:
            raise failed.copy_with(where=where) from None
        target = {key: value for key, value in row.items() if key not in ("id", "reply", asked)}
        rollout = sum(key[0] == task_id for key in replies)
        task = Task(str(task_id), "", "", messages, target, target)
        said = Message("assistant", str(reply), Reply(str(reply), STOP, name))
        replies[str(task_id), rollout] = task, Transcript((*messages, said))
    return Contestant(name, replies)
