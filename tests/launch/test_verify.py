"""What stands in a run folder is what was written: edits of lines, rewards and stored replies are named with their
right value.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from tests.support.fault_server import server_process
from tests.support.runs import arguments, rows, write_tasks

from gavel.launch.cli.command_line import main
from gavel.models.files import LINE_DIGEST, add_digest, is_altered

Edit = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_process("--reply", "tests.support.runs:reply") as url:
        yield url


@pytest.fixture(scope="module")
def finished(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    assert main(arguments(write_tasks(folder / "tasks.jsonl", 8), folder / "run", url)) == 0
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run of eight rows."""
    copy = tmp_path / "run"
    copy.mkdir()
    for file in finished.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def edit(file: Path, old: bytes, new: bytes, *, digest: bool = False) -> int:
    """Change the first line that holds ``old``; return its number.

    ``digest`` makes its digest fit, as a careful hand would.
    """
    lines = file.read_bytes().splitlines()
    place = next(place for place, line in enumerate(lines) if old in line)
    line = lines[place].replace(old, new)
    lines[place] = add_digest(strip(line)) if digest else line
    file.write_bytes(b"\n".join(lines) + b"\n")
    return place + 1


def strip(line: bytes) -> bytes:
    return line[: line.rindex(b',"' + LINE_DIGEST.encode())] + b"}"


