"""``gavel report RUN``: the run as one page (``html``), as Markdown or as CSV; of a training run its curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gavel.launch.report.page import make_report
from gavel.launch.report.source import RunSource
from gavel.launch.report.texts import format_csv, format_markdown
from gavel.launch.runs.files import write_whole

FORMATS: Mapping[str, Callable[[RunSource], bytes]] = {"html": make_report, "md": format_markdown, "csv": format_csv}


def write_report(path: Path, file: Path, form: str = "html") -> tuple[int, int]:
    """Write a report of the run at ``path``; return its size in bytes and the run's rows.

    Raises:
        RecordError: a damaged line.
        PersistenceError: it could not be written.
    """
    source = RunSource.open_run(path)
    source.refresh()
    data = FORMATS[form](source)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, data)
    return len(data), len(source.entries)
