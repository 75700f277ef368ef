"""Where a config's task file lies."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

_PACKAGE = "pkg:"


def resolve_task_path(text: str) -> Path:
    """Return the file a config names; ``pkg:`` stands for the folder of the installed package."""
    if text.startswith(_PACKAGE):
        return Path(str(resources.files("gavel"))) / text.removeprefix(_PACKAGE)
    return Path(text).expanduser()
