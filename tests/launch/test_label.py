"""People label what a judge was asked: blind, by the keyboard, nothing lost; what they say corrects and qualifies."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.judges.support import STRICT, bound
from tests.support.browser import Browser, Page, needs_chromium
from tests.support.fault_server import FaultServer
from tests.support.runs import JUDGE, POLICY, arguments, gavel, number_of, start, write_tasks

from gavel.judges.bindings import Binding
from gavel.judges.calibration.calibrate import make_report
from gavel.judges.calibration.corrected import correct_share
from gavel.judges.calibration.labelled import LabelledItem, LabelledSet
from gavel.judges.certificate import Qualification, list_shortcomings, read_certificate, write_certificate
from gavel.judges.types import Grade
from gavel.launch.report.labelling.questions import LabelPlan, LabelQuestion, make_plan
from gavel.launch.report.labelling.store import LabelEvent, LabelStore, read_labels
from gavel.launch.report.labelling.summary import compare_raters, make_summary, settle_labels
from gavel.models.errors import ConfigError, InputError
from gavel.models.service import Service

LABELS = ("correct", "incorrect", "abstained")
DONE = "document.documentElement.dataset.done"


def judge(body: dict[str, Any]) -> str:
    if body["model"] == POLICY:
        return f"\\boxed{{Village {number_of(body)}}}"
    return "CORRECT" if number_of(body) % 3 == 0 else "INCORRECT"


@pytest.fixture
async def run(tmp_path: Path) -> Path:
    """A run of 60 rows, each of which asked the judge."""
    async with FaultServer(reply=judge) as server:
        done = await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 60), tmp_path / "run", server.base_url))
        assert done.code == 0, done.err
    return tmp_path / "run"


@asynccontextmanager
async def labelling(run: Path, *words: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    process = await start("label", str(run), *words)
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield process, found[0]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def question(number: int, **verdicts: str) -> LabelQuestion:
    slots = {"question": f"q{number}", "answer": f"a{number}"}
    return LabelQuestion(
        f"k{number:03}", f"t{number}", 0, slots, verdicts or {"j": "correct"}, {"domain": f"d{number % 3}"}
    )


def say(**labels: str | None) -> dict[str, LabelEvent]:
    return {key: LabelEvent(key, label, 1.0) for key, label in labels.items() if label is not None}


def make_binding(folder: Path) -> Binding:
    return bound(STRICT, Service(mode="external", base_url="http://127.0.0.1:1/v1", model="m"), folder)


class TestWhatIsDrawn:
    def test_a_larger_sample_goes_on_from_a_smaller_one_and_another_seed_draws_others(self, tmp_path: Path) -> None:
        questions, binding = [question(number) for number in range(40)], make_binding(tmp_path)
        small, large, other = (
            make_plan(questions, binding, draw="random", slice_name=None, seed=seed, sample=sample)
            for seed, sample in ((0, 10), (0, 30), (1, 10))
        )
        assert large.keys[:10] == small.keys
        assert other.keys != small.keys
        again = make_plan(questions[::-1], binding, draw="random", slice_name=None, seed=0, sample=10)
        assert again == small

    def test_slices_are_drawn_in_turns_and_a_slice_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        questions, binding = [question(number) for number in range(20)], make_binding(tmp_path)
        plan = make_plan(questions, binding, draw="slices", slice_name="domain", seed=0, sample=9)
        known = {one.key: one.slices["domain"] for one in questions}
        assert [known[key] for key in plan.keys] == ["d0", "d1", "d2"] * 3
        with pytest.raises(ConfigError, match="domain"):
            make_plan(questions, binding, draw="slices", slice_name="language", seed=0, sample=9)

    def test_only_what_judges_disagree_on_is_drawn(self, tmp_path: Path) -> None:
        questions = [question(1, a="correct", b="incorrect"), question(2, a="correct", b="correct")]
        plan = make_plan(questions, make_binding(tmp_path), draw="disagreements", slice_name=None, seed=0, sample=9)
        assert plan.keys == ("k001",)
        with pytest.raises(ConfigError, match="nothing to label"):
            make_plan(questions[1:], make_binding(tmp_path), draw="disagreements", slice_name=None, seed=0, sample=9)


class TestWhatIsKept:
    def test_the_newest_counts_a_skip_is_one_and_what_is_taken_back_is_open_again(self, tmp_path: Path) -> None:
        with LabelStore(tmp_path, "anna") as store:
            store.add("a", "correct")
            store.add("b", "incorrect", "odd")
            store.add("a", "incorrect")
            store.add("c", "")
            store.add("b", None)
        path = tmp_path / "people" / "anna.jsonl"
        path.open("ab").write(b'{"torn')
        with LabelStore(tmp_path, "anna") as store:
            assert {key: event.label for key, event in store.said.items()} == {"a": "incorrect", "c": ""}
        path.open("ab").write(b"{broken}\n")
        with pytest.raises(InputError, match=r"anna\.jsonl:6"):
            read_labels(path)

    @pytest.mark.parametrize("name", ["", "../x", "a b", "é", ".x", "a" * 65])
    def test_what_could_not_name_a_file_is_no_annotator(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="annotator"):
            LabelStore(tmp_path, name)

    def test_a_majority_settles_and_a_tie_does_not(self) -> None:
        questions = [question(1), question(2), question(3)]
        said = {
            "anna": say(k001="correct", k002="correct", k003=""),
            "ben": say(k001="incorrect", k002="correct"),
            "cleo": say(k001="incorrect"),
        }
        assert settle_labels(questions, said) == {
            "k001": ("incorrect", ("ben", "cleo")),
            "k002": ("correct", ("anna", "ben")),
        }
        del said["cleo"]
        assert list(settle_labels(questions, said)) == ["k002"]


class TestAgreement:
    def test_kappa_and_ac1_are_those_worked_by_hand(self) -> None:
        """20 both correct, 15 both incorrect, 10 and 5 apart: 0.7 observed. Kappa: by chance (30 * 25 + 20 * 25) /
        2500 = 0.5. AC1 over three labels: the shares are 0.55 and 0.45, by chance 2 * 0.55 * 0.45 / 2 = 0.2475.
        """
        pairs = [("correct", "correct")] * 20 + [("correct", "incorrect")] * 10 + [("incorrect", "correct")] * 5
        pairs += [("incorrect", "incorrect")] * 15
        first, second = ({f"k{place}": pair[side] for place, pair in enumerate(pairs)} for side in (0, 1))
        clusters = {key: key for key in first}
        found = compare_raters("anna", first, "ben", second, LABELS, clusters)
        assert (found.share.value, found.share.n) == (0.7, 50)
        assert found.kappa.value == pytest.approx(0.4)
        assert found.ac1.value == pytest.approx((0.7 - 0.2475) / (1 - 0.2475))

    def test_a_draw_that_is_not_random_corrects_nothing(self) -> None:
        questions = [question(number) for number in range(4)]
        said = {"anna": say(k000="correct", k001="incorrect")}
        for draw, count in (("random", 3), ("slices", 0)):
            plan = LabelPlan("abstention", "", draw, None, 0, ("k000", "k001"))  # type: ignore[arg-type]
            assert len(make_summary(questions, plan, LABELS, said).corrected) == count

    def test_corrections_are_those_worked_by_hand(self) -> None:
        """Of 10 rows the judge calls 6 right; of 4 labelled ones it is wrong once, calling right what is not: 0.6 -
        0.25. Sensitivity 1, specificity 1/2; of the 6 others it calls 4 right: (2/3 + 1/2 - 1) / (1 + 1/2 - 1) = 1/3.
        """
        judged = ["yes"] * 6 + ["no"] * 4
        people = [("yes", "yes"), ("yes", "no"), ("no", "no"), ("yes", "yes")]
        judged = ["yes"] * 7 + ["no"] * 3
        found = correct_share(judged, people, "yes")
        assert found.powered.value == pytest.approx(0.7 - 0.25)
        assert found.rogan_gladen.value == pytest.approx((4 / 6 + 0.5 - 1) / 0.5)

    def test_corrected_intervals_hold_the_true_share_about_as_often_as_they_say(self) -> None:
        draw, held = random.Random(3), [0, 0]
        for _ in range(600):
            truth = [draw.random() < 0.4 for _ in range(400)]
            judged = ["yes" if draw.random() < (0.9 if one else 0.2) else "no" for one in truth]
            people = [(judged[place], "yes" if truth[place] else "no") for place in range(60)]
            found = correct_share(judged, people, "yes")
            for place, interval in enumerate((found.powered, found.rogan_gladen)):
                assert interval.low is not None
                assert interval.high is not None
                held[place] += interval.low <= 0.4 <= interval.high
        assert all(0.925 <= count / 600 <= 0.98 for count in held), held

    def test_a_judge_that_says_nothing_is_not_corrected_by_its_errors(self) -> None:
        found = correct_share(["yes"] * 5, [("yes", "no"), ("no", "yes")], "yes")
        assert found.rogan_gladen.value is None


async def test_only_the_page_that_was_served_here_may_label_and_no_verdict_is_in_it(run: Path) -> None:
    async with labelling(run, "annotator=anna", "sample=5") as (_, url), aiohttp.ClientSession() as session:
        page = await (await session.get(url)).text()
        found = re.search(r'id="labelling">(.*?)</script>', page, re.DOTALL)
        assert found
        data = orjson.loads(found[1])
        assert len(data["questions"]) == 5
        for one in data["questions"]:
            assert set(one) == {"key", "slots", "slices", "said"}
            assert set(one["slots"]) == {"question", "reference", "answer"}
        key, good = data["questions"][0]["key"], {"X-Gavel-Token": data["token"]}
        for headers, body, status in (
            ({}, {"key": key, "label": "correct"}, 403),
            ({"X-Gavel-Token": "x"}, {"key": key, "label": "correct"}, 403),
            ({**good, "Host": "example.org"}, {"key": key, "label": "correct"}, 403),
            (good, {"key": "sha256:0", "label": "correct"}, 400),
            (good, {"key": key, "label": "wrong"}, 400),
            (good, {"key": key, "label": "correct", "note": "x" * 5000}, 400),
            (good, [1], 400),
        ):
            answer = await session.post(f"{url}label", json=body, headers=headers)
            assert answer.status == status, (headers, body)
    assert read_labels(run / "labels" / "abstention" / "people" / "anna.jsonl") == {}


async def test_what_does_not_fit_is_refused_with_what_does(run: Path) -> None:
    for words, told in (
        (("annotator=a b",), "annotator"),
        (("annotator=anna", "binding=other"), "abstention"),
        (("annotator=anna", "draw=slices"), "slice"),
        (("annotator=anna", "other=x"), "disagreements"),
        (("annotator=anna", "sample=0"), "sample"),
    ):
        done = await gavel("label", str(run), *words)
        assert done.code == 2
        assert told in done.err, done.err
    done = await gavel("label", str(run), "sample=5")
    assert (done.code, "annotator=NAME" in done.out, (run / "labels").exists()) == (0, True, False)
    async with labelling(run, "annotator=anna", "sample=5"):
        pass  # nothing was said, so another draw may be begun
    async with labelling(run, "annotator=anna", "sample=5", "seed=4") as (_, url), aiohttp.ClientSession() as session:
        found = re.search(r'id="labelling">(.*?)</script>', await (await session.get(url)).text(), re.DOTALL)
        assert found
        data = orjson.loads(found[1])
        body = {"key": data["questions"][0]["key"], "label": "correct"}
        assert (await session.post(f"{url}label", json=body, headers={"X-Gavel-Token": data["token"]})).status == 200
    done = await gavel("label", str(run), "annotator=ben", "sample=5")
    assert done.code == 2
    assert "seed=4" in done.err


async def press_all(page: Page, keys: list[str], done: int = 0) -> None:
    for place, key in enumerate(keys, done + 1):
        await page.press(key)
        await page.until(f"{DONE} === '{place}'")


@needs_chromium
async def test_two_people_label_fifty_rows_by_keyboard_over_a_kill_and_their_labels_qualify(
    run: Path, tmp_path: Path
) -> None:
    first = ["1"] * 30 + ["2"] * 20
    second = ["1"] * 20 + ["2"] * 10 + ["1"] * 5 + ["2"] * 15
    async with Browser.start(tmp_path) as browser:
        async with labelling(run, "annotator=anna") as (process, url):
            page = await browser.open(url)
            await page.until(f"{DONE} === '0'")
            await press_all(page, first[:20])
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await page.press("1")
            await page.until("document.querySelector('.problem') !== null")  # said, not lost in silence
        async with labelling(run, "annotator=anna") as (process, url):
            page = await browser.open(url)
            await page.until(f"{DONE} === '20'")
            await page.press("s")
            await page.until(f"{DONE} === '21'")
            await page.press("u")
            await page.until(f"{DONE} === '20'")
            await page.press("n")
            await page.until("document.activeElement.tagName === 'TEXTAREA'")
            await page.send("Input.insertText", text="both names are of one town")
            await page.press("Escape")
            await press_all(page, first[20:], 20)
            assert page.dialogs == 0
            process.send_signal(signal.SIGINT)
            await process.wait()
        async with labelling(run, "annotator=ben") as (process, url):
            page = await browser.open(url)
            await page.until(f"{DONE} === '0'")
            await press_all(page, second)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            told = (await process.stdout.read()).decode()
    assert "anna and ben: agree on 70.0%" in told
    assert "kappa 0.40 [" in told
    assert "AC1 0.60 [" in told
    assert "anna 50 of 50, ben 50 of 50; 35 settled, 15 disputed" in told
    assert "share of correct: the judge's 33.3% of 60; corrected by 35 labels" in told
    labels = run / "labels" / "abstention"
    rows = [orjson.loads(line) for line in (labels / "labelled.jsonl").read_bytes().splitlines()]
    assert len(rows) == 35
    assert {row["reviewed_by"] for row in rows} == {"anna, ben"}
    assert any(row.get("notes") == {"anna": "both names are of one town"} for row in rows) or any(
        event.note for event in read_labels(labels / "people" / "anna.jsonl").values()
    )
    assert (await gavel("report", str(run), "format=md", f"out={tmp_path}/r.md")).code == 0
    await check_qualification(run, labels / "labelled.jsonl", tmp_path)


async def check_qualification(run: Path, labelled: Path, folder: Path) -> None:
    """A calibration against what people settled makes a certificate that says how many rows they reviewed."""
    async with FaultServer(reply=judge) as server:
        words = [f"judge.base_url={server.base_url}", f"judge.model={JUDGE}", "judge=external", "env=abstention"]
        done = await gavel(
            "calibrate", *words, "rubrics.abstention.profile=gavel/qa-abstention-v1", f"labelled={labelled}",
            f"certificates={folder}/certificates", cwd=folder,
        )  # fmt: skip
        assert done.code == 0, done.err
    (path,) = (folder / "certificates").glob("*.json")
    found: Mapping[str, Any] = orjson.loads(path.read_bytes())
    assert round(found["calibration"]["items"] * found["calibration"]["reviewed_share"]) == 35


def test_a_judge_qualifies_only_with_as_many_reviewed_rows_as_are_asked_for(tmp_path: Path) -> None:
    binding = make_binding(tmp_path)
    items = [
        LabelledItem({}, LABELS[place % 2], f"c{place}", {}, reviewed_by="anna" if place < 35 else None)
        for place in range(50)
    ]
    grades = [Grade(item.label, None, "", "exact", "", {}, ()) for item in items]
    report = make_report(binding, LabelledSet(tuple(items), ""), [grades], draws=50)
    path = write_certificate(tmp_path / "certificates", binding, calibration=report)
    certificate = read_certificate(path.parent, binding)
    assert certificate is not None
    assert not [line for line in list_shortcomings(certificate, Qualification(reviewed_rows=35)) if "reviewed" in line]
    (line,) = (one for one in list_shortcomings(certificate, Qualification(reviewed_rows=36)) if "reviewed" in one)
    assert line.startswith("35 labelled rows that somebody reviewed, at least 36 are needed")
