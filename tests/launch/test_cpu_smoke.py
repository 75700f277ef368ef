"""``gavel train trainer=cpu_smoke``: what is found before it starts; where TRL is, real steps, an interruption, an
ungraded one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import pytest
from tests.support.preloaded import ROOT, SOURCES
from tests.support.processes import wait_until
from tests.support.tiny_model import tiny_model
from tests.support.training import gavel

from gavel.envs.interfaces.nemo_rl.endings import Limits
from gavel.envs.interfaces.nemo_rl.tasks import load_tasks
from gavel.envs.interfaces.trl.config import GrpoOptions
from gavel.envs.interfaces.trl.scoring import TrlCompletion
from gavel.launch.comparing.ledgers import read_samples
from gavel.launch.compose.compose import compose_config
from gavel.launch.training.attempts import read_attempts
from gavel.launch.training.preflight import check_run
from gavel.launch.training.tasks import has_judged_task
from gavel.launch.training.trl.main import format_progress

SMOKE = "trainer=cpu_smoke"
TASKS = ROOT / "envs" / "interfaces" / "trl" / "data" / "brevity.jsonl"
needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None, reason="TRL is not installed here: it comes with the extra smoke"
)


def found(tmp_path: Path, *words: str) -> str:
    return "\n\n".join(map(str, check_run(compose_config("train", [SMOKE, *words]), tmp_path / "run").findings))


def python_with(folder: Path, *modules: str, trl: str = "1.16.0") -> Path:
    """Make an interpreter that has these modules, empty ones, and says it has that TRL."""
    for name in modules:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    info = folder / f"trl-{trl}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: trl\nVersion: {trl}\n")
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return script


MODULES = ("trl", "torch", "transformers", "datasets", "accelerate", "safetensors", "gguf")


def test_alone_it_chooses_environment_reward_and_tasks_that_ask_no_judge(tmp_path: Path) -> None:
    config = compose_config("train", [SMOKE])
    assert (config.env["name"], config.reward["name"], config.trainer.kind) == ("instruction_following", "all", "trl")
    checked = check_run(config, tmp_path / "run")
    assert checked.assembly is not None
    assert not has_judged_task(config, checked.assembly)
    assert not checked.judged
    assert checked.config_name == "trainer.yaml"


def test_a_dry_run_says_that_no_judge_is_asked_and_names_none(tmp_path: Path) -> None:
    shown = gavel(["train", SMOKE, "dry_run=true", f"run.dir={tmp_path / 'run'}"], tmp_path).stdout
    table = shown.partition("--- ")[0]
    assert "no judge is asked" in table
    for word in ("judge.invalid", "placement", "waived", "never probed"):
        assert word not in table


def test_the_command_line_chooses_another_environment_and_reward() -> None:
    config = compose_config("train", [SMOKE, "env=abstention", "reward=omniscience", "tasks.path=t.jsonl"])
    assert (config.env["name"], config.reward["name"], config.tasks.path, config.trainer.kind) == (
        "abstention",
        "omniscience",
        "t.jsonl",
        "trl",
    )


def test_tasks_that_ask_a_judge_need_one(tmp_path: Path) -> None:
    python = python_with(tmp_path / "p", *MODULES)
    samples = "tasks.path=pkg:envs/instruction_following/data/samples.jsonl"  # some of them have checks for a judge
    assert "these tasks ask a judge, and none is chosen" in found(tmp_path, f"trainer.python={python}", samples)
    given = ("judge=external", "judge.base_url=http://127.0.0.1:1/v1", "judge.model=m")
    assert not found(tmp_path, f"trainer.python={python}", samples, *given)


def test_an_interpreter_without_the_extra_is_said_with_what_installs_it(tmp_path: Path) -> None:
    python = python_with(tmp_path / "bare", "torch")
    text = found(tmp_path, f"trainer.python={python}")
    for name in ("datasets", "accelerate"):
        if importlib.util.find_spec(name) is None:
            assert name in text
    assert "this interpreter lacks what the trainer needs" in text or importlib.util.find_spec("trl") is not None
    if importlib.util.find_spec("trl") is None:
        assert "pip install -e '.[smoke]'" in text


def test_a_trl_that_would_train_on_ungraded_samples_is_refused(tmp_path: Path) -> None:
    text = found(tmp_path, f"trainer.python={python_with(tmp_path / 'old', *MODULES, trl='1.5.0')}")
    assert "as if they had earned 0" in text
    assert "found:   trl 1.5.0" in text
    assert not found(tmp_path, f"trainer.python={python_with(tmp_path / 'new', *MODULES)}")


def test_weights_that_are_not_here_are_named_when_downloads_are_forbidden(tmp_path: Path) -> None:
    python = python_with(tmp_path / "p", *MODULES)
    text = found(tmp_path, f"trainer.python={python}", f"assets.cache={tmp_path / 'cache'}", "assets.offline=true")
    assert "the weights of embedded:smollm2 are not here" in text
    assert "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trainer.model=org/name"], "there is no such model here"),
        (["trainer.generations_per_prompt=1"], "trainer.generations_per_prompt"),
        (["trainer.prompts_per_step=21"], "fewer tasks than prompts"),
        (["+trainer.overrides.treads=1"], "trainer.overrides.treads"),
        (["trainer.check_workers=2"], "no use for this option"),
        (["trainer.recipe=grpo_math_8B"], "no use for this option"),
        (["trainer.command=[echo]"], "no use for this option"),
        (["trainer.val_period=5"], "no use for this option"),
        (["validation.path=t.jsonl"], "does not validate"),
        (["cluster.nodes=2"], "runs on one machine"),
        (["trainer.max_new_tokens=256"], "trainer.max_new_tokens"),
    ],
)
def test_what_this_trainer_cannot_do_is_found_before_it_starts(tmp_path: Path, words: list[str], said: str) -> None:
    assert said in found(tmp_path, f"trainer.python={python_with(tmp_path / 'p', *MODULES)}", *words)


def test_everything_is_found_at_once(tmp_path: Path) -> None:
    python = python_with(tmp_path / "old", *MODULES, trl="1.5.0")
    text = found(
        tmp_path, f"trainer.python={python}", "trainer.model=org/name", "cluster.nodes=2", "trainer.prompts_per_step=21"
    )
    for said in ("earned 0", "no such model", "one machine", "fewer tasks"):
        assert said in text


def test_a_dry_run_shows_the_config_and_the_command_and_writes_nothing(tmp_path: Path) -> None:
    python = python_with(tmp_path / "p", *MODULES)
    done = gavel(["train", SMOKE, f"trainer.python={python}", f"run.dir={tmp_path / 'run'}", "dry_run=true"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{python} -m gavel.launch.training.trl.main --config '{{config}}'" in done.stdout
    assert "no judge is asked" in done.stdout
    assert not (tmp_path / "run").exists()


def test_the_shipped_tasks_are_all_checked_by_programs_and_each_prompt_is_there_once() -> None:
    tasks = load_tasks(TASKS, "instruction_following", binding="instruction_following")
    assert len(tasks) == 20
    assert len({task.messages[0].content for task in tasks}) == 20
    assert all(task.metadata["licence"] == "CC0-1.0" for task in tasks)


def test_a_step_without_a_grade_is_said_as_such() -> None:
    assert format_progress(3, 9, {"judge/samples": 16.0, "judge/graded": 0.0, "seconds": 1.0}) == (
        "step 3 of 9: no sample was graded, 0 of 16 graded, 1.0 s"
    )


def words(tmp_path: Path, *more: str) -> list[str]:
    model = tmp_path / "model"
    if not model.exists():
        tiny_model(model)
    return [
        "train",
        SMOKE,
        f"run.dir={tmp_path / 'run'}",
        f"trainer.model={model}",
        "trainer.max_total_tokens=128",
        "trainer.max_new_tokens=8",
        "trainer.learning_rate=0.01",
        *more,
    ]


@needs_trl
@pytest.mark.timeout(600)
def test_two_real_steps_leave_a_ledger_figures_and_a_curve_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    first = gavel(words(tmp_path, "trainer.max_steps=2"), tmp_path, timeout=280)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "mean reward: first step" in first.stdout
    samples = read_samples(tmp_path / "run")
    assert len(samples) == 2 * 4 * 4
    assert {one.step for one in samples} == {1, 2}
    assert all(one.reward is not None for one in samples)
    figures = [orjson.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines()]
    assert [one["step"] for one in figures] == [1, 2]
    assert all(one["grad_norm"] > 0 for one in figures)
    assert not (tmp_path / "run" / "checkpoints").exists()
    again = gavel(words(tmp_path, "trainer.max_steps=2"), tmp_path, timeout=280)
    assert (again.returncode, "this run is finished" in again.stdout) == (0, True)
    twin = [
        *words(tmp_path, "trainer.max_steps=2", "+trainer.overrides.save_model=true"),
        f"run.dir={tmp_path / 'twin'}",
    ]
    gavel(twin, tmp_path, timeout=280)
    assert [one.reward for one in read_samples(tmp_path / "twin")] == [one.reward for one in samples]
    assert (tmp_path / "twin" / "model" / "model.safetensors").is_file()


@needs_trl
@pytest.mark.timeout(600)
def test_told_to_end_it_keeps_its_steps_and_goes_on_from_them(tmp_path: Path) -> None:
    command = words(tmp_path, "trainer.max_steps=400")
    process = subprocess.Popen(
        [sys.executable, "-m", "gavel.launch.cli", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    log = tmp_path / "run" / "logs" / "trainer-1.log"
    try:
        wait_until(lambda: log.exists() and "step 2 of" in log.read_text(), timeout=200)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 130, output
    done = max(one.step for one in read_samples(tmp_path / "run"))
    assert f"ended after step {done} of 400" in output.decode()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("checkpoint-*")] == [f"checkpoint-{done}"]
    again = subprocess.Popen(
        [sys.executable, "-m", "gavel.launch.cli", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        log = tmp_path / "run" / "logs" / "trainer-2.log"
        wait_until(lambda: log.exists() and f"step {done + 1} of 400" in log.read_text(), timeout=200)
        again.send_signal(signal.SIGTERM)
        again.wait(timeout=100)
    finally:
        again.kill()
    steps = [one.step for one in read_samples(tmp_path / "run")]
    assert steps[: (done + 1) * 16] == [step for step in range(1, done + 2) for _ in range(16)]
    assert [attempt.state for attempt in read_attempts(tmp_path / "run")] == ["interrupted", "interrupted"]


class Fixed:
    """Scores every group 1, nothing, 0, 1."""

    metrics: dict[str, float] = {}  # noqa: RUF012 - never changed

    async def score_step(self, step: int, completions: Sequence[TrlCompletion]) -> list[float | None]:
        return [(1.0, None, 0.0, 1.0)[place % 4] for place in range(len(completions))]


@needs_trl
async def test_trl_leaves_an_ungraded_sample_out_of_its_groups_baseline_and_gives_it_no_advantage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trl

    from gavel.envs.interfaces.trl.trainer import TrlSession, train_policy

    made: list[Any] = []

    class Kept(trl.GRPOTrainer):  # type: ignore[misc,name-defined]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(trl, "GRPOTrainer", Kept)
    model = tiny_model(tmp_path / "model")
    options = GrpoOptions(str(model), 1, 2, 4, 1, 128, 8, 0.01)
    tasks = load_tasks(TASKS, "instruction_following", binding="instruction_following")

    def scorer(_: Limits) -> Any:
        return Fixed()

    session = TrlSession(
        tasks,
        scorer,
        asyncio.get_running_loop(),
        lambda *_: None,
        Event(),
        tmp_path / "checkpoints",
        tmp_path / "trained",
    )
    assert await asyncio.to_thread(train_policy, options, session) == 1
    # graded: 1 0 1, mean 2/3, deviation sqrt(1/3) with n - 1; NeMo-RL's hooks come to the same
    high, low = (1 / 3) / math.sqrt(1 / 3), (-2 / 3) / math.sqrt(1 / 3)
    assert list(made[0]._logs["advantages"]) == pytest.approx([high, 0.0, low, high] * 2, abs=1e-3)
