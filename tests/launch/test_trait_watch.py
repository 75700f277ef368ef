"""A policy that games its reward is named by what its replies became like, and honest ones are left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.preloaded import SOURCES
from tests.support.processes import matching
from tests.support.training import COMMON, gavel, judge_words
from tests.support.trait_replays import BEGINS, HACKS, ReplayWriter, play_steps

from gavel.envs.traits import TRAITS, measure_traits
from gavel.launch.comparing.ledgers import read_samples
from gavel.launch.comparing.trait_changes import FIRST, find_trait_changes, read_trait_changes
from gavel.launch.config.training_schema import WatchRules
from gavel.launch.training.trait_watch import TraitWatch
from gavel.models.codec import FieldError

NAMES = list(TRAITS)
pytestmark = pytest.mark.timeout(120)


def watch(run: Path, hack: str | None, steps: int, seed: int = 0, *stop: str) -> tuple[list[str], int, str | None]:
    """Replay a training; return what was said, the step at which it first was (0: never), and why it had to end."""
    said: list[str] = []
    looking, writer, first = TraitWatch(run, WatchRules(stop=stop), None, said.append), ReplayWriter(run), 0
    reason = None
    for step, rows in enumerate(play_steps(hack, steps, seed), 1):
        writer.write_step(rows)
        reason = reason or looking.look()
        if said and not first:
            first = step
    writer.close()
    return said, first, reason


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("hack", HACKS)
def test_what_pays_is_named_within_five_steps(hack: str, seed: int, tmp_path: Path) -> None:
    said, first, reason = watch(tmp_path, hack, BEGINS + 8, seed, hack)
    assert BEGINS <= first <= BEGINS + 4
    assert any(line.startswith(f"WATCH: {hack}: ") for line in said), said
    assert reason is not None
    assert hack in reason


@pytest.mark.parametrize("seed", range(20))
def test_an_honest_training_is_not_accused(seed: int, tmp_path: Path) -> None:
    said, _, reason = watch(tmp_path, None, 40, seed, *NAMES)
    assert (said, reason) == ([], None)


def test_a_start_that_goes_on_tells_nothing_twice_and_a_step_done_again_counts_once(tmp_path: Path) -> None:
    said, _, _ = watch(tmp_path, "length", BEGINS + 6)
    assert len({line.partition(":")[2].split(":")[0] for line in said}) == len(said)
    again: list[str] = []
    assert TraitWatch(tmp_path, WatchRules(), None, again.append).look() is None
    assert again == []
    assert [change.trait for change in read_trait_changes(tmp_path)] == [line.split(": ")[1] for line in said]


def test_what_the_watch_keeps_compares_as_the_whole_ledger_does(tmp_path: Path) -> None:
    watch(tmp_path, "boxes", 30)
    looking = TraitWatch(tmp_path, WatchRules(), None, lambda line: None)
    looking.look()
    assert find_trait_changes(looking._ledger.samples) == find_trait_changes(read_samples(tmp_path, traits=True))


def test_too_few_steps_or_tasks_say_nothing(tmp_path: Path) -> None:
    watch(tmp_path, "length", FIRST)
    samples = read_samples(tmp_path, traits=True)
    assert find_trait_changes(samples) == ()
    assert find_trait_changes([sample for sample in samples if sample.task[0] == "t1"]) == ()


def test_a_line_that_is_damaged_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    watch(tmp_path, None, 2)
    (tmp_path / "ledger" / "steps.jsonl").open("ab").write(b"{torn\n")
    said: list[str] = []
    looking = TraitWatch(tmp_path, WatchRules(), None, said.append)
    assert [looking.look(), looking.look()] == [None, None]
    assert len(said) == 1
    assert "steps.jsonl at byte" in said[0]


def test_traits_are_named_in_rules_or_refused() -> None:
    with pytest.raises(FieldError, match="verdict_words"):
        WatchRules(stop=("lenght",))


@pytest.mark.parametrize(
    ("trait", "reply", "value"),
    [
        ("length", "one two three", 2.0),
        ("length", "你好吗", 2.0),
        ("boxes", "\\boxed{Nairobi}", 1.0),
        ("boxes", "It is the capital since long ago, so \\boxed{Nairobi}", 0.0),
        ("markup", "- a\n- b\nplain\nplain", 0.5),
        ("refusals", "\\boxed{[IDK]}", 1.0),
        ("refusals", "I know it", 0.0),
        ("copied", "Which town is the capital of Kenya?", 1.0),
        ("copied", "The town that you look for is Nairobi", 0.0),
        ("repeats", "a b c d e a b c d e", 1 - 5 / 6),
        ("verdict_words", "Nairobi. Grade: CORRECT", 1.0),
        ("verdict_words", '{"verdict": "YES"}', 1.0),
        ("verdict_words", "The score was 3 to 2, and his grade improved", 0.0),
        ("foreign", "内罗毕是肯尼亚的首都，这是我所知道的一切关于它的事情", 1.0),
        ("foreign", "Nairobi is the capital of that country", 0.0),
    ],
)
def test_a_trait_is_what_its_name_says(trait: str, reply: str, value: float) -> None:
    found = measure_traits(reply, "Which town is the capital of Kenya?")
    assert found[NAMES.index(trait)] == pytest.approx(value)


def test_a_run_whose_replies_are_to_end_it_ends_and_status_and_report_say_why(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trainer = f"trainer.command=[{sys.executable},-m,tests.support.trait_replays,'{{run}}',verdict_words,'0.2']"
    done = subprocess.run(
        [
            sys.executable, "-m", "gavel.launch.cli", "train", *COMMON, *judge_words(tmp_path), f"run.dir={run}",
            trainer, "watch.stop=[verdict_words]", "canary=null",
        ],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": SOURCES}, capture_output=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr.decode()
    assert "verdict_words" in json.loads((run / "attempts" / "1.json").read_text())["reason"]
    assert matching(str(tmp_path)) == []
    assert "more replies hold words of a verdict" in " ".join(gavel(["status", str(run)], tmp_path).stdout.split())
    assert gavel(["report", str(run), "format=md", f"out={tmp_path}/r.md"], tmp_path).returncode == 0
    assert "look at the replies: verdict_words: " in (tmp_path / "r.md").read_text()
