"""The asset store: texts that grading depends on, each pinned in ``provenance.json`` and refused when it drifts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from gavel.models.codec import decode, record
from gavel.models.errors import find_nearest
from gavel.models.pinned import AssetError, Pin, find_default_cache, locate_pin, verify_file, verify_pin

_HERE = Path(__file__).parent
PROVENANCE = _HERE / "provenance.json"
PROMPTS = _HERE / "prompts"
"""Texts of our own that ship with the package; they are pinned like the others."""


class AssetStore:
    """Finds pinned assets by name.

    Args:
        cache: directory for verified copies; None for the user's cache (``models.pinned.find_default_cache``).
        mirror: directory tried before any download, each file under its name.
        offline: forbids downloads.
    """

    def __init__(self, cache: Path | None = None, mirror: Path | None = None, offline: bool = False) -> None:
        self.cache = cache or find_default_cache()
        self.mirror, self.offline = mirror, offline

    @cached_property
    def pins(self) -> Mapping[str, Pin]:
        """The provenance table: every pinned asset by name."""
        pins = decode(tuple[Pin, ...], PROVENANCE.read_bytes(), where=PROVENANCE.name)
        return {pin.name: pin for pin in pins}

    def get_pin(self, name: str) -> Pin:
        """Return the pin of an asset.

        Raises:
            AssetError: there is no asset of this name; says the nearest ones.
        """
        try:
            return self.pins[name]
        except KeyError:
            raise AssetError(
                "there is no such asset",
                field=name,
                allowed=", ".join(find_nearest(name, self.pins) or sorted(self.pins)),
            ) from None

    def locate_asset(self, name: str) -> Path:
        """Return the path of a verified copy, fetching it if need be.

        Raises:
            AssetError: unknown name, no source has it, or its bytes are not the pinned ones.
        """
        pin = self.get_pin(name)
        shipped = PROMPTS / name
        if not shipped.is_file():
            self._check_mirror(pin)
            return locate_pin(pin, cache=self.cache, mirror=self.mirror, offline=self.offline)
        verify_file(
            pin,
            shipped,
            remedy="install the package again; a changed prompt is another rubric and needs a profile of its own",
        )
        return shipped

    def _check_mirror(self, pin: Pin) -> None:
        """Refuse a mirror that has drifted, though a good copy may be at hand: what names a mirror relies on it."""
        if self.mirror is None:
            return
        with suppress(OSError):  # one that cannot be read is passed over, as it is where a file is looked for
            verify_pin(pin, (self.mirror / pin.name).read_bytes(), str(self.mirror / pin.name))

    def read_text(self, name: str) -> str:
        """Return an asset's text (UTF-8, no newline translated).

        Raises:
            AssetError: as ``locate_asset``.
        """
        return self.locate_asset(name).read_bytes().decode()


@record
class AssetsConfig:
    """Where pinned assets are kept and looked for: ``cache`` (None: the user's cache folder), ``mirror`` (a folder
    tried first), ``offline`` forbids downloads. ``replies`` is the file of the replies that services with ``cache``
    keep, on a disk of this machine (None: in the user's cache folder, or below the folder for temporary files where
    that lies on a network)."""

    cache: str | None = None
    mirror: str | None = None
    offline: bool = False
    replies: str | None = None

    def make_store(self) -> AssetStore:
        """Return the asset store this names."""
        cache = Path(self.cache).expanduser() if self.cache else find_default_cache()
        return AssetStore(cache, Path(self.mirror).expanduser() if self.mirror else None, self.offline)
