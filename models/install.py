"""What to install for a part of gavel that needs more than its core."""

from __future__ import annotations

_NOTES = {"cpu": " (needs Python 3.11, which the CPU build of vLLM is made for)"}


def install_hint(extra: str) -> str:
    """Return the instruction that installs an extra of this package: it is in no index, so pip gets it from a clone."""
    return f"in the clone of gavel: pip install -e '.[{extra}]'{_NOTES.get(extra, '')}"
