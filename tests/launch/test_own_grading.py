"""Rows and a rubric of one's own, from the command line to the report; the run keeps the rubric whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import server_process
from tests.support.rubric_files import PROMPT, write_rubric
from tests.support.runs import rows

from gavel.launch.cli.command_line import main

ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": "What is the capital of France?", "reference": "Paris", "topic": "places"},
    {"id": "b", "prompt": "Name two primary colours.", "answer": "red, blue", "topic": "art"},
    {
        "id": "c",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How many legs has a spider?"},
        ],
    },
    {"id": "d", "prompt": [{"role": "user", "content": "Say nothing."}], "topic": "art"},
]


def reply(body: dict[str, Any]) -> str:
    """Answer as a policy, or grade by what the candidate says; a second rubric likes short replies."""
    text = body["messages"][-1]["content"]
    if body["model"] == "policy-model":
        return (
            "Paris"
            if "France" in text
            else "Red"
            if "colours" in text
            else "<think>hm</think>"
            if "nothing" in text
            else "Eight"
        )
    if "SHORT" in text:
        return "yes"
    if "<criteria>" in text:
        asked = text.rpartition("<criteria>")[2].partition("</criteria>")[0].strip().splitlines()
        verdicts = [
            {"number": place, "verdict": "met" if "MET" in line else "not_met"} for place, line in enumerate(asked, 1)
        ]
        return json.dumps({"verdicts": verdicts})
    candidate = text.rpartition("<candidate>")[2]
    grade = "good" if "Paris" in candidate or "Eight" in candidate else "fair" if "Red" in candidate else "bad"
    return json.dumps({"why": "So it is.", "grade": grade})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_process("--reply", "tests.launch.test_own_grading:reply") as url:
        yield url


@pytest.fixture(scope="module")
def begun(url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A finished run of two files, and the words of its command."""
    folder = tmp_path_factory.mktemp("own")
    write_rubric(folder)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    words = [
        f"tasks.path={folder / 'rows.jsonl'}",
        f"rubrics.helpful.file={folder / 'helpful.yaml'}",
        f"policy.base_url={url}",
        "policy.model=policy-model",
        f"judge.base_url={url}",
        "judge.model=judge-model",
    ]
    assert main(["rollout", *words, f"run.dir={folder / 'run'}"]) == 0
    return folder, words


def labels(run: Path) -> dict[str, str]:
    return {row["task_id"]: row["outcome"]["label"] for row in rows(run)}


def test_two_files_and_one_command_make_graded_rows_with_receipts_and_a_report(begun: tuple[Path, list[str]]) -> None:
    run = begun[0] / "run"
    assert labels(run) == {"a": "good", "b": "fair", "c": "good", "d": "no_answer"}
    found = {row["task_id"]: row for row in rows(run)}
    assert {name: row["reward"]["value"] for name, row in found.items()} == {"a": 1.0, "b": 0.5, "c": 1.0, "d": 0.0}
    (check,) = found["b"]["outcome"]["checks"]
    assert (check["name"], check["passed"], check["score"]) == ("helpful", True, 0.5)
    assert check["receipts"] == [receipt["call_id"] for receipt in found["b"]["receipts"] if receipt["role"] == "judge"]
    assert found["a"]["metadata"]["topic"] == "places"
    metrics = orjson.loads((run / "metrics.json").read_bytes())
    assert metrics["metrics"]["judged/helpful"]["value"] == pytest.approx(0.625)
    assert "So it is." in (run / "report.html").read_text()


