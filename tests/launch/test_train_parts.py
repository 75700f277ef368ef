"""Parts of a training on one machine: its GPUs, its time, the folder of a judge it shares, the end of its trainer."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.training import COMMON, gavel, judge_words

from gavel.launch.training.attempts import read_attempts
from gavel.launch.training.judge import folder as judge_folder
from gavel.launch.training.judge.watch import split_gpus
from gavel.launch.training.slurm import query_seconds_left, read_left
from gavel.launch.training.trainer_config import with_addresses


@pytest.mark.parametrize(
    ("visible", "trainer", "judge", "expected"),
    [
        (None, 6, 2, (["0", "1", "2", "3", "4", "5"], ["6", "7"])),
        ("4,5,6", 2, 1, (["4", "5"], ["6"])),
        (None, 1, 0, (["0"], [])),
    ],
)
def test_the_judge_of_the_same_node_gets_the_last_gpus(
    visible: str | None, trainer: int, judge: int, expected: Any
) -> None:
    assert split_gpus(visible, trainer, judge) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-02:03:04", 93784.0), ("02:03:04", 7384.0), ("03:04", 184.0), ("UNLIMITED", None), ("INVALID", None)],
)
def test_slurms_time_left_is_read(text: str, seconds: float | None) -> None:
    assert read_left(text) == seconds


def test_without_slurms_commands_the_time_left_is_what_the_job_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert query_seconds_left() is None
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 100))
    assert 90 < (query_seconds_left() or 0.0) <= 100


def test_addresses_and_the_last_moment_for_a_checkpoint_come_in_when_the_judge_is_there() -> None:
    text = yaml.safe_dump(
        {
            "env": {
                "gavel_x": {
                    "parts": {"services": {"general": {"base_url": ["http://general-0.judge.invalid:9000/v1"]}}}
                }
            },
            "checkpointing": {"enabled": True, "checkpoint_must_save_by": None},
        }
    )
    made = yaml.safe_load(with_addresses(text, {"general": ("http://n2:9100/v1",)}, "00:03:00:00"))
    assert made["env"]["gavel_x"]["parts"]["services"]["general"]["base_url"] == ["http://n2:9100/v1"]
    assert made["checkpointing"]["checkpoint_must_save_by"] == "00:03:00:00"


def test_a_shared_judge_stays_for_a_run_that_came_meanwhile_and_else_closes_for_all_later_ones(tmp_path: Path) -> None:
    judge_folder.enter_run(tmp_path, tmp_path / "run", None)
    assert not judge_folder.close_unless_used(tmp_path, 60.0)
    judge_folder.leave_run(tmp_path, tmp_path / "run")
    assert judge_folder.close_unless_used(tmp_path, 60.0)
    assert judge_folder.make_closing_path(tmp_path, judge_folder.name_own_judge()).exists()


def test_a_run_that_never_began_counts_for_the_lease_only(tmp_path: Path) -> None:
    judge_folder.enter_run(tmp_path, tmp_path / "run", "7")
    assert [job for _, job in judge_folder.list_waiting(tmp_path, 60.0)] == ["7"]
    assert list(judge_folder.list_waiting(tmp_path, -1.0)) == []


def test_a_trainer_that_ends_with_code_0_because_its_time_is_over_is_not_finished(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", *COMMON, *judge_words(tmp_path), f"run.dir={run}", "trainer.overrides={steps: 4, stop_at: 2}"]
    first = gavel(words, tmp_path)
    assert first.returncode == 75, first.stdout + first.stderr
    assert "this run begins again: it ended at step 2" in first.stdout
    second = gavel(words, tmp_path)
    assert second.returncode == 0, second.stdout + second.stderr
    assert [attempt.state for attempt in read_attempts(run)] == ["interrupted", "finished"]


def test_a_run_between_two_starts_is_waited_for_while_its_job_is_in_the_queue(tmp_path: Path) -> None:
    run, user = (
        tmp_path / "000-reward.abstain=0.3_seed=1",
        judge_folder.make_user_path(tmp_path, tmp_path / "000-reward.abstain=0.3_seed=1"),
    )
    judge_folder.enter_run(tmp_path, run, "7")
    judge_folder.make_begun_path(user).touch()
    ago = time.time() - judge_folder.STALE_S - 60
    os.utime(user, (ago, ago))  # killed without a word
    assert list(judge_folder.list_waiting(tmp_path, 86400.0)) == []
    (tmp_path / "queue").write_text("6\n7\n")
    assert [job for _, job in judge_folder.list_waiting(tmp_path, 86400.0, judge_folder.read_queue(tmp_path))] == ["7"]
    (tmp_path / "queue").write_text("6\n")
    assert list(judge_folder.list_waiting(tmp_path, 86400.0, judge_folder.read_queue(tmp_path))) == []
    assert list((tmp_path / "users").iterdir()) == [], "its job is over"


def test_a_run_whose_job_is_newer_than_the_last_look_at_the_queue_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("6\n")
    judge_folder.enter_run(tmp_path, tmp_path / "run", "7")
    assert judge_folder.read_queue(tmp_path) == {"6"}
    assert [job for _, job in judge_folder.list_waiting(tmp_path, 60.0)] == ["7"]


def test_two_runs_whose_names_end_alike_begin_each_for_itself(tmp_path: Path) -> None:
    first, second = (judge_folder.make_user_path(tmp_path, tmp_path / f"run.{number}") for number in (1, 2))
    assert judge_folder.make_begun_path(first) != judge_folder.make_begun_path(second)
