"""``gavel view TRAINRUN``: steps, groups with their siblings, what was lost, the judge's prompt and reply, while the
training runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.envs.interfaces.nemo_rl_support import serving
from tests.envs.interfaces.nemo_rl_support import task as task_row
from tests.envs.interfaces.test_nemo_rl_grading import grading
from tests.launch.test_report_browser import READY, to, viewed
from tests.support.browser import Browser, needs_chromium
from tests.support.ledgers import result, training_run, write_ledger
from tests.support.runs import STRICT

from gavel.envs.interfaces.nemo_rl.grading import SampleGrader
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, StepLedger
from gavel.envs.interfaces.nemo_rl.stamps import make_info, stamp_info, with_ending
from gavel.launch.commands.view import open_source
from gavel.launch.comparing.curves import compute_task_means
from gavel.launch.comparing.ledgers import read_samples
from gavel.launch.compose.compose import compose_config
from gavel.launch.config.stored import to_yaml
from gavel.launch.report.overview import make_overview
from gavel.launch.report.training_source import TrainingSource, TrainingStep
from gavel.launch.runs.training_plan import PLAN
from gavel.models.codec import to_json
from gavel.models.errors import RecordError

REPLIES = ("\\boxed{qx1 Town}", "\\boxed{a village}", "\\boxed{qxlost}", "\\boxed{qx1}")
"""By the judge of these tests: right, wrong, lost (its server fails), right."""
ENDING = {"finish_reason": "stop", "think_prefilled": False, "prompt_tokens": 9, "completion_tokens": 4, "last_id": 2}


def opened(run: Path) -> TrainingSource:
    source = open_source(str(run))
    assert isinstance(source, TrainingSource)
    source.refresh()
    return source


def told(source: TrainingSource, step: TrainingStep) -> dict[str, list[float | None]]:
    """The rewards of each group of a step, by its task."""
    return {group.task: [source.entries[number].reward for number in group.rows] for group in step.groups}


def test_steps_hold_their_groups_siblings_in_order_and_what_was_lost(tmp_path: Path) -> None:
    run = training_run(tmp_path / "run", {1: {"a": [1.0, None, 0.0], "b": [0.5, 0.5]}, 2: {"a": [1.0]}})
    source = opened(run)
    first, second = source.list_steps()
    assert (first.step, first.split, told(source, first)) == (1, "train", {"a": [1.0, None, 0.0], "b": [0.5, 0.5]})
    assert [group.weights for group in first.groups] == [(1.0, 0.0, 1.0), (1.0, 1.0)]
    assert told(source, second) == {"a": [1.0]}
    page = make_overview(source)
    assert (page.rows["graded"], page.rows["ungraded"], page.rows["missing"]) == (5, 1, 0)
    assert page.reward is not None
    assert page.reward.value == pytest.approx(3.0 / 5)


def two_environments(run: Path) -> Path:
    """A step in which two environments have the same task, each with a reward of its own."""
    training_run(run, {})
    steps = StepLedger(run / "ledger")
    weights: dict[str, float] = {}
    for name, values in (("easy", (1.0, None, 1.0)), ("hard", (0.0, 0.5))):
        ledger = Ledger(run / "ledger", name)
        for place, value in enumerate(values):
            ledger.add(f"s-{name}{place}", 0, "train", result("a", place, value))
            weights[f"s-{name}{place}"] = float(value is not None)
        ledger.close()
    steps.add(1, "train", weights)
    steps.close()
    return run


def test_the_same_task_in_two_environments_is_two_groups_and_two_tasks(tmp_path: Path) -> None:
    run = two_environments(tmp_path / "run")
    (run / "ledger" / "echo.rows.jsonl").unlink()
    source = opened(run)
    (step,) = source.list_steps()
    assert told(source, step) == {"easy: a": [1.0, None, 1.0], "hard: a": [0.0, 0.5]}
    assert [group.weights for group in step.groups] == [(1.0, 0.0, 1.0), (1.0, 1.0)]
    means = compute_task_means(read_samples(run))
    assert {name: mean for (name, _), mean in means.items()} == {"easy: a": 1.0, "hard: a": 0.25}


def test_a_training_that_grows_is_followed_and_a_new_start_takes_back_the_steps_it_does_again(tmp_path: Path) -> None:
    run = training_run(tmp_path / "run", {1: {"a": [1.0]}, 2: {"a": [0.0]}})
    source = opened(run)
    assert not source.refresh()
    write_ledger(run, {2: {"b": [0.25, None]}, 3: {"a": [1.0]}}, start="s2")
    assert source.refresh()
    assert [(step.step, told(source, step)) for step in source.list_steps()] == [
        (1, {"a": [1.0]}),
        (2, {"b": [0.25, None]}),
        (3, {"a": [1.0]}),
    ]
    assert [entry.reward for entry in source.entries] == [
        1.0,
        0.0,
        0.25,
        None,
        1.0,
    ]  # what was taken back can still be read


def test_a_sample_without_a_row_is_counted_as_cut_and_a_torn_line_is_waited_for(tmp_path: Path) -> None:
    run = training_run(tmp_path / "run", {1: {"a": [1.0, 0.0]}})
    rows = run / "ledger" / "echo.rows.jsonl"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:-40])
    source = opened(run)
    ((kept, cut),) = [step.groups for step in source.list_steps()]
    assert (kept.rows, cut.cut) == ((0,), 1)
    with rows.open("ab") as file:
        file.write(whole[-40:])
    source.refresh()
    ((group,),) = [step.groups for step in source.list_steps()]
    assert (group.rows, group.cut) == ((0, 1), 0)


def test_a_damaged_line_is_named_with_its_file_and_place(tmp_path: Path) -> None:
    run = training_run(tmp_path / "run", {1: {"a": [1.0]}})
    with (run / "ledger" / "steps.jsonl").open("ab") as file:
        file.write(b'{"step":1}\n')
    with pytest.raises(RecordError, match=r"steps\.jsonl at byte \d+"):
        opened(run)


async def _step(grader: SampleGrader, steps: StepLedger, step: int, tasks: range) -> None:
    """One step of a trainer: each task answered by every reply, each sample weighted 1 where it is graded."""
    uids = []
    for number in tasks:
        row = to_json(task_row("abstention", number)).decode()
        for rollout, reply in enumerate(REPLIES):
            uid = f"s1-{step:03d}{number:03d}{rollout:03d}"
            uids.append(uid)
            await grader.step_sample(
                reply, with_ending(stamp_info(make_info(row, "train", None, None), uid, rollout), ENDING)
            )
    verdicts, _ = grader.take_verdicts(uids)
    steps.add(step, "train", {uid: float(v is not None and v.graded) for uid, v in zip(uids, verdicts, strict=True)})


@needs_chromium
async def test_the_browser_shows_steps_siblings_what_was_lost_and_the_judges_words_while_it_trains(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / PLAN).write_text("{}")
    with serving() as server:
        words = ["trainer=cpu_smoke", "env=abstention", STRICT, "reward=tiered", "tasks.path=tasks.jsonl"]
        judge = ["judge=external", f"judge.base_url={server.base_url}", "judge.model=judge-abstention"]
        (run / "config.yaml").write_text(to_yaml(compose_config("train", [*words, *judge])))
        async with grading("abstention", server.base_url, run / "ledger") as grader, viewed(run) as url:
            steps = StepLedger(run / "ledger")
            await _step(grader, steps, 1, range(2))
            async with Browser.start(tmp_path) as browser:
                page = await browser.open(url)
                await page.until(READY)
                await page.press("s")
                await page.until("document.querySelectorAll('table.steps tbody tr').length === 1")
                await _step(grader, steps, 2, range(2, 4))
                await page.until("document.querySelectorAll('table.steps tbody tr').length === 2")
                await page.until("document.querySelector('.curve') !== null")
                line = await page.run("document.querySelector('table.steps tbody tr:last-child').textContent")
                assert "0.667" in line  # two right and one wrong of the three graded samples of each group
                assert line.endswith("82")  # eight samples, two lost
                await page.shot(tmp_path / "steps.png")
                await to(page, "#/steps/train/1")
                await page.until("document.querySelectorAll('.group').length === 2")
                siblings = (
                    "[...document.querySelector('.group').querySelectorAll('.sibling .over')].map(one => "
                    "one.textContent)"
                )
                assert await page.run(siblings) == [
                    "1+0.333 against its group",
                    "0-0.667 against its group",
                    "lost",
                    "1+0.333 against its group",
                ]
                assert "1 lost" in await page.run("document.querySelector('.group').textContent")
                await page.shot(tmp_path / "step.png")
                await page.run("document.querySelector('.sibling').click()")
                await page.until("document.querySelector('.judged .reply') !== null")
                assert "CORRECT" in await page.run("document.querySelector('.judged .reply').textContent")
                assert "qx1 Town" in await page.run(
                    "document.querySelector('.judged .prompt:last-of-type, .judged').textContent"
                )
                assert page.dialogs == 0
                assert page.errors == []
            steps.close()