def test_a_run_keeps_its_rubric_and_needs_the_files_no_more(
    begun: tuple[Path, list[str]],
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = begun[0]
    run = folder / "run"
    kept = {path: path.read_bytes() for path in folder.glob("helpful*")}
    monkeypatch.chdir(tmp_path)
    try:
        for path in kept:
            path.unlink()
        assert main(["verify", str(run)]) == 0
        assert "4 outcomes from stored replies" in capsys.readouterr().out
        assert main(["rollout", str(run)]) == 0  # whole already
        assert (
            main(["rescore", str(run), "reward=graded", "reward.weights.helpful=3", f"into={tmp_path / 'rescored'}"])
            == 0
        )
        assert main(["regrade", str(run), "only=all", f"into={tmp_path / 'regraded'}"]) == 0
        assert labels(tmp_path / "regraded") == labels(run)
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


def test_a_changed_byte_is_another_rubric_which_no_run_goes_on_with(
    begun: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = begun
    assert main(["rollout", *words, f"run.dir={folder / 'run'}"]) == 0  # the same files: the same run
    write_rubric(folder, prompt=PROMPT + "\n")
    try:
        assert main(["rollout", *words, f"run.dir={folder / 'run'}"]) == 2
        said = capsys.readouterr().err
        assert "another identity" in said
        assert "bindings.helpful.rubric" in said
        other = tmp_path / "regraded"
        again = [
            "regrade",
            str(folder / "run"),
            "only=all",
            f"into={other}",
            f"rubrics.helpful.file={folder / 'helpful.yaml'}",
        ]
        assert main(again) == 0
        assert labels(other) == labels(folder / "run")
    finally:
        write_rubric(folder)


def test_several_rubrics_all_answer_and_the_reward_weighs_them(
    begun: tuple[Path, list[str]], url: str, tmp_path: Path
) -> None:
    words = begun[1]
    second = tmp_path / "brief"
    second.mkdir()
    rubric = write_rubric(
        second,
        prompt="Is this SHORT? Answer yes or no, and nothing else, on the last line.\n\n{candidate}",
        name="acme/brief-v1",
        slots={"candidate": "reply.visible"},
        reply={"reader": "choice"},
        labels={"yes": 1.0, "no": 0.0},
        controls=[{"candidate": "x" * place, "expected": "no" if place > 4 else "yes"} for place in range(1, 9)],
    )
    run = tmp_path / "run"
    words = [*words, f"rubrics.brief.file={rubric}", "reward.weights.helpful=3", f"run.dir={run}"]
    assert main(["rollout", *words]) == 0
    found = {row["task_id"]: row for row in rows(run)}
    assert found["b"]["outcome"]["details"]["labels"] == {"helpful": "fair", "brief": "yes"}
    assert found["b"]["reward"] == {"value": 0.625, "components": {"helpful": 0.375, "brief": 0.25}}
    assert main(["rescore", str(run), "reward=graded", f"into={tmp_path / 'even'}"]) == 0
    assert {row["task_id"]: row["reward"]["value"] for row in rows(tmp_path / "even")}["b"] == 0.75


def test_a_probe_shows_every_prompt_certifies_and_a_changed_rubric_has_no_certificate(
    begun: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, words = begun
    monkeypatch.chdir(tmp_path)
    judged = [word for word in words if not word.startswith(("tasks.", "policy."))]
    assert main(["probe", judged[0], "dry_run=true"]) == 0  # no judge is needed to see what would be asked
    shown = capsys.readouterr().out
    assert shown.count("--- control c") == 8
    assert shown.count("You grade one reply") == 8
    assert main(["probe", *judged, "run.dir=p"]) in (0, 3)
    (certificate,) = Path("certificates").glob("*.json")
    assert orjson.loads(certificate.read_bytes())["profile"] == "acme/helpful-v1"
    (tmp_path / "labelled.jsonl").write_text(
        '{"question": "What is the capital of France?", "candidate": "Paris.", "label": "good"}\n' * 4
    )
    assert main(["calibrate", *judged, "labelled=labelled.jsonl", "run.dir=c"]) == 0
    assert orjson.loads(certificate.read_bytes())["calibration"]["items"] == 4
    write_rubric(folder, prompt=PROMPT.replace("{question}", "{question} "))
    try:
        main(["probe", *judged, "run.dir=p2"])
        assert len(list(Path("certificates").glob("*.json"))) == 2
    finally:
        write_rubric(folder)


def test_a_file_in_place_of_a_profile_brings_its_own_sampling_and_the_command_line_comes_first(tmp_path: Path) -> None:
    from gavel.launch.compose.compose import compose_config

    path = write_rubric(tmp_path)
    models = ["policy.base_url=http://h/v1", "policy.model=p", "judge.base_url=http://h/v1", "judge.model=j"]
    replaced = compose_config("rollout", [*models, "env=abstention", f"rubrics.abstention.file={path}"]).rubrics[
        "abstention"
    ]
    assert (replaced.profile, replaced.max_response_tokens, replaced.temperature) == ("acme/helpful-v1", None, None)
    set_too = compose_config(
        "rollout", [*models, "env=abstention", f"rubrics.abstention.file={path}", "rubrics.abstention.temperature=0.5"]
    )
    assert set_too.rubrics["abstention"].temperature == 0.5
    own = tmp_path / "conf"
    (own / "rubrics").mkdir(parents=True)
    write_rubric(own / "rubrics")
    assert compose_config("rollout", [*models, "rubrics.mine.file=helpful.yaml"], config_dirs=[own]).env["rubrics"] == [
        "mine"
    ]


@pytest.mark.parametrize(("what", "name"), [("rubric", "helpful"), ("rubric", "my_quiz_2"), ("pair", "better")])
def test_a_new_rubric_is_whole_and_nothing_is_written_over(
    what: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gavel.judges.rubrics.file import read_rubric_file
    from gavel.judges.rubrics.form import lint_form

    folder = tmp_path / "new"
    assert main(["new", what, name, f"into={folder}"]) == 0
    form = read_rubric_file(folder / f"{name}.yaml")
    assert (form.name, lint_form(form), len(form.controls)) == (f"own/{name}-v1", (), 8)
    assert (folder / f"test_{name}.py").is_file()
    assert main(["new", what, name, f"into={folder}"]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert main(["new", "rubrik", name]) == 2


def test_rows_in_the_form_of_healthbench_prepare_grade_and_rescore_without_a_call(
    begun: tuple[Path, list[str]], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.envs.test_criteria import criteria_rubric

    criteria_rubric(tmp_path, 2)
    criteria = [
        {"criterion": text, "points": points, "tags": []}
        for text, points in (("MET one", 5), ("two", 3), ("MET three", -4))
    ]
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"id": "h1", "prompt": [{"role": "user", "content": "x"}], "rubrics": criteria}) + "\n"
    )
    own = f"rubrics.r.file={tmp_path / 'helpful.yaml'}"
    assert (
        main(["prepare", "env=judged", own, f"source.path={tmp_path / 'rows.jsonl'}", f"out={tmp_path / 'out'}"]) == 0
    )
    models = [word for word in begun[1] if word.startswith(("policy.", "judge."))]
    words = ["rollout", f"tasks.path={tmp_path / 'out' / 'tasks.jsonl'}", own, *models]
    assert main([*words, "dry_run=true"]) == 0
    assert "judge: 2 calls" in capsys.readouterr().out
    run = tmp_path / "run"
    assert main([*words, f"run.dir={run}"]) == 0
    (row,) = rows(run)
    assert [(check["name"], check["passed"]) for check in row["outcome"]["checks"]] == [
        ("r/c1", True),
        ("r/c2", False),
        ("r/c3", True),
    ]
    assert row["reward"]["value"] == 0.125
    assert main(["rescore", str(run), "reward=graded", "reward.points.c3=0", f"into={tmp_path / 'other'}"]) == 0
    assert rows(tmp_path / "other")[0]["reward"]["value"] == 0.625
    assert main(["verify", str(run)]) == 0


@pytest.mark.parametrize(
    ("words", "field", "remedy"),
    [
        (["rubrics.helpful.file=helpful.yaml"], "rubrics.helpful.file", "did you mean {folder}/mine/helpful.yaml?"),
        (["rubrics.helpful.file=mine/helpfull.yaml"], "rubrics.helpful.file", "mine/helpful.yaml?"),
        (["rubrics.helpful=mine/helpful.yaml"], "rubrics.helpful", "write rubrics.helpful.file=mine/helpful.yaml"),
        (["rubrics.helpful=acme/x-v1"], "rubrics.helpful", "write rubrics.helpful.profile=acme/x-v1"),
        (["rows.csv", "rubrics.helpful.file=mine/helpful.yaml"], "tasks.path", "did you mean tasks.path=rows.csv?"),
        (["tasks.path=rows.csv"], "", "rubrics.NAME.file"),
    ],
)
def test_what_a_newcomer_writes_first_is_told_the_right_words(
    words: list[str],
    field: str,
    remedy: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "mine").mkdir()
    write_rubric(tmp_path / "mine")
    (tmp_path / "rows.csv").write_text("question,answer\nWhat is 2+2?,4\n")
    monkeypatch.chdir(tmp_path)
    models = ["policy.base_url=http://h/v1", "policy.model=p", "judge.base_url=http://h/v1", "judge.model=j"]
    assert main(["rollout", *words, *models]) == 2
    said = capsys.readouterr().err
    assert field in said
    assert remedy.replace("{folder}/", "") in said
