"""``-m``: many points from one command; here the cheap kind, other rewards over stored outcomes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, reply, rows, write_tasks
from tests.support.training import COMMON, judge_words
from tests.support.training import gavel as training

from gavel.launch.comparing.identities import shorten_names
from gavel.launch.config.groups import list_choices, search_path
from gavel.launch.runs.sweep_index import read_index
from gavel.launch.training.sweep.output import format_ranges
from gavel.launch.training.sweep.run import expand_glob, expand_points
from gavel.models.errors import ConfigError


async def _run(tmp_path: Path) -> Path:
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 8), tmp_path / "run", server.base_url))
        ).code == 0
    return tmp_path / "run"


async def test_rescoring_at_many_points_makes_a_child_for_each_without_a_call(tmp_path: Path) -> None:
    run = await _run(tmp_path)
    done = await gavel("rescore", str(run), "-m", "reward.abstain=0.3,0.7", f"into={tmp_path / 'sweep'}")
    assert done.code == 0, done.out + done.err
    points = read_index(tmp_path / "sweep").points
    assert [(point.name, point.state) for point in points] == [
        ("000-reward.abstain=0.3", "finished"),
        ("001-reward.abstain=0.7", "finished"),
    ]
    for point, value in zip(points, (0.3, 0.7), strict=True):
        child = tmp_path / "sweep" / point.name
        assert {row["reward"]["value"] for row in rows(child) if row["outcome"]["label"] == "abstained"} == {value}
        assert orjson.loads((child / "manifest.json").read_bytes())["parent"]["run"] == str(run.resolve())


async def test_a_point_that_fails_is_in_the_index_and_stops_no_other(tmp_path: Path) -> None:
    run = await _run(tmp_path)
    done = await gavel("rescore", str(run), "-m", "reward=nonsense,omniscience,tiered", f"into={tmp_path / 'sweep'}")
    assert done.code == 3, done.out + done.err
    points = read_index(tmp_path / "sweep").points
    assert [point.state for point in points] == ["failed", "finished", "finished"]
    assert "there is no such choice" in str(points[0].note)


async def test_what_cannot_be_swept_is_refused(tmp_path: Path) -> None:
    nothing = await gavel("rescore", str(tmp_path), "-m", "reward.abstain=0.3")
    assert nothing.code == 2
    assert "nothing is swept" in nothing.err
    other = await gavel("rollout", "-m", "experiment=demo", "seed=1,2")
    assert other.code == 2
    assert "this verb has no sweeps" in other.err
    for words, needle in (
        (("seed=1,1",), "two points are the same"),
        (("seed=1,2", f"run.dir={tmp_path}/a,{tmp_path}/b"), "a sweep has one value of this"),
        (("dry_run=true,false",), "a sweep has one value of this"),
        (("seed=1,",), "nothing is swept"),
    ):
        refused = await gavel("train", "-m", f"run.dir={tmp_path / 'sweep'}", *words)
        assert refused.code == 2
        assert needle in refused.err
    assert not (tmp_path / "sweep").exists()
    every = await gavel("train", "-m", "trainer.bogus=1,2", f"run.dir={tmp_path / 'sweep'}")
    assert every.code == 2
    assert [point.state for point in read_index(tmp_path / "sweep").points] == ["failed", "failed"]


async def test_a_folder_of_another_sweep_is_refused(tmp_path: Path) -> None:
    run = await _run(tmp_path)
    assert (await gavel("rescore", str(run), "-m", "reward.abstain=0.3,0.7", f"into={tmp_path / 'sweep'}")).code == 0
    assert (await gavel("rescore", str(run), "-m", "reward.abstain=0.3,0.7", f"into={tmp_path / 'sweep'}")).code == 0
    other = await gavel("rescore", str(run), "-m", "reward.abstain=0.2,0.7", f"into={tmp_path / 'sweep'}")
    assert other.code == 2
    assert "another sweep" in other.err


async def test_rescoring_many_points_prints_one_line_each_and_how_to_compare_them(tmp_path: Path) -> None:
    run = await _run(tmp_path)
    done = await gavel("rescore", str(run), "-m", "reward.abstain=0.3,0.7", f"into={tmp_path / 'sweep'}")
    lines = [line for line in done.out.splitlines() if line.startswith("[")]
    # of 8 rows 2 are correct and 4 abstain: (2 + 4 * 0.3) / 8 and (2 + 4 * 0.7) / 8
    assert [line.partition(" [0")[0] for line in lines] == [
        "[1 of 2] reward.abstain=0.3: mean reward 0.400",
        "[2 of 2] reward.abstain=0.7: mean reward 0.600",
    ]
    assert all(line.endswith(", 8 graded") for line in lines)
    assert "calls" not in done.out
    assert done.out.rstrip().endswith(f"compare: gavel compare {tmp_path / 'sweep'}")


async def test_findings_that_points_share_are_told_once_and_status_shows_one_line(tmp_path: Path) -> None:
    words = ("experiment=reward_ablation", "reward.abstain=0.3,0.5,0.7", f"run.dir={tmp_path / 'sweep'}")
    done = await gavel("train", "-m", *words, cwd=tmp_path)
    assert done.code == 2
    assert done.out.count("there is no such file\n  found:   data/abstention/tasks.jsonl") == 1
    assert re.search(r"points 1-3: the same \d findings", done.out)
    shown = await gavel("status", str(tmp_path / "sweep"))
    assert "\\n" not in shown.out
    assert shown.out.count("findings, the first: tasks.path: there is no such file") == 3


async def test_a_dry_run_of_a_sweep_shows_the_first_point_whole_and_of_the_others_what_differs(tmp_path: Path) -> None:
    done = await gavel("train", "-m", "trainer=cpu_smoke", "seed=1,2", f"run.dir={tmp_path / 'sweep'}", "dry_run=true")
    first, _, second = done.out.partition("[2 of 2] seed=2\n")
    assert "--- the trainer's command" in first
    assert second.startswith("- seed: 1\n+ seed: 2\n")
    assert "trainer's command" not in second
    assert not (tmp_path / "sweep").exists()


def test_numbers_of_points_are_told_in_ranges() -> None:
    assert format_ranges([1, 2, 3, 5, 7, 8]) == "1-3, 5, 7-8"
    assert format_ranges([4]) == "4"


def _sweep(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return training(
        [
            "train",
            "-m",
            *COMMON,
            *judge_words(tmp_path),
            f"run.dir={tmp_path / 'sweep'}",
            "trainer.overrides={steps: 2}",
            *words,
        ],
        tmp_path,
    )


def test_a_sweep_that_is_given_again_starts_only_what_is_unfinished_and_can_be_extended(tmp_path: Path) -> None:
    first = _sweep(tmp_path, "reward.abstain=0.3,0.5", "seed=1")
    assert first.returncode == 0, first.stdout + first.stderr
    last = tmp_path / "sweep" / "001-reward.abstain=0.5" / "attempts" / "1.json"
    last.write_text(last.read_text().replace('"finished"', '"interrupted"'))
    again = _sweep(tmp_path, "reward.abstain=0.3,0.5", "seed=1")
    assert again.stdout.count("finished already") == 1
    assert "2 points: 2 finished" in again.stdout
    extended = _sweep(tmp_path, "reward.abstain=0.3,0.5", "seed=1,2")
    assert extended.returncode == 0, extended.stdout + extended.stderr
    assert extended.stdout.count("finished already") == 2
    points = read_index(tmp_path / "sweep").points
    assert [(point.name, point.overrides) for point in points] == [
        ("000-reward.abstain=0.3", ("reward.abstain=0.3", "seed=1")),
        ("001-reward.abstain=0.5", ("reward.abstain=0.5", "seed=1")),
        ("002-reward.abstain=0.3_seed=2", ("reward.abstain=0.3", "seed=2")),
        ("003-reward.abstain=0.5_seed=2", ("reward.abstain=0.5", "seed=2")),
    ]
    counts = [len([*(tmp_path / "sweep" / point.name / "attempts").glob("?.json")]) for point in points]
    assert counts == [1, 2, 1, 1]
    other = _sweep(tmp_path, "reward.abstain=0.3,0.7", "seed=1,2")
    assert other.returncode == 2
    assert "reward.abstain=0.5" in other.stderr


async def test_a_sweep_of_which_nothing_began_may_become_another(tmp_path: Path) -> None:
    place = f"run.dir={tmp_path / 'sweep'}"
    assert (await gavel("train", "-m", "trainer=cpu_smoke", "trainer.lr=1e-6,2e-6", place)).code == 2
    assert len(read_index(tmp_path / "sweep").points) == 2
    assert (await gavel("train", "-m", "trainer=cpu_smoke", "trainer.rate=1,2,3", place)).code == 2
    assert [point.overrides for point in read_index(tmp_path / "sweep").points] == [
        (f"trainer.rate={n}",) for n in (1, 2, 3)
    ]


async def test_points_that_never_began_are_left_out_and_those_that_did_keep_their_folders(tmp_path: Path) -> None:
    run, place = await _run(tmp_path), f"into={tmp_path / 'sweep'}"
    assert (await gavel("rescore", str(run), "-m", "reward=nonsense,tiered", place)).code == 3
    assert (await gavel("rescore", str(run), "-m", "reward=omniscience,tiered", place)).code == 0
    assert [(point.name, point.state) for point in read_index(tmp_path / "sweep").points] == [
        ("001-reward=tiered", "finished"),
        ("002-reward=omniscience", "finished"),
    ]


def test_the_status_of_a_sweep_has_rewards_steps_of_total_judge_ungraded_share_and_why_a_point_failed(
    tmp_path: Path,
) -> None:
    done = _sweep(tmp_path, "reward.abstain=0.3,0.5", "seed=1", "trainer.max_steps=2")
    assert done.returncode == 0, done.stdout + done.stderr
    broken = tmp_path / "sweep" / "001-reward.abstain=0.5"
    attempt = broken / "attempts" / "1.json"
    value = orjson.loads(attempt.read_bytes()) | {
        "state": "failed",
        "code": 9,
        "reason": "the trainer ended: no luck\nand a traceback",
    }
    attempt.write_bytes(orjson.dumps(value))
    shown = training(["status", str(tmp_path / "sweep")], tmp_path, {"COLUMNS": "200"})
    assert shown.returncode == 0, shown.stderr
    first, second = (line for line in shown.stdout.splitlines() if "reward.abstain=" in line)
    assert re.search(r"finished .* 2 of 2 .* 1\.000 .* 0\.0%", first), shown.stdout
    assert "failed" in second
    assert "point 1 failed: the trainer ended: no luck\n" in shown.stdout
    assert re.search(r"judge \S+: process \d+ (runs|is over), \d of \d published replicas answer", shown.stdout), (
        shown.stdout
    )
    one = " ".join(
        training(["status", f"run.dir='{tmp_path / 'sweep' / '000-reward.abstain=0.3'}'"], tmp_path).stdout.split()
    )
    assert "2 of 2" in one
    assert "1.000 [" in one


def test_a_range_of_a_sweep_has_the_values_that_were_meant() -> None:
    assert expand_points(["reward.abstain=range(0,0.2,0.05)"]) == [
        (f"reward.abstain={value}",) for value in ("0", "0.05", "0.1", "0.15")
    ]
    assert expand_points(["seed=range(1,4)"]) == [("seed=1",), ("seed=2",), ("seed=3",)]
    assert shorten_names(["000-reward.abstain=0.15000000000000002", "001-reward.abstain=0.2"]) == [
        "abstain=0.15",
        "abstain=0.2",
    ]


def test_a_glob_is_the_choices_of_its_group_that_fit() -> None:
    assert expand_glob("reward=glob(m*)", ()) == "reward=" + ",".join(
        name for name in list_choices("reward", search_path()) if name[0] == "m"
    )
    assert expand_glob("reward.abstain=0.3,0.5", ()) == "reward.abstain=0.3,0.5"


@pytest.mark.parametrize("word", ["reward=glob(zzz*)", "trainer.learning_rate=glob(a*)"])
def test_a_glob_that_fits_nothing_is_refused(word: str) -> None:
    with pytest.raises(ConfigError):
        expand_glob(word, ())


@pytest.mark.parametrize("word", ["trainer.learning_rate=interval(1e-6,1e-5)", "reward.abstain=tag(a,interval(0,1))"])
def test_values_that_cannot_be_counted_up_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="searches"):
        expand_points([word, "seed=1,2"])
