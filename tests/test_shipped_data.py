"""The page on our data names every file we ship, and says how large each is."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


def test_every_shipped_data_file_stands_in_the_table_with_its_size_and_a_licence() -> None:
    table = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for path in sorted(ROOT.glob("envs/*/data/*")):
        name = path.relative_to(ROOT).as_posix()
        (row,) = [line for line in table if line.startswith(f"| `{name}`")]
        assert row.rstrip(" |").endswith(("CC0-1.0", "Apache-2.0")), row
        assert str(len(path.read_bytes().splitlines())) in row, row


def test_every_shipped_text_of_a_rubric_is_named() -> None:
    for path in sorted((ROOT / "judges" / "prompts").iterdir()):
        assert f"`{path.name}`" in PAGE, path.name
