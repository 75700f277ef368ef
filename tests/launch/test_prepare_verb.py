"""``gavel prepare`` as a command: assets verified, a source adapted, bad rows refused, a dry run without a trace."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.support.runs import STRICT, source_row

from gavel.launch.cli.command_line import main

Capture = pytest.CaptureFixture[str]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def test_a_source_becomes_tasks_with_verifiers_and_a_manifest(tmp_path: Path, capsys: Capture) -> None:
    source = write(tmp_path / "source.jsonl", [source_row(number) for number in range(3)])
    assert main(["prepare", STRICT, f"source.path={source}", f"out={tmp_path / 'out'}"]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tasks.jsonl", "verifiers.json", "manifest.json"}
    assert len((tmp_path / "out" / "tasks.jsonl").read_text().splitlines()) == 3
    verifiers = orjson.loads((tmp_path / "out" / "verifiers.json").read_bytes())
    assert verifiers["nemo_abstention_v1/abstention"]["profile"] == "gavel/qa-abstention-v1"
    text = capsys.readouterr().out
    assert "rubric abstention: gavel/qa-abstention-v1, sha256:" in text
    assert "3 rows: 3 tasks" in text


def test_bad_rows_are_refused_with_their_lines_and_nothing_is_written(tmp_path: Path, capsys: Capture) -> None:
    rows = [source_row(0), {key: value for key, value in source_row(1).items() if key != "answer"}, source_row(0)]
    source = write(tmp_path / "source.jsonl", rows)
    assert main(["prepare", STRICT, f"source.path={source}", f"out={tmp_path / 'out'}"]) == 2
    text = capsys.readouterr().err
    assert "source.jsonl:2" in text
    assert "source.jsonl:3" in text
    assert not (tmp_path / "out").exists()


def test_a_dry_run_checks_everything_and_writes_nothing(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path / "source.jsonl", [source_row(0)])
    cache = tmp_path / "cache"
    assert main(["prepare", f"source.path={source}", f"assets.cache={cache}", "dry_run=true"]) == 0
    text = capsys.readouterr().out
    assert "would fetch and verify" in text
    assert "nothing was written" in text
    assert {path.name for path in tmp_path.iterdir()} == {"source.jsonl"}


@pytest.mark.parametrize(
    "words",
    [
        ["env=abstention", "source.path=source.jsonl"],
        ["experiment=demo_vera_mh"],
        ["env=abstention", "source.path=source.jsonl", "dry_run=true"],
    ],
)
def test_without_out_every_environment_says_first_where_its_tasks_go(
    words: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "source.jsonl", [source_row(0)])
    dry = "dry_run=true" in words
    assert main(["prepare", *([] if "experiment=demo_vera_mh" in words else [STRICT]), *words]) == 0
    text = capsys.readouterr().out
    name = "vera_mh" if "experiment=demo_vera_mh" in words else "abstention"
    announced = f"tasks {'would go' if dry else 'go'} into data/{name}; out=DIR chooses another folder"
    assert announced in text
    assert "warning" not in text[: text.index(announced)]
    assert (tmp_path / "data" / name / "tasks.jsonl").is_file() is not dry


def test_without_a_source_only_the_assets_are_seen_to(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", STRICT]) == 0
    text = capsys.readouterr().out
    assert "verified" in text
    assert "nothing is written" in text
    assert list(tmp_path.iterdir()) == []


def test_an_asset_that_cannot_be_had_offline_is_refused_by_name(tmp_path: Path, capsys: Capture) -> None:
    assert main(["prepare", "assets.offline=true", f"assets.cache={tmp_path / 'empty'}"]) == 2
    assert "omniscience_grader.txt" in capsys.readouterr().err


def test_a_binding_of_a_rubric_that_does_not_exist_is_refused(capsys: Capture) -> None:
    assert main(["prepare", STRICT, "judging.bindings.abstention.rubric=abstentoin"]) == 2
    assert "judging.bindings.abstention.rubric" in capsys.readouterr().err
