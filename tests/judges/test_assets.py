from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.judges.support import DATA

from gavel.judges.assets import PROMPTS, AssetStore
from gavel.models.pinned import AssetError, make_cached_path

NAME = "omniscience_grader.txt"
SHA = "67c1b23042b6a089233ce8e2dd59702d1ae4ea030488e1ca5d9bf9e064336c9b"


def test_the_ported_prompt_has_the_pin_of_the_specification() -> None:
    pin = AssetStore(Path("unused")).get_pin(NAME)
    assert (pin.sha256, pin.size) == (SHA, 5725)


def test_every_shipped_prompt_has_its_pinned_bytes(tmp_path: Path) -> None:
    store = AssetStore(tmp_path, offline=True)
    shipped = sorted(path.name for path in PROMPTS.iterdir())
    assert shipped
    for name in shipped:
        assert store.read_text(name)


def test_an_unknown_asset_names_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match=NAME):
        AssetStore(tmp_path).get_pin("omniscience_grader.md")


@pytest.mark.skipif(not (DATA / NAME).is_file(), reason="no ../shared/data/abstention")
class TestPortedPrompt:
    def test_comes_from_a_mirror_without_a_network_and_then_from_the_cache(self, tmp_path: Path) -> None:
        text = AssetStore(tmp_path, mirror=DATA, offline=True).read_text(NAME)
        assert hashlib.sha256(text.encode()).hexdigest() == SHA
        assert AssetStore(tmp_path, offline=True).read_text(NAME) == text

    @pytest.mark.parametrize(
        ("change", "hint"),
        [
            (lambda data: bytes([data[0] ^ 1]) + data[1:], "take the file again"),
            (lambda data: data + b"\n", "a final newline was added"),
            (lambda data: data.replace(b"\n", b"\r\n"), "CRLF"),
        ],
        ids=["flipped_bit", "added_newline", "crlf"],
    )
    def test_with_other_bytes_is_refused_with_expected_and_found(
        self, tmp_path: Path, change: object, hint: str
    ) -> None:
        data = change((DATA / NAME).read_bytes())  # type: ignore[operator]
        mirror = tmp_path / "mirror"
        mirror.mkdir()
        (mirror / NAME).write_bytes(data)
        with pytest.raises(AssetError) as caught:
            AssetStore(tmp_path / "cache", mirror=mirror, offline=True).read_text(NAME)
        message = str(caught.value)
        assert SHA in message
        assert hashlib.sha256(data).hexdigest() in message
        assert hint in message
        assert not (tmp_path / "cache").exists()

    def test_that_changed_in_the_cache_is_refused(self, tmp_path: Path) -> None:
        store = AssetStore(tmp_path, mirror=DATA, offline=True)
        path = make_cached_path(store.get_pin(NAME), tmp_path)
        store.read_text(NAME)
        path.write_bytes(path.read_bytes() + b" ")
        with pytest.raises(AssetError, match="delete"):
            store.read_text(NAME)
