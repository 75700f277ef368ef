"""Reading a server's log: its tail for errors, and the stages of its start-up for the progress line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TAIL_LINES = 15
_TAIL_BYTES = 16384
_LINE_LIMIT = 200

_PREFIX = re.compile(r"^\(\w+(?: pid=\d+)?\) (?=\w)")
_NOISE = re.compile(
    r"^\s*$|^# \d{4}-|\[launcher\.py:\d+\] "
    r"Route:|[█▄▀]|DeprecationWarning|FutureWarning|^\s+warnings\.warn\(|Triton is "
    r"|nanobind|- leaked |skipped remainder|HTTP/1\.\d\" 200"
)
"""Lines that never say why a server ended."""

_CAUSE = re.compile(r"[\w.]*(?:Error|Exception)\b: .*")

_STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Initializing a V\d LLM engine|Initializing an? LLM engine"), "engine is starting"),
    (re.compile(r"Downloading|Fetching \d+ files:\s+(\d+)%"), "downloading weights"),
    (re.compile(r"Starting to load model"), "loading weights"),
    (re.compile(r"checkpoint shards:\s+(\d+)% Completed"), "loading weights {0} %"),
    (re.compile(r"Loading weights took ([\d.]+)"), "weights loaded"),
    (re.compile(r"Compiling a graph|Dynamo bytecode transform|torch\.compile takes"), "compiling"),
    (re.compile(r"KV cache size: ([\d,]+) tokens"), "KV cache of {0} tokens"),
    (re.compile(r"Capturing CUDA graphs?.*?(\d+)%"), "capturing CUDA graphs {0} %"),
    (re.compile(r"Application startup complete"), "server is up"),
)
"""Lines of vLLM 0.10 to 0.32 that mark a stage, in order of time."""


def read_tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return the last ``lines`` telling lines of a log, each cut to 200 characters; empty if there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    kept = [_PREFIX.sub("", line)[:_LINE_LIMIT] for line in re.split(r"[\r\n]+", text) if not _NOISE.search(line)]
    return "\n".join(kept[-lines:])


def read_gist(path: Path, lines: int = 3) -> str:
    """Return in one line why a server ended: the last exceptions in its log's end, or else its last lines."""
    last = read_tail(path, 60).splitlines()
    causes = dict.fromkeys(found[0] for line in last if (found := _CAUSE.search(line)))
    return " | ".join([*causes][-lines:] or last[-lines:])


def find_stage(line: str) -> str | None:
    """Return what start-up stage a log line marks, in words; None for all other lines."""
    for pattern, words in _STAGES:
        if found := pattern.search(line):
            return words.format(*found.groups())
    return None


class LogReader:
    """Yields the new lines of a growing log."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path, self._offset, self._rest = path, offset, ""

    def read_lines(self) -> Iterator[str]:
        """Yield the complete lines since the last call; carriage returns of progress bars end a line as well."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        self._offset += len(data)
        *complete, self._rest = re.split(r"[\r\n]+", self._rest + data.decode(errors="replace"))
        yield from complete


class Stages:
    """A server's start-up in words: each new stage, and every ``every`` seconds the one that lasts.

    Args:
        reader: of its log.
        began: when it was started; times are monotonic seconds.
        every: the longest silence, in seconds.
    """

    def __init__(self, reader: LogReader, began: float, every: float) -> None:
        self._reader, self._began, self._every = reader, began, every
        self._stage, self._told = "the process is starting", began

    def read_stage(self, now: float) -> str | None:
        """Return what to say at ``now``, or None if nothing is new and the last line is not ``every`` seconds old."""
        found = [words for words in map(find_stage, self._reader.read_lines()) if words]
        if not found and now - self._told < self._every:
            return None
        self._stage, self._told = found[-1] if found else self._stage, now
        return f"{self._stage} ({now - self._began:.0f} s)"
