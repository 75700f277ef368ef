"""Append-only files: what was appended stands, a torn tail is cut and kept, a broken line is named."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.launch.runs.files import JsonLines, parse_line, read_lines, write_whole
from gavel.launch.runs.lease import STALE_S, FolderLock, Lease, RunFolderError, find_holder
from gavel.launch.training.judge.folder import read_job
from gavel.launch.training.start import find_job
from gavel.models.errors import RecordError
from gavel.models.files import read_object

DOCUMENTS = st.lists(
    st.dictionaries(st.text(max_size=8), st.text(max_size=40) | st.integers(-(2**53), 2**53)), min_size=1, max_size=8
)


@given(DOCUMENTS, st.data())
def test_cut_at_any_byte_whole_lines_stay_and_appending_goes_on(
    documents: list[dict[str, object]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "rows.jsonl"
        with JsonLines(path) as file:
            for document in documents:
                file.append(orjson.dumps(document))
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        kept = [document for _, document in read_lines(path)]
        assert kept == documents[: whole[:cut].count(b"\n")]
        with JsonLines(path) as file:
            file.append(b'{"new":1}')
        assert [document for _, document in read_lines(path)] == [*kept, {"new": 1}]
        torn = whole[:cut].rsplit(b"\n", 1)[-1]
        assert (path.with_name("rows.jsonl.torn").read_bytes() == torn + b"\n") if torn else True


def test_a_broken_line_in_the_middle_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a":1}\nnot json\n{"a":2}\n')
    with pytest.raises(RecordError) as caught:
        list(read_lines(path))
    assert f"{path}:2" in str(caught.value)
    assert "not json" in str(caught.value)


def test_a_whole_write_leaves_no_part_behind(tmp_path: Path) -> None:
    write_whole(tmp_path / "x.json", b"1")
    write_whole(tmp_path / "x.json", b"2")
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_bytes() == b"2"


def test_a_lock_is_free_again_after_release(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    with pytest.raises(RunFolderError):
        FolderLock(tmp_path)
    first.close()
    FolderLock(tmp_path).close()


@pytest.mark.parametrize(
    ("lease", "held"),
    [
        (None, False),
        (Lease("elsewhere", 7, "12", 1000.0), True),
        (Lease("elsewhere", 7, None, 1000.0 - STALE_S - 20), False),
        (Lease("elsewhere", 7, None, 1010.0 + 1e7), False),  # a clock that jumped holds nothing for ever
        (Lease.make_own(), False),  # on our own host the lock decides
    ],
)
def test_a_lease_of_another_host_holds_while_its_heart_beats(lease: Lease | None, held: bool) -> None:
    assert (find_holder(lease, 1010.0) is not None) == held


@pytest.mark.parametrize(
    ("text", "expected"), [(None, {}), ("", {}), ("[1]", {}), ("{", {}), ('{"job": 7}', {"job": 7})]
)
def test_an_object_that_is_not_there_or_damaged_is_an_empty_one(
    text: str | None, expected: dict[str, int], tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "job.json").write_text(text)
    assert read_object(tmp_path / "job.json") == read_job(tmp_path) == expected
    assert find_job(tmp_path) == (str(expected["job"]) if expected else None)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400", "[1e309]"])
def test_a_line_with_a_number_that_is_not_finite_is_no_line(number: str) -> None:
    """So that records of parsed lines need not look for one (``decode`` with ``parsed``)."""
    with pytest.raises(RecordError, match="not a JSON object"):
        parse_line(f'{{"value":{number}}}\n'.encode(), "a file:1")
