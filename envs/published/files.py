"""The files that figures are computed from: public, pinned by size and SHA-256, fetched when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gavel.models.pinned import Pin, RepositoryFile, find_default_cache, locate_pin


@cache
def read_pins() -> Mapping[str, Pin]:
    """Return every pin by its place in a folder of copies: ``OWNER/NAME/PATH``.

    ``pins.tsv`` has a line for each repository (name, commit) and below it its files (SHA-256, bytes, path).
    """
    found: dict[str, Pin] = {}
    repository = commit = ""
    for line in (resources.files(__package__) / "pins.tsv").read_text(encoding="utf-8").splitlines():
        first, *rest = line.split("\t")
        if first:
            repository, commit = first, rest[0]
            continue
        digest, size, path = rest
        name = f"{repository}/{path}"
        found[name] = Pin(name, digest, int(size), (RepositoryFile(repository, commit, path),))
    return MappingProxyType(found)


class PublishedFiles:
    """Reads pinned files.

    Args:
        data: a folder with copies, tried first.
        cache: for what is fetched; None: the user's.
        offline: fetch nothing.
    """

    def __init__(self, data: Path | None = None, cache: Path | None = None, *, offline: bool = False) -> None:
        self._data, self._cache, self._offline = data, cache or find_default_cache(), offline

    def read_text(self, name: str) -> str:
        """Return a file.

        Raises:
            AssetError: it cannot be had, or its bytes are not the pinned ones.
        """
        pin = read_pins()[name]
        path = locate_pin(pin, cache=self._cache, mirror=self._data, offline=self._offline)
        return path.read_text(encoding="utf-8-sig")

    def read_rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a file of JSON lines.

        Raises:
            AssetError: as ``read_text``.
        """
        for line in self.read_text(name).splitlines():
            if line.strip():
                yield json.loads(line)
