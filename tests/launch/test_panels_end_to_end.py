"""Panels and cascades from the command line: graded, verified, reported, regraded with another member, qualified."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import server_process
from tests.support.faults import Answer
from tests.support.rubric_files import write_rubric
from tests.support.runs import rows

from gavel.launch.cli.command_line import main

CANDIDATES = ("Paris", "Red", "Eight", "Down", "Split")


def reply(body: dict[str, Any]) -> str | Answer:
    """Answer as a policy with the question's own word, or as one of three judges: ``strict`` never says fair,
    ``unsure`` says nothing of what is down.
    """
    text, model = body["messages"][-1]["content"], body["model"]
    if model == "down":
        return Answer("good", model="another")  # not the model that was asked: its reply counts for nothing
    if model == "policy-model":
        return next(word for word in CANDIDATES if word in text)
    if "<criteria>" in text:
        asked = text.rpartition("<criteria>")[2].partition("</criteria>")[0].strip().splitlines()
        met = [("both" in line) or (model == "general" and "one" in line) for line in asked]
        verdicts = [{"number": place, "verdict": "met" if yes else "not_met"} for place, yes in enumerate(met, 1)]
        return json.dumps({"verdicts": verdicts})
    candidate = text.rpartition("<candidate>")[2]
    grade = "good" if any(word in candidate for word in ("Paris", "Eight", "Red and blue")) else "bad"
    if "Red." in candidate or "Red\n" in candidate:
        grade = "bad" if model == "strict" else "fair"
    if "Down" in candidate:
        grade = {"general": "good", "strict": "good", "unsure": "hm"}[model]
    if "Split" in candidate:
        grade = {"general": "good", "strict": "fair", "unsure": "bad"}[model]
    return json.dumps({"why": f"{model} says so.", "grade": grade})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_process("--reply", "tests.launch.test_panels_end_to_end:reply") as url:
        yield url


@pytest.fixture(scope="module")
def words(url: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("panel")
    write_rubric(folder)
    lines = [{"id": word, "question": f"Say {word}", "reference": "x"} for word in CANDIDATES]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [
        f"tasks.path={folder / 'rows.jsonl'}",
        f"rubrics.helpful.file={folder / 'helpful.yaml'}",
        f"policy.base_url={url}",
        "policy.model=policy-model",
        f"judge.base_url={url}",
        "judge.model=general",
    ]


def add_services(url: str, *names: str) -> list[str]:
    return [
        f"services.{name}.{key}={value}"
        for name in names
        for key, value in (("mode", "external"), ("base_url", url), ("model", name))
    ]


def count_judges(run: Path) -> Counter[str]:
    """Count what the journal of a run says was asked, by the service."""
    lines = [orjson.loads(line) for line in (run / "transcripts.jsonl").read_bytes().splitlines()]
    return Counter(line["body"]["binding"] for line in lines if line["event"] == "answer")


def list_replies(run: Path, binding: str) -> set[str]:
    """Return the ids of the replies that a run's journal has from a judge."""
    lines = [orjson.loads(line) for line in (run / "transcripts.jsonl").read_bytes().splitlines()]
    answers = [line["body"] for line in lines if line["event"] == "answer" and line["body"]["binding"] == binding]
    return {receipt["response_id"] for answer in answers for receipt in answer["receipts"]}


