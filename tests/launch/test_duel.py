"""Replies of two runs or more against each other: what is asked, what is kept, and the figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from tests.support.fault_server import server_process
from tests.support.rubric_files import PAIR_FORM, write_pair_rubric, write_rubric

from gavel.judges.pairs.rules import PairVerdict
from gavel.launch.cli.command_line import main
from gavel.launch.comparing.duels import DuelLine, compute_figures, fit_strengths
from gavel.models.failures import Failure, FailureKind


def reply(body: dict[str, Any]) -> str:
    """Prefer the longer reply; in a question of places the first; say nothing readable where a reply is broken."""
    text = body["messages"][-1]["content"]
    if "BROKEN" in text:
        return "who knows"
    first, second = (text.partition(f"<reply_{name}>")[2].partition("</reply")[0].strip() for name in "ab")
    longer = "A" if len(first) > len(second) else "B" if len(second) > len(first) else "C"
    return json.dumps({"why": "So.", "better": "A" if "PLACE" in text else longer})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_process("--reply", "tests.launch.test_duel:reply") as url:
        yield url


def write_replies(path: Path, **replies: str) -> Path:
    rows = [{"id": name, "prompt": f"{name}?", "reply": text} for name, text in replies.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def words(url: str, tmp_path: Path) -> list[str]:
    """The words of a duel of three files."""
    write_replies(tmp_path / "a.jsonl", one="long reply", two="short", PLACE="a", four="x", odd="BROKEN")
    write_replies(tmp_path / "b.jsonl", one="brief", two="much longer", PLACE="b", four="y", odd="well")
    write_replies(tmp_path / "c.jsonl", one="the longest of all", two="the longest of all")
    rubric = write_pair_rubric(tmp_path, slots={**PAIR_FORM["slots"], "other": "rival.visible"})
    return [
        *(str(tmp_path / f"{name}.jsonl") for name in "abc"),
        f"rubrics.better.file={rubric}",
        f"judge.base_url={url}",
        "judge.model=judge-model",
        f"run.dir={tmp_path / 'duel'}",
    ]


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_two_meet_in_both_orders_and_what_was_said_is_kept(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["duel", *words, "dry_run=true"]) == 0
    assert "9 pairs in both orders: 18 calls" in capsys.readouterr().out
    assert not (tmp_path / "duel").exists()

    assert main(["duel", *words]) == 3  # one pair has no verdict
    lines = {
        (line["first"], line["second"], line["task_id"]): line for line in read_lines(tmp_path / "duel/duels.jsonl")
    }
    assert {key[2]: line["winner"] for key, line in lines.items() if key[:2] == ("a.jsonl", "b.jsonl")} == {
        "one": "first",
        "two": "second",
        "PLACE": "tie",
        "four": "tie",
        "odd": None,
    }
    place, odd = lines["a.jsonl", "b.jsonl", "PLACE"], lines["a.jsonl", "b.jsonl", "odd"]
    assert (place["orders"], place["position_flip"]) == (["first", "second"], True)
    assert (odd["failure"]["kind"], len(odd["receipts"])) == ("judge_unparseable", 4)
    assert len(place["receipts"]) == 2
    figures = orjson.loads((tmp_path / "duel/duel.json").read_bytes())
    first = figures["pairs"][0]
    assert {name: first[name] for name in ("wins", "ties", "losses", "ungraded")} == {
        "wins": 1, "ties": 2, "losses": 1, "ungraded": 1,
    }  # fmt: skip
    assert first["win_rate"]["value"] == 0.5
    assert first["position_flips"]["value"] == 0.25
    assert figures["strengths"]["c.jsonl"]["value"] > 0 == figures["strengths"]["a.jsonl"]["value"]
    assert "| a.jsonl | b.jsonl | 1 | 2 | 1 |" in (tmp_path / "duel/duel.md").read_text()

    size = len(read_lines(tmp_path / "duel/duels.jsonl"))
    assert main(["duel", *words]) == 3  # goes on: only what has no verdict is asked again
    again = read_lines(tmp_path / "duel/duels.jsonl")[size:]
    assert [line["task_id"] for line in again] == ["odd"]


@pytest.mark.parametrize("biased", [False, True])
def test_a_judge_that_prefers_a_place_fails_the_swapped_controls_of_its_probe(
    biased: bool, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [("first", "long reply", "short"), ("second", "short", "long reply"), ("tie", "same", "same")] * 4
    controls = [
        {"name": f"{label}{place}", "question": f"q{place}", "mine": mine, "other": other, "expected": label}
        for place, (label, mine, other) in enumerate(asked)
    ]
    prompt = PAIR_FORM["prompt"] + ("PLACE" if biased else "")
    rubric = write_pair_rubric(tmp_path, controls=controls, prompt=prompt)
    words = [f"rubrics.better.file={rubric}", f"judge.base_url={url}", "judge.model=j", f"certificates={tmp_path}"]
    assert main(["probe", *words, f"run.dir={tmp_path / 'probe'}"]) == 3  # this judge goes by length: attacks win
    (report,) = orjson.loads((tmp_path / "probe/probe.json").read_bytes())
    failed = {row["name"] for row in report["rows"] if row["kind"] == "control" and not row["passed"]}
    assert report["positions"] == {"rate": 1.0 if biased else 0.0, "pairs": 8}  # equal texts have one order
    assert ("100.0% of 8 pairs" in capsys.readouterr().out) is biased
    places = [place for place, (label, _, _) in enumerate(asked) if label == "first"]
    assert {f"first{place}@swapped" for place in places} <= failed if biased else not failed
    assert {f"first{place}" for place in places}.isdisjoint(failed)  # in its favourite place it is right


def test_a_budget_ends_a_duel_and_the_same_words_go_on(words: list[str], tmp_path: Path) -> None:
    assert main(["duel", *words, "budget.max_calls=6", "concurrency=1"]) == 4
    kept = read_lines(tmp_path / "duel/duels.jsonl")
    assert 0 < len(kept) < 9
    assert all(line["winner"] for line in kept)
    assert main(["duel", *words]) == 3
    assert len({line["key"] for line in read_lines(tmp_path / "duel/duels.jsonl")}) == 9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda words, _: words[:1] + words[3:], "two runs or more"),
        (lambda words, _: [words[0], words[0], *words[3:]], "named twice"),
        (lambda words, folder: [words[0], str(folder / "none"), *words[3:]], "no run in this folder"),
        (lambda words, folder: [words[0], str(write_replies(folder / "z.jsonl", other="x")), *words[3:]], "in common"),
        (
            lambda words, folder: [*words[:3], f"rubrics.better.file={write_rubric(folder)}", *words[4:]],
            "a duel has one rubric, of pairs",
        ),
        (lambda words, _: [*words, "concurrency=0"], "at least 1"),
    ],
)
def test_a_duel_that_cannot_be_is_refused(
    change: Any, said: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["duel", *change(words, tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "duel").exists()


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"id": "one", "prompt": "one?"}, "reply"),
        ({"prompt": "one?", "reply": "x"}, "id"),
        ({"id": "one", "reply": "x"}, "prompt"),
    ],
)
def test_a_file_of_replies_names_line_and_field(
    row: dict[str, str], field: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": "two", "prompt": "two?", "reply": "x"}, row]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["duel", *words]) == 2
    said = capsys.readouterr().err
    assert "b.jsonl:2" in said
    assert field in said


def test_a_task_that_differs_between_runs_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": "one", "prompt": "another?", "reply": "x"}))
    assert main(["duel", *words]) == 2
    assert "not the same in both" in capsys.readouterr().err


def test_a_run_meets_a_file_and_rows_that_take_no_part_are_told(
    words: list[str], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rubric = write_pair_rubric(tmp_path)  # another file: the run compares with its reference
    rows = [{"id": name, "prompt": f"{name}?", "reference": "ref"} for name in ("one", "BROKEN", "mine")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    served = [f"policy.base_url={url}", "policy.model=p", f"judge.base_url={url}", "judge.model=judge-model"]
    given = [f"tasks.path={tmp_path / 'rows.jsonl'}", f"rubrics.better.file={rubric}", f"run.dir={tmp_path / 'run'}"]
    assert main(["rollout", *given, *served]) == 3
    capsys.readouterr()
    assert main(["duel", str(tmp_path / "run"), words[2], *words[3:]]) == 0
    said = capsys.readouterr().out
    assert "run: 1 planned rows have no grade and take no part" in said
    assert "run: 1 replies are to tasks" in said
    assert "c.jsonl: 1 replies are to tasks" in said
    (kept,) = read_lines(tmp_path / "duel/duels.jsonl")
    assert (kept["task_id"], kept["first"], kept["second"]) == ("one", "run", "c.jsonl")


def line(task: str, winner: PairVerdict | None, first: str = "a", second: str = "b", *, flip: bool = False) -> DuelLine:
    failure = None if winner else Failure(FailureKind.JUDGE_FAILED, "judge", "away")
    return DuelLine(f"{task}{first}{second}", task, 0, first, second, winner, None, flip, failure, ())


def test_strengths_are_those_worked_by_hand() -> None:
    # Three wins to one, half a win added to each: log(3.5 / 1.5). A third that drew twice with the first is its equal.
    lines = [line("t1", "first"), line("t2", "first"), line("t3", "first"), line("t4", "second"), line("t5", None)]
    found = compute_figures(lines, ["a", "b"], draws=200, seed=1)
    assert found.strengths["b"].value == pytest.approx(-math.log(3.5 / 1.5))
    assert found.pairs[0].win_rate is not None
    assert (found.pairs[0].win_rate.value, found.pairs[0].win_rate.n, found.pairs[0].ungraded) == (0.75, 4, 1)
    low, high = found.strengths["b"].low, found.strengths["b"].high
    assert low is not None
    assert high is not None
    assert low < -math.log(3.5 / 1.5) < high
    three = [*lines, *(line(f"t{place}", "tie", "a", "c") for place in (1, 2))]
    assert compute_figures(three, ["a", "b", "c"], draws=50, seed=1).strengths["c"].value == pytest.approx(0, abs=1e-6)


def test_strengths_of_a_chain_agree_with_its_odds() -> None:
    wins = np.array([[0.0, 8.0, 0.0], [2.0, 0.0, 6.0], [0.0, 3.0, 0.0]])  # a beats b 4:1, b beats c 2:1
    assert fit_strengths(wins) == pytest.approx([0.0, -math.log(4), -math.log(8)], abs=1e-4)


def test_an_interval_is_clustered_by_task_and_one_task_has_none() -> None:
    same = [line("t", "first"), line("t", "second")]
    (pair,) = compute_figures(same, ["a", "b"], draws=50, seed=0).pairs
    assert pair.win_rate is not None
    assert (pair.win_rate.value, pair.win_rate.low) == (0.5, None)