def test_an_untouched_run_agrees_and_every_line_carries_a_digest(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run)]) == 0
    out = capsys.readouterr().out
    assert "8 rewards" in out
    assert "everything agrees" in out
    assert "no digest" not in out
    for name in ("results.jsonl", "transcripts.jsonl"):
        assert {is_altered(line) for line in (run / name).read_bytes().splitlines()} == {False}


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("results.jsonl", b'"value":0.0', b'"value":1.0', "reward.value: found 1, right is 0"),
        (
            "results.jsonl",
            b'"label":"incorrect"',
            b'"label":"correct"',
            "outcome.label: found correct, right is incorrect",
        ),
        ("results.jsonl", b"Village", b"Town", "transcript: found other messages"),
        (
            "transcripts.jsonl",
            b'"raw":"INCORRECT"',
            b'"raw":"CORRECT"',
            "outcome.label: found incorrect, right is correct",
        ),
        ("results.jsonl", b'"task_digest":"sha256:', b'"task_digest":"sha256:0', "task_digest"),
    ],
    ids=["reward", "label", "reply", "judge", "task"],
)
@pytest.mark.parametrize("digest", [False, True], ids=["careless", "careful"])
def test_an_edit_is_named_with_file_line_row_and_right_value(
    run: Path, name: str, old: bytes, new: bytes, says: str, digest: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    number = edit(run / name, old, new, digest=digest)
    assert main(["verify", str(run)]) == 2
    out = capsys.readouterr().out
    assert (f"{run / name}:{number}:" in out and "line_digest" in out) != digest
    if digest or name == "results.jsonl":  # a journal with a changed line is not read any further
        assert says in out
    assert "disagreements in" in out


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("results.jsonl", b'"value":0.0', b'"value":1.0'),
        ("results.jsonl", b'"label":"incorrect"', b'"label":"correct"'),
    ],
)
def test_an_edited_run_is_not_resumed_and_its_report_says_so(
    run: Path, name: str, old: bytes, new: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(run / name, old, new)
    assert main(["rollout", str(run), "rollouts_per_task=2"]) == 2
    failed = capsys.readouterr().err
    assert name in failed
    assert "gavel verify RUN" in failed
    assert main(["report", str(run), "format=md"]) == 0
    report = (run / "report.md").read_text()
    assert "are not what was written: gavel verify" in report


def test_a_reward_that_was_edited_with_its_digest_is_refused_on_resume(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(run / "results.jsonl", b'"value":0.0', b'"value":1.0', digest=True)
    assert main(["rollout", str(run), "rollouts_per_task=2"]) == 2
    failed = capsys.readouterr().err
    assert "reward.value" in failed
    assert "found:   1" in failed
    assert "allowed: 0" in failed


def test_a_folder_of_an_older_version_is_read_with_a_note(
    run: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("results.jsonl", "transcripts.jsonl"):
        lines = [strip(line) for line in (run / name).read_bytes().splitlines()]
        (run / name).write_bytes(b"\n".join(lines) + b"\n")
    assert main(["verify", str(run)]) == 0
    assert "carry no digest" in capsys.readouterr().out
    assert main(["rollout", str(run), "rollouts_per_task=2"]) == 0  # lines from now on carry one
    capsys.readouterr()
    assert main(["verify", str(run)]) == 0
    edit(run / "results.jsonl", b'"rollout_index":1', b'"rollout_index":1', digest=False)
    lines = (run / "results.jsonl").read_bytes().splitlines()
    (run / "results.jsonl").write_bytes(b"\n".join([*lines[:-1], strip(lines[-1])]) + b"\n")
    assert main(["verify", str(run)]) == 2
    assert "line_digest: found none" in capsys.readouterr().out


def lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def other(line: bytes, old: bytes, new: bytes) -> bytes:
    """A line of another row or run, its digest made to fit."""
    assert old in line
    return add_digest(strip(line.rstrip()).replace(old, new)) + b"\n"


def move_to_errors(run: Path) -> None:
    first, *rest = lines(run / "results.jsonl")
    (run / "results.jsonl").write_bytes(b"".join(rest))
    (run / "errors.jsonl").write_bytes(first)


def rewrite(name: str, change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def write(run: Path) -> None:
        (run / name).write_bytes(b"".join(change(lines(run / name))))

    return write


def change_identity(run: Path) -> None:
    manifest = orjson.loads((run / "manifest.json").read_bytes())
    manifest["identity"]["policy"]["model"] = "a-larger-model"
    (run / "manifest.json").write_bytes(orjson.dumps(manifest))


def link_elsewhere(name: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / name).rename(run.parent / name)
        (run / name).symlink_to(run.parent / name)

    return change


BOM = b"\xef\xbb\xbf"
RESULTS, JOURNAL, PLAN = "results.jsonl", "transcripts.jsonl", "inputs.jsonl"
ATTACKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a row moved to the errors": (move_to_errors, "graded"),
    "a row twice": (rewrite(RESULTS, lambda rows: [*rows, rows[0]]), "a row that stands here twice"),
    "a row of another task": (rewrite(RESULTS, lambda rows: [other(rows[0], b'"q-', b'"x-'), *rows[1:]]), "never planned"),  # noqa: E501
    "a row under another's name": (rewrite(RESULTS, lambda rows: [other(rows[0], b'"q-', b'"q-1'), *rows[1:]]), "never planned"),  # noqa: E501
    "a BOM before the rows": (rewrite(RESULTS, lambda rows: [BOM + rows[0], *rows[1:]]), "not a JSON object"),
    "a BOM before the journal": (rewrite(JOURNAL, lambda rows: [BOM + rows[0], *rows[1:]]), "not a JSON object"),
    "a BOM before the plan": (rewrite(PLAN, lambda rows: [BOM + rows[0], *rows[1:]]), "not a JSON object"),
    "line ends of another system": (rewrite(RESULTS, lambda rows: [row[:-1] + b"\r\n" for row in rows]), "line_digest"),
    "the journal's, too": (rewrite(JOURNAL, lambda rows: [row[:-1] + b"\r\n" for row in rows]), "line_digest"),
    "a blank line": (rewrite(RESULTS, lambda rows: [rows[0], b"\n", *rows[1:]]), "not a JSON object"),
    "a very long line": (rewrite(RESULTS, lambda rows: [*rows, b'{"a":"' + b"x" * 9_000_000 + b'"}\n']), "schema"),
    "a task that was changed": (rewrite(PLAN, lambda rows: [row.replace(b"Town", b"City") for row in rows]), "task_digest"),  # noqa: E501
    "a lost reply of the judge": (rewrite(JOURNAL, lambda rows: [row for row in rows if b'"answer"' not in row]), "replies of a judge"),  # noqa: E501
    "a lost reply of the policy": (rewrite(JOURNAL, lambda rows: [row for row in rows if b'"reply"' not in row]), "transcript"),  # noqa: E501
    "another model in the manifest": (change_identity, "identity"),
    "rows that stand elsewhere": (link_elsewhere(RESULTS), "a link to"),
    "a journal that stands elsewhere": (link_elsewhere(JOURNAL), "a link to"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_folder_that_was_changed_is_told_and_never_rewarded_in_silence(
    run: Path, attack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, said = ATTACKS[attack]
    change(run)
    assert main(["verify", str(run)]) == 2
    assert said in capsys.readouterr().out
    code = main(["rollout", str(run)])
    told = capsys.readouterr()
    assert code == 2 or attack.startswith("a lost reply"), told.out
    assert said in told.out + told.err
    assert "internal error" not in told.err


def test_what_changes_nothing_is_no_disagreement(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, events = lines(run / RESULTS), lines(run / JOURNAL)
    (run / RESULTS).write_bytes(
        b"".join([*reversed(rows)][:-1]) + rows[0][:-40]
    )  # in another order, and the last line was never finished
    (run / JOURNAL).write_bytes(b"".join([*events[2:], *events[:2]]))  # rows are independent of each other
    assert main(["verify", str(run)]) == 0
    out = capsys.readouterr().out
    assert "never finished, and is passed over: results.jsonl" in out
    assert "1 planned rows have no grade" in out
    assert main(["rollout", str(run)]) == 0  # from the stored transcript: no model is asked
    assert "8 graded" in capsys.readouterr().out


@pytest.mark.parametrize("name", [".lock", "errors.jsonl", "transcripts.jsonl"])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_nothing_is_written_through_a_link(
    run: Path, tmp_path: Path, name: str, link: Callable[[Path, Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine, without a newline")
    (run / name).unlink(missing_ok=True)
    link(run / name, precious)
    assert main(["rollout", str(run), "rollouts_per_task=2"]) == 2
    assert "would land in another file" in capsys.readouterr().err
    assert precious.read_bytes() == b"mine, without a newline"


def test_forged_replies_are_told_on_the_next_start(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run / JOURNAL, b'"raw":"INCORRECT"', b'"raw":"CORRECT"', digest=True)
    assert main(["rollout", str(run)]) == 0
    out = capsys.readouterr().out
    assert "outcome.label: found incorrect, right is correct" in out
    assert f"gavel verify {run}" in out


def test_a_comparison_does_not_believe_an_edited_reward(
    run: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(run / RESULTS, b'"value":0.0', b'"value":1.0', digest=True)
    assert main(["compare", str(finished), str(run)]) == 2
    assert "reward.value" in capsys.readouterr().err


def test_a_rescored_run_is_checked_by_its_own_rewards(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescore", str(run), "reward=omniscience", f"into={tmp_path / 'child'}"]) == 0
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "child")]) == 0
    assert "8 outcomes from stored replies" in capsys.readouterr().out  # which stand in the run that it was made from
    edit(tmp_path / "child" / "results.jsonl", b'"value":-1.0', b'"value":1.0', digest=True)
    assert main(["verify", str(tmp_path / "child")]) == 2


def test_what_models_said_is_not_for_every_account_of_a_machine(run: Path, finished: Path) -> None:
    for name in (
        "results.jsonl",
        "transcripts.jsonl",
        "inputs.jsonl",
        "config.yaml",
        "manifest.json",
        "metrics.json",
        "report.html",
    ):
        assert not (finished / name).stat().st_mode & stat.S_IRWXO, name
    assert not finished.stat().st_mode & stat.S_IRWXO


def test_rows_are_read_without_their_digests(run: Path) -> None:
    assert all(LINE_DIGEST in row for row in rows(run))
    metrics = orjson.loads((run / "metrics.json").read_bytes())
    assert metrics["rows"]["graded"] == 8