@pytest.fixture(scope="module")
def panel(words: list[str], url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "panel"
    judges = [*add_services(url, "strict", "unsure"), "judging.bindings.helpful.judge=[general,strict,unsure]"]
    assert main(["rollout", *words, *judges, f"run.dir={run}"]) == 3  # one row is split
    return run


def test_a_panel_grades_by_its_quorum_keeps_every_receipt_and_a_split_row_has_no_reward(
    panel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {row["task_id"]: row for row in rows(panel)}
    assert {name: row["outcome"]["label"] for name, row in found.items()} == {
        "Paris": "good",
        "Red": "fair",
        "Eight": "good",
        "Down": "good",
    }
    judged = [receipt["service"] for receipt in found["Red"]["receipts"] if receipt["role"] == "judge"]
    assert sorted(judged) == ["general", "strict", "unsure"]
    assert found["Red"]["outcome"]["details"]["panels"]["helpful"]["votes"] == {
        "verdict": {"general": "fair", "strict": "bad", "unsure": "fair"}
    }
    assert found["Down"]["outcome"]["details"]["panels"]["helpful"]["votes"] == {
        "verdict": {"general": "good", "strict": "good"}
    }
    (failed,) = [orjson.loads(line) for line in (panel / "errors.jsonl").read_bytes().splitlines()]
    assert failed["outcome"]["failure"]["kind"] == "gavel:panel_split"
    assert failed["reward"] is None
    metrics = orjson.loads((panel / "metrics.json").read_bytes())["metrics"]
    assert metrics["panel/helpful/general~strict/agreement"]["value"] == pytest.approx(3 / 5)  # the split row counts
    assert metrics["panel/helpful/unsure/answered"]["value"] == pytest.approx(4 / 5)
    page = (panel / "report.html").read_text()
    assert "panel of general, strict, unsure (majority, quorum 2)" in page
    assert "strict says so." in page
    before = count_judges(panel)
    assert main(["verify", str(panel)]) == 0
    assert main(["rollout", str(panel)]) == 3  # nothing is left to do: the split row is given up
    assert main(["rollout", str(panel), "inspect=Red"]) == 0
    assert "judge reply · helpful[strict]" in capsys.readouterr().out
    assert count_judges(panel) == before
    assert main(["regrade", str(panel)]) == 3  # tried again: its answers are known, so nobody is asked
    assert count_judges(panel) == before


def test_a_run_that_ended_between_two_verdicts_asks_the_missing_member_alone(panel: Path, tmp_path: Path) -> None:
    run = tmp_path / "ended"
    shutil.copytree(panel, run)
    for name, lost in (("results.jsonl", "Red"), ("transcripts.jsonl", "helpful[unsure]")):
        lines = [(orjson.loads(line), line) for line in (run / name).read_bytes().splitlines(keepends=True)]
        kept = [
            line
            for row, line in lines
            if row["task_id"] != "Red" or (name == "transcripts.jsonl" and row["body"].get("binding") != lost)
        ]
        assert len(kept) == len(lines) - 1
        (run / name).write_bytes(b"".join(kept))
    before = {name: list_replies(run, f"helpful[{name}]") for name in ("general", "strict", "unsure")}
    assert main(["rollout", str(run)]) == 3
    assert {row["task_id"]: row["outcome"]["label"] for row in rows(run)}["Red"] == "fair"
    after = {name: len(list_replies(run, f"helpful[{name}]") - known) for name, known in before.items()}
    assert after == {"general": 0, "strict": 0, "unsure": 1}


@pytest.mark.parametrize("combine", ["majority", "first"])
def test_a_member_that_is_down_leaves_the_panel_and_the_run_verifies_all_the_same(
    combine: str, words: list[str], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    down = [*add_services(url, "down", "strict"), "services.down.attempts=1"]
    judges = ["judging.bindings.helpful.judge=[down,general,strict]", f"judging.bindings.helpful.combine={combine}"]
    assert main(["rollout", *words, *down, *judges, f"run.dir={run}"]) == (3 if combine == "majority" else 0)
    found = {row["task_id"]: row for row in rows(run)}
    assert found["Paris"]["outcome"]["label"] == "good"
    services = [receipt["service"] for receipt in found["Paris"]["receipts"] if receipt["role"] == "judge"]
    assert services == (["down", "general", "strict"] if combine == "majority" else ["down", "general"])
    if combine == "majority":  # two are left, who differ on these
        errors = [orjson.loads(line) for line in (run / "errors.jsonl").read_bytes().splitlines()]
        assert {error["task_id"] for error in errors} == {"Red", "Split"}
    capsys.readouterr()
    assert main(["verify", str(run)]) == 0
    assert f"{len(found)} outcomes from stored replies" in capsys.readouterr().out


def test_a_member_that_is_added_is_the_only_one_that_is_asked(words: list[str], url: str, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    assert main(["rollout", *words, f"run.dir={alone}"]) == 0
    two, three = tmp_path / "two", tmp_path / "three"
    joined = ["judging.bindings.helpful.judge=[general,strict]", "judging.bindings.helpful.quorum=1"]
    assert main(["regrade", str(alone), "only=all", *add_services(url, "strict"), *joined, f"into={two}"]) == 3
    assert list_replies(two, "helpful[general]") == list_replies(alone, "helpful")
    assert main(["verify", str(two)]) == 0
    more = [*add_services(url, "unsure"), "judging.bindings.helpful.judge=[general,strict,unsure]"]
    assert main(["regrade", str(two), "only=all", *more, f"into={three}"]) == 3
    for name in ("helpful[general]", "helpful[strict]"):
        assert list_replies(three, name) == list_replies(two, name)
    assert main(["verify", str(three)]) == 0
    again = tmp_path / "again"
    assert main(["regrade", str(two), "only=all", f"into={again}"]) == 3  # no judge is added: all are asked anew
    assert not list_replies(again, "helpful[general]") & list_replies(two, "helpful[general]")


def test_of_a_task_with_criteria_each_is_voted_on(words: list[str], url: str, tmp_path: Path) -> None:
    from tests.envs.test_criteria import criteria_rubric

    criteria_rubric(tmp_path, 2)
    criteria = [{"id": name, "text": text, "points": 1} for name, text in (("c1", "both"), ("c2", "one"), ("c3", "no"))]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"id": "h", "prompt": "Say Paris", "criteria": criteria}) + "\n")
    run = tmp_path / "run"
    judges = [*add_services(url, "strict"), "judging.bindings.r.judge=[general,strict]", "judging.bindings.r.quorum=1"]
    own = [f"tasks.path={tmp_path / 'rows.jsonl'}", f"rubrics.r.file={tmp_path / 'helpful.yaml'}"]
    assert main(["rollout", *own, *words[2:], *judges, f"run.dir={run}"]) == 3
    (row,) = [orjson.loads(line) for line in (run / "errors.jsonl").read_bytes().splitlines()]
    outcome = row["outcome"]
    assert [(check["name"], check["passed"]) for check in outcome["checks"]] == [
        ("r/c1", True),
        ("r/c2", None),  # they differ
        ("r/c3", False),
    ]
    assert outcome["details"]["panels"]["r"]["votes"] == {
        "c1": {"general": "met", "strict": "met"},
        "c2": {"general": "met", "strict": "not_met"},
        "c3": {"general": "not_met", "strict": "not_met"},
    }


def test_a_cascade_is_calibrated_probed_and_grades_as_it_was_measured(
    words: list[str], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labelled = [
        {
            "question": f"q{place}",
            "candidate": ("Paris", "Lyon", "Red.")[place % 3],
            "label": ("good", "bad", "bad")[place % 3],
        }
        for place in range(300)
    ]
    Path("labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labelled))
    key = "judging.bindings.helpful"
    cascade = [words[1], *words[4:], *add_services(url, "strict"), f"{key}.judge=[general,strict]"]
    assert main(["calibrate", *cascade, f"{key}.cascade={{}}", "labelled=labelled.jsonl", "draws=50", "run.dir=c"]) == 0
    said = capsys.readouterr().out
    assert "judging.bindings.helpful.cascade.trusted=[good,bad]" in said
    report = orjson.loads(Path("c/calibration.json").read_bytes())[-1]["cascade"]
    assert report["saved"]["value"] == pytest.approx(2 / 3, abs=0.05)  # what the first calls fair is asked again
    assert report["agreement"]["value"] == report["accuracy"]["value"] == 1.0
    trusted = [*cascade, f"{key}.cascade.trusted=[good,bad]"]
    assert main(["probe", *trusted, "run.dir=p"]) in (0, 3)
    said = capsys.readouterr().out
    assert "cascade of judge, then services.strict (trusts good, bad), read off its members' answers" in said
    names = {
        orjson.loads(path.read_bytes())["binding"]: orjson.loads(path.read_bytes())
        for path in Path("certificates").glob("*.json")
    }
    assert set(names) == {"helpful", "helpful[general]", "helpful[strict]"}
    assert names["helpful"]["probe"] is not None
    assert names["helpful"]["calibration"]["cascade"]["trusted"] == ["good", "bad"]
    assert main(["rollout", words[0], *words[2:4], *trusted, "run.dir=run"]) == 0
    asked = count_judges(Path("run"))
    assert asked == {"helpful[general]": 5, "helpful[strict]": 1}  # Red is fair, which is not trusted
    found = {row["task_id"]: row["outcome"]["label"] for row in rows(Path("run"))}
    assert found["Red"] == "bad"
    metrics = orjson.loads(Path("run/metrics.json").read_bytes())["metrics"]
    assert metrics["panel/helpful/strict/answered"]["value"] == pytest.approx(1 / 5)
    assert main(["rollout", words[0], *words[2:4], *trusted, "dry_run=true"]) == 0
    assert "services.strict: 5 calls" in capsys.readouterr().out
