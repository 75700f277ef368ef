"""Whether the config of a run folder was written by this user, and what a folder made elsewhere may not start without
being asked.

Every config that a command of this user writes is marked in the manifest with a keyed digest (HMAC-SHA256). The key is
random, is made when it is first needed, and stays in the user's state folder. A folder that was received, made by an
older version, or whose ``config.yaml`` was edited has no mark that fits.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from gavel.launch.runs.manifest import read_manifest
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.service import Service, get_config_key

_KEY_BYTES = 32


def mark_config(text: bytes) -> str | None:
    """Return the mark of a config that a command of this user writes; None where no key can be kept."""
    key = _read_key() or _make_key()
    return None if key is None else hmac.new(key, text, hashlib.sha256).hexdigest()


def is_written_here(path: Path) -> bool:
    """Whether the ``config.yaml`` of the run at ``path`` is as a command of this user wrote it.

    Raises:
        RecordError: the manifest is damaged.
    """
    manifest, key = read_manifest(path), _read_key()
    if manifest is None or manifest.config_mark is None or key is None:
        return False
    text = (path / "config.yaml").read_bytes()
    return hmac.compare_digest(hmac.new(key, text, hashlib.sha256).hexdigest().encode(), manifest.config_mark.encode())


def refuse_programs(path: Path, services: Mapping[str, Service]) -> None:
    """Refuse to start what a folder names that was made elsewhere.

    Args:
        path: the folder.
        services: those of its services that would be opened, by name.

    Raises:
        ConfigError: one of them is served here; says what would be started and which keys say so.
    """
    managed = {get_config_key(name): service for name, service in services.items() if service.mode == "managed"}
    if managed:
        raise ConfigError(
            "this run folder was not written by you here (or was edited since), and it would start programs",
            where=str(path),
            field=", ".join(managed),
            found="; ".join(_describe_program(key, service) for key, service in managed.items()),
            remedy=f"look at its config.yaml; if you trust it, say trust=true{_explain_no_key()}",
        )


def _describe_program(key: str, service: Service) -> str:
    by = f"{key}.python={service.python}" if service.python else "vLLM of this Python"
    arguments = f", {key}.engine_args={shorten_value(dict(service.engine_args))}" if service.engine_args else ""
    return f"{by} to serve {key}.model={service.model}{arguments}"


def _explain_no_key() -> str:
    if _read_key() is not None:
        return ""
    return (
        f" (your own folders are not known either: {_find_place()} cannot be written; XDG_STATE_HOME names "
        f"another place)"
    )


def _find_place() -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME") or "")  # its specification has relative paths ignored
    home = os.path.expanduser("~")  # noqa: PTH111 - `Path.expanduser` raises where there is no home
    return (base if base.is_absolute() else Path(home, ".local", "state")) / "gavel" / "key"


def _read_key() -> bytes | None:
    """Return the user's key; None where there is none, or where another user owns the file."""
    try:
        with _find_place().open("rb") as file:
            owner, key = os.fstat(file.fileno()).st_uid, file.read()
    except OSError:
        return None
    return key if owner == os.geteuid() and len(key) == _KEY_BYTES else None


def _make_key() -> bytes | None:
    """Make the key, unless another process was first; return the one that stands."""
    place = _find_place()
    new = place.with_name(f"key.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(new, place)  # whole or not at all, and the first one stays
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            new.unlink()
    return _read_key()
