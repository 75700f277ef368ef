"""The state of a training is judged by the steps it reached: a trainer that ends by its time limit also ends with code
0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.envs.interfaces.nemo_rl_support import write_tasks

from gavel.envs.interfaces.nemo_rl.ledger import StepLedger
from gavel.envs.interfaces.nemo_rl.register import DATASET
from gavel.launch.training.attempts import find_furthest_step
from gavel.launch.training.progress import judge_progress, plan_steps, read_step
from gavel.launch.training.trainers import TRAINERS, find_trainer
from gavel.models.errors import ConfigError


def config(run: Path, *, tasks: int = 12, kind: str = "grpo", **grpo: Any) -> dict[str, Any]:
    """What NeMo-RL is given, as far as its steps go."""
    path = write_tasks(run / "tasks.jsonl", "abstention", tasks)
    return {
        "grpo": {"num_prompts_per_step": 2, "max_num_steps": 1000, "max_num_epochs": 100, **grpo},
        "data": {
            "train": {
                "dataset_name": DATASET,
                "data_path": str(path),
                "env_name": "gavel_abstention",
                "env": "abstention",
            }
        },
        "checkpointing": {"enabled": True, "checkpoint_dir": str(run / "checkpoints")},
        "gavel": {"run_dir": str(run), "kind": kind},
    }


def reach(run: Path, *steps: int) -> None:
    ledger = StepLedger(run / "ledger")
    for step in steps:
        ledger.add(step, "train", {f"a-{step}-{number}": 1.0 for number in range(4)})
        ledger.add(step, "validation", {f"v-{step}": 1.0})
    ledger.close()


@pytest.mark.parametrize(
    ("reached", "grpo", "code", "state"),
    [
        (13, {}, 0, "interrupted"),  # its allocation's time: saved, and exit code 0
        (600, {}, 0, "finished"),  # 12 tasks, 2 a step, 100 epochs
        (599, {}, 0, "interrupted"),
        (6, {"max_num_epochs": 1}, 0, "finished"),
        (5, {"max_num_epochs": 1}, 0, "interrupted"),
        (1000, {"max_num_epochs": 1000}, 0, "finished"),
        (7, {"max_num_steps": 7}, 0, "finished"),
        (1000, {"max_num_epochs": 1000}, 1, "failed"),
        (13, {}, 143, "failed"),
        (4, {"num_prompts_per_step": 5, "max_num_epochs": 2}, 0, "finished"),  # what does not fill a step is dropped
        (3, {"num_prompts_per_step": 5, "max_num_epochs": 2}, 0, "interrupted"),
        # how many batches a step takes is not known before: its end is believed, unless the time had come
        (3, {"use_dynamic_sampling": True}, 0, "finished"),
        (3, {"stop_at_validation_metric": "accuracy"}, 0, "finished"),
    ],
)
def test_a_training_is_finished_where_it_made_all_its_steps(
    tmp_path: Path, reached: int, grpo: dict[str, Any], code: int, state: str
) -> None:
    reach(tmp_path, *range(max(reached - 2, 1), reached + 1))
    found = judge_progress(tmp_path, config(tmp_path, **grpo), code)
    assert (found.state, found.step) == (state, reached)
    assert (found.reason is None) == (state == "finished")


@pytest.mark.parametrize("grpo", [{"use_dynamic_sampling": True}, {"stop_at_validation_metric": "accuracy"}])
def test_where_the_number_of_steps_is_not_known_the_time_decides(tmp_path: Path, grpo: dict[str, Any]) -> None:
    reach(tmp_path, 1, 2, 3)
    assert judge_progress(tmp_path, config(tmp_path, **grpo), 0, out_of_time=True).state == "interrupted"


def test_a_training_that_can_make_no_step_is_not_finished(tmp_path: Path) -> None:
    found = judge_progress(tmp_path, config(tmp_path, num_prompts_per_step=32), 0)
    assert found.state == "failed"
    assert "no step" in str(found.reason)


def test_an_interrupted_training_says_how_far_it_came(tmp_path: Path) -> None:
    reach(tmp_path, 13)
    assert "step 13 of 600" in str(judge_progress(tmp_path, config(tmp_path), 0).reason)


def test_the_newest_step_goes_back_where_a_start_resumed_from_an_older_checkpoint(tmp_path: Path) -> None:
    reach(tmp_path, 18, 19, 20)  # killed, its last checkpoint is of step 10
    reach(tmp_path, 11, 12)
    assert read_step(tmp_path) == 12
    assert judge_progress(tmp_path, config(tmp_path, max_num_steps=20), 0).state == "interrupted"


def test_without_a_ledger_the_newest_whole_checkpoint_counts(tmp_path: Path) -> None:
    for name in ("step_4", "step_12", "tmp_step_16", "other"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert read_step(tmp_path) == 12
    assert judge_progress(tmp_path, config(tmp_path, kind="single_controller", max_num_steps=12), 0).state == "finished"
    assert (
        judge_progress(tmp_path, config(tmp_path, kind="single_controller", max_num_steps=13), 0).state == "interrupted"
    )


def test_a_trainer_that_leaves_no_step_behind_is_believed(tmp_path: Path) -> None:
    silent = config(tmp_path, kind="single_controller", max_num_steps=13) | {"checkpointing": {"enabled": False}}
    assert judge_progress(tmp_path, silent, 0).state == "finished"
    assert judge_progress(tmp_path, silent, 0, out_of_time=True).state == "interrupted"


def test_half_a_line_of_a_ledger_is_no_step(tmp_path: Path) -> None:
    reach(tmp_path, 3)
    with (tmp_path / "ledger" / "steps.jsonl").open("ab") as file:
        file.write(b'{"step": 4, "split": "train"')
    assert read_step(tmp_path) == 3


def test_lines_without_a_number_of_a_step_are_none(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    rows = [
        b'{"split":"train","step":3}',
        b'{"split":"train","step":null}',
        b'{"split":"train","step":"x"}',
        b"[1]",
        b"\xff\xfe",
        b'{"step":9',
    ]
    (tmp_path / "ledger" / "steps.jsonl").write_bytes(b"\n".join(rows))
    assert read_step(tmp_path) == find_furthest_step(tmp_path) == 3


@pytest.mark.parametrize(
    "config", [{}, {"grpo": [1]}, {"grpo": {}, "data": [1]}, {"checkpointing": [1]}, {"grpo": {"max_num_steps": "x"}}]
)
def test_a_config_that_cannot_be_read_leaves_the_number_of_steps_open(config: dict[str, Any], tmp_path: Path) -> None:
    assert judge_progress(tmp_path, config, 0).state == "finished"
    assert judge_progress(tmp_path, config, 1).state == "failed"


@pytest.mark.parametrize(("kind", "state"), [("trl", "interrupted"), ("command", "finished")])
def test_other_trainers_are_judged_by_their_own_number_of_steps(tmp_path: Path, kind: str, state: str) -> None:
    reach(tmp_path, 3)
    own = {"trainer": {"max_steps": 20}, "gavel": {"kind": kind, "run_dir": str(tmp_path)}}
    assert judge_progress(tmp_path, own, 0).state == state
    assert judge_progress(tmp_path, own, 0, out_of_time=True).state == "interrupted"
    reach(tmp_path, 20)
    assert judge_progress(tmp_path, own, 0, out_of_time=True).state == "finished"


def test_data_of_several_files_is_counted_together_and_foreign_data_not(tmp_path: Path) -> None:
    several = config(tmp_path, max_num_epochs=1)
    one = several["data"]["train"]
    several["data"]["train"] = [one, {**one, "limit": 3}]
    assert plan_steps(several).steps == (12 + 3) // 2
    several["data"]["train"] = [one, {"dataset_name": "math"}]
    assert plan_steps(several).exact is False
    several["data"]["use_multiple_dataloader"] = True
    assert plan_steps(several).steps == 1000
    assert json.dumps(plan_steps(several).per_epoch) == "null"


def test_the_steps_of_a_kind_that_is_not_in_the_table_are_not_known(tmp_path: Path) -> None:
    unknown = {"trainer": {"max_steps": 20}, "gavel": {"kind": "of-a-newer-version", "run_dir": str(tmp_path)}}
    assert plan_steps(unknown).steps is None
    assert judge_progress(tmp_path, unknown, 0).state == "finished"


@pytest.mark.parametrize("kind", ["grpo_asinc", "TRL", ""])
def test_a_trainer_that_is_not_in_the_table_is_refused_with_those_that_are(kind: str) -> None:
    with pytest.raises(ConfigError, match="there is no such trainer") as failed:
        find_trainer(kind)
    assert (failed.value.field, failed.value.allowed) == ("trainer.kind", ", ".join(TRAINERS))
