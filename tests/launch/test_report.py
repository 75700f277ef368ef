"""What a report holds: figures worked out by hand, every text as data, limits kept, other formats."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.envs.vera_mh import support as vera
from tests.launch.report_support import HOSTILE, HOSTILE_ID, blocks, enlarge, hostile_run
from tests.support.fault_server import FaultServer
from tests.support.runs import JUDGE, arguments, gavel, reply, write_tasks

from gavel.judges.certificate import make_path
from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.assembly.qualification import read_run_standings
from gavel.launch.report import page as pages
from gavel.launch.report.page import encode_script, make_report
from gavel.launch.report.source import RunSource
from gavel.launch.runs.child import read_run_config


def opened(run: Path) -> RunSource:
    source = RunSource.open_run(run)
    source.refresh()
    return source


async def test_a_rollout_leaves_a_report_with_every_row_and_its_story(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path)
    found = blocks((run / "report.html").read_text())
    overview, index = found["overview"], found["index"]
    assert overview["rows"] == {"planned": 12, "graded": 9, "ungraded": 3, "skipped": 1, "missing": 0}
    assert {share["name"]: share["count"] for share in overview["labels"]} == {
        "correct": 3,
        "incorrect": 3,
        "abstained": 3,
    }
    assert overview["reward"]["value"] == pytest.approx(0.5)  # (3 * 1 + 3 * 0.5) / 9
    assert {one["name"]: one["metric"]["value"] for one in overview["rewards"]} == {
        "tiered": pytest.approx(0.5),
        "omniscience": 0.0,
    }
    assert {one["kind"]: (one["count"], one["again"]) for one in overview["failures"]} == {
        "judge_unparseable": (3, True),
        "gavel:task_schema": (1, False),
    }
    assert overview["histogram"] == {
        "edges": [0.0, 0.5, 1.0],
        "counts": {"abstained": [0, 3, 0], "correct": [0, 0, 3], "incorrect": [3, 0, 0]},
    }
    assert len(index["task"]) == 13
    labels = [index["label"]["names"][code] for code in index["label"]["codes"]]
    assert set(labels[:4]) == {"ungraded", "skipped"}, "failures first"
    assert len([name for name in found if name.startswith("story-")]) == 13


async def test_every_form_names_the_judge_and_says_whether_it_qualified(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path, 4)
    found = blocks((run / "report.html").read_text())["overview"]
    assert found["facts"]["judge (abstention)"] == JUDGE
    (judge,) = found["judges"]
    assert (judge["judge"], judge["state"]) == (JUDGE, "never probed")
    assert judge["line"].startswith("judge of abstention: never probed; `gavel probe`")
    assert (await gavel("report", str(run), "format=md")).code == 0
    assert "judge of abstention: never probed" in (run / "report.md").read_text()
    done = await gavel("rescore", str(run), "reward=omniscience", f"into={tmp_path / 'child'}")
    assert "judge of abstention: never probed" in done.out


async def test_a_certificate_beside_the_run_is_what_the_report_goes_by(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path, 4)
    config = read_run_config(run)
    binding = assemble_run(replace(config, dry_run=True), with_policy=True).bindings["abstention"]
    certificate = make_path(tmp_path / "certificates", binding)
    certificate.parent.mkdir()
    certificate.write_text("no certificate at all")
    (standing,) = read_run_standings(config, run)
    assert standing.state == "unknown"
    assert str(certificate) in standing.line


async def test_a_story_has_prompt_raw_reply_receipts_and_every_reward(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path, 4)
    found = blocks((run / "report.html").read_text())
    number = found["index"]["number"][found["index"]["task"].index("q-3")]
    story = found[f"story-{number}"]
    (answer,) = story["answers"]
    assert answer["raw"] == f"I would rather not say {HOSTILE}"
    prompt = "".join(
        (found["heads"][part["head"]] if part["head"] is not None else "") + story["texts"][part["text"]]
        for part in answer["prompt"]
    )
    assert "Which town lies at kilometre 3 of the old road?" in prompt
    assert "Hamlet" in prompt
    assert "Town 3" in prompt
    assert [receipt["role"] for receipt in story["receipts"]] == ["policy", "judge", "judge"]
    assert [receipt["service"] for receipt in story["receipts"]] == ["policy", "judge", "judge"], (
        "as the config calls them"
    )
    assert story["failure"]["kind"] == "judge_unparseable"
    assert story["reward"] is None
    assert story["rewards"] == []
    number = found["index"]["number"][found["index"]["task"].index("q-2")]
    assert {one["name"]: one["value"] for one in found[f"story-{number}"]["rewards"]} == {
        "tiered": 0.5,
        "omniscience": 0.0,
    }


@given(st.text())
def test_no_text_can_end_the_element_it_stands_in(text: str) -> None:
    data = encode_script({"text": text})
    assert not set(b"<>&") & set(data)
    assert "\u2028".encode() not in data
    assert orjson.loads(data) == {"text": text}


async def test_texts_stand_in_data_alone_and_the_policy_allows_one_script(tmp_path: Path) -> None:
    page = (await hostile_run(tmp_path, 4) / "report.html").read_text()
    assert page.count("alert(") == page.count("alert(1)\\u003c/script") + page.count("alert(2)\\u003e") + page.count(
        'onerror=\\"alert(3)\\"'
    )
    assert len(re.findall("<script>", page)) == 1
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page), "nothing is fetched"


async def test_the_file_keeps_to_its_limits_and_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = enlarge(await hostile_run(tmp_path), tmp_path / "many", 60)
    monkeypatch.setattr(pages, "MOST_ROWS", 50)
    monkeypatch.setattr(pages, "MOST_STORIES", 10)
    found = blocks(make_report(opened(run)).decode())
    assert (len(found["index"]["task"]), found["meta"]["rows"], found["meta"]["stories"]) == (50, 60, 10)
    rewards = [
        found["index"]["reward"][found["index"]["number"].index(int(name[6:]))]
        for name in found
        if name.startswith("story-")
    ]
    assert rewards == [0.0] * 10, "the least rewarded first"
    monkeypatch.setattr(pages, "MOST_BYTES", pages.ROOM + 30_000)
    assert len(make_report(opened(run))) < pages.ROOM + 30_000


async def test_a_rescored_run_shows_what_its_parents_judge_said(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path, 4)
    await gavel("rescore", str(run), "reward=omniscience", f"into={tmp_path / 'child'}")
    assert (await gavel("report", str(tmp_path / "child"))).code == 0
    found = blocks((tmp_path / "child" / "report.html").read_text())
    number = found["index"]["number"][found["index"]["task"].index(HOSTILE_ID)]
    story = found[f"story-{number}"]
    assert [answer["raw"] for answer in story["answers"]] == ["INCORRECT"]
    assert [(one["name"], one["own"], one["value"]) for one in story["rewards"]] == [
        ("omniscience", True, -1.0),
        ("tiered", False, 0.0),
    ]


async def test_sensitive_texts_are_in_no_list_and_every_form_carries_the_note(tmp_path: Path) -> None:
    def judge(body: dict[str, object]) -> object:
        return (
            vera.verdict("Yes") if body["model"] == vera.JUDGE and "Yes" in vera.options_of(body) else vera.reply(body)
        )

    async with FaultServer(reply=judge) as server:
        words = vera.arguments(
            vera.write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url, "env.max_turns=2"
        )
        assert (await gavel(*words)).code == 0
    run = tmp_path / "run"
    found = blocks((run / "report.html").read_text())
    assert "suicide" in found["overview"]["content_note"]
    assert set(found["index"]["asked"] + found["index"]["said"]) == {""}
    ratings = found["overview"]["ratings"]
    assert sum(ratings["matrix"]["Notices Risk"]) == 2
    assert ratings["questions"]["1"] == {"Yes": 2}
    for form in ("md", "csv"):
        assert (await gavel("report", str(run), f"format={form}")).code == 0
        assert "not a certification" in (run / f"report.{form}").read_text()


async def test_csv_has_a_line_for_each_row_and_nothing_a_spreadsheet_would_compute(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 3)
    tasks.write_bytes(tasks.read_bytes().replace(b'"q-0"', b'"=1+1"'))
    async with FaultServer(reply=reply) as server:
        assert (await gavel(*arguments(tasks, tmp_path / "run", server.base_url, "report=false"))).code == 0
    assert not (tmp_path / "run" / "report.html").exists()
    done = await gavel("report", str(tmp_path / "run"), "format=csv", f"out={tmp_path / 'rows.csv'}")
    assert done.code == 0, done.err
    for wrong in (tmp_path, tasks / "below.csv"):
        refused = await gavel("report", str(tmp_path / "run"), "format=csv", f"out={wrong}")
        assert (refused.code, "out: no file can be written there" in refused.err) == (2, True), refused.err
    lines = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert {line["task_id"]: (line["label"], line["reward"]) for line in lines} == {
        "'=1+1": ("correct", "1.0"),
        "q-1": ("incorrect", "0.0"),
        "q-2": ("abstained", "0.5"),
    }


@pytest.mark.parametrize("name", ["results.jsonl", "errors.jsonl", "inputs.jsonl"])
@pytest.mark.parametrize(
    "line", ['{"schema": "gavel.result/1"}', '{"task_id": [], "rollout_index": 0, "status": "graded", "task": {}}', "3"]
)
async def test_a_damaged_line_is_named_by_its_place(tmp_path: Path, name: str, line: str) -> None:
    run = await hostile_run(tmp_path, 4)
    if name == "inputs.jsonl" and "task_id" not in line:
        line = '{"task": {}}' if "schema" in line else line
    place = (run / name).stat().st_size
    with (run / name).open("a") as file:
        file.write(line + "\n")
    done = await gavel("report", str(run), "format=csv")
    assert done.code == 2, done.err
    assert f"{run / name} at byte {place}: " in done.err


async def test_markdown_shows_texts_as_they_are(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path, 4)
    assert (await gavel("report", str(run), "format=md")).code == 0
    text = (run / "report.md").read_text()
    assert "| correct | 0.333 |" in text
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


async def test_a_report_of_no_run_says_so(tmp_path: Path) -> None:
    done = await gavel("report", str(tmp_path / "none"))
    assert done.code == 2
    assert "there is no run in this folder" in done.err


async def test_a_run_that_grows_is_read_on_and_a_torn_line_waits(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path)
    lines = (run / "results.jsonl").read_bytes().splitlines(keepends=True)
    (run / "results.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:40])
    source = opened(run)
    graded = [entry.graded for entry in source.entries]
    assert graded.count(True) == 2
    assert source.refresh() is False
    with (run / "results.jsonl").open("ab") as file:
        file.write(lines[2][40:])
    assert source.refresh() is True
    assert [entry.graded for entry in source.entries].count(True) == 3


async def test_a_row_graded_at_last_keeps_its_number_and_tells_its_earlier_attempts(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path, 4)
    async with FaultServer(reply=reply) as server:
        done = await gavel("regrade", str(run), f"judge.base_url={server.base_url}")
    assert done.code in (0, 3), done.err
    found = blocks((run / "report.html").read_text())
    number = found["index"]["number"][found["index"]["task"].index("q-3")]
    story = found[f"story-{number}"]
    assert [one["failure"]["kind"] for one in story["earlier"]] == ["judge_unparseable"]
    assert story["label"] == "abstained"
    assert found["overview"]["rows"]["ungraded"] == 0
