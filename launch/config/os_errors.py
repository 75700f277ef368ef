"""What the operating system refused, said with the config's key and what to do about it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gavel.models.errors import ConfigError

_ELSEWHERE = "choose another place"
REMEDIES: Mapping[int, str] = {
    errno.ENOSPC: "make room, then run the same command again: what was finished is kept",
    errno.EDQUOT: "make room, then run the same command again: what was finished is kept",
    errno.EACCES: f"change the permissions, or {_ELSEWHERE}",
    errno.EPERM: f"change the permissions, or {_ELSEWHERE}",
    errno.EROFS: f"nothing can be written there: {_ELSEWHERE}",
    errno.ENOENT: f"check the path; where it should be made, {_ELSEWHERE}",
    errno.ENOTDIR: f"a part of this path is a file, where a folder is needed: {_ELSEWHERE}, or move the file away",
    errno.EEXIST: f"a file stands where a folder is needed: {_ELSEWHERE}, or move the file away",
    errno.EISDIR: f"a folder stands where a file is needed: {_ELSEWHERE}, or move the folder away",
    errno.ENOTEMPTY: f"{_ELSEWHERE}, or empty the folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "its symbolic links lead in a circle: mend them",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or lower concurrency",
    errno.ENFILE: "close other programs, or lower concurrency",
    errno.EADDRINUSE: "something else listens there: choose another port, or 0 for any free one",
}
"""By error number; the others are rare enough to need the trace."""

_NO_REMEDY = "run again with --traceback to see where"


def explain_os_error(failed: OSError, config: object = None) -> ConfigError:
    """Return the error a user should see.

    Args:
        failed: what was raised; has a number.
        config: the verb's config as plain mappings, to find the key that led there; None where there is none yet.
    """
    path = os.fsdecode(failed.filename) if isinstance(failed.filename, str | bytes) else ""
    problem = failed.strerror or str(failed)
    return ConfigError(
        problem,
        where=path,
        field=_find_key(path, config) if path else "",
        remedy=REMEDIES.get(failed.errno or 0, _NO_REMEDY),
    )


def make_file_place(path: str, key: str) -> Path:
    """Return where a config's key puts a file, with its folder made.

    Raises:
        ConfigError: a folder stands there, or a file where a folder is needed.
    """
    file = Path(path).expanduser()
    if file.is_dir() or any(folder.exists() and not folder.is_dir() for folder in file.parents):
        number = errno.EISDIR if file.is_dir() else errno.ENOTDIR
        raise ConfigError(
            "no file can be written there",
            field=key,
            found=path,
            allowed="a new or an existing file",
            remedy=REMEDIES[number],
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _find_key(path: str, config: object) -> str:
    """Return the key of the longest path in the config that leads to ``path``; empty if none does."""
    wanted = Path(path).absolute()
    by_length = sorted(
        ((key, value) for key, value in _iter_texts(config, "") if value), key=lambda item: -len(item[1])
    )
    for key, value in by_length:
        named = Path(value).expanduser().absolute()
        if (wanted == named or named in wanted.parents) and named != Path(named.anchor):
            return key
    return ""


def _iter_texts(node: Any, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _iter_texts(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(node, list):
        for value in node:
            yield from _iter_texts(value, prefix)
    elif isinstance(node, str):
        yield prefix, node
