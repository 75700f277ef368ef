"""The entrypoint of a training by TRL on the CPU: reads ``trainer.yaml``, trains, draws the curve, says what became of
the reward.

    python -m gavel.launch.training.trl.main --config runs/first/trainer.yaml

``SIGTERM`` or Ctrl-C lets the step under way end and keeps a checkpoint; the next start goes on from it. Exit code: 0
finished, 4 too much was ungraded, 130 told to end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import yaml

from gavel.envs.assembly import Assembly
from gavel.envs.failure_policy import FailureWatch
from gavel.envs.interfaces.nemo_rl.config import ActorConfig, build_parts, read_config
from gavel.envs.interfaces.nemo_rl.endings import Limits
from gavel.envs.interfaces.nemo_rl.grading import SampleGrader
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, StepLedger
from gavel.envs.interfaces.nemo_rl.tasks import load_tasks
from gavel.envs.interfaces.trl.config import GrpoOptions, read_options
from gavel.envs.interfaces.trl.scoring import Scorer
from gavel.envs.interfaces.trl.trainer import TrlSession, find_newest, train_policy
from gavel.envs.types import Digests, RewardPolicy
from gavel.launch.comparing.curves import summarize_reward
from gavel.launch.comparing.ledgers import read_samples
from gavel.launch.comparing.pictures import CURVE, draw_runs
from gavel.launch.training.trl.preflight import make_device_variables
from gavel.models.codec import compute_digest, to_json, to_plain
from gavel.models.errors import ConfigError, GavelError
from gavel.models.files import JsonLines
from gavel.models.pool import open_services
from gavel.models.vllm import embedded

FINISHED, INTERRUPTED = 0, 130
METRICS = "metrics.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the entrypoint; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="gavel.launch.training.trl.main", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args(argv)
    os.environ.update(make_device_variables())  # before torch is there
    try:
        return asyncio.run(train_config(read_trainer_config(options.config)))
    except GavelError as failed:
        sys.stderr.write(f"{failed}\n")
        return failed.exit_code


def read_trainer_config(path: Path) -> dict[str, Any]:
    """Read ``trainer.yaml``.

    Raises:
        ConfigError: it is not there, or not one of ours.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as failed:
        raise ConfigError("the config cannot be read", where=str(path), found=str(failed)) from None
    if not isinstance(values, dict) or not {"env", "data", "trainer", "seed", "gavel"} <= values.keys():
        raise ConfigError(
            "this is no config of this trainer", where=str(path), remedy="let `gavel train trainer=cpu_smoke` write it"
        )
    return values


async def train_config(values: Mapping[str, Any]) -> int:
    """Train as a config says; return the exit code.

    Raises:
        GavelError: what does not fit, or a training that was stopped.
    """
    folder, begun = Path(values["gavel"]["run_dir"]), time.perf_counter()
    ((name, raw),) = values["env"].items()
    actor = read_config(raw, name=name)
    options, (assembly, reward) = read_options(values["trainer"], int(values["seed"])), build_parts(actor)
    stop, loop = Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _tell_stop, stop)
    if not _to_do(folder, options):
        return FINISHED
    options = replace(options, model=await _find_weights(options.model, actor, folder))
    assets = actor.parts.assets
    ledger, steps = Ledger(folder / "ledger", assembly.environment.name), StepLedger(folder / "ledger")
    try:
        async with open_services(
            assembly.services,
            log_dir=folder / "logs",
            progress=print_line,
            replies=Path(assets.replies) if assets.replies else None,
        ) as pool:
            assembly.models.set_models(pool.models)
            session = _make_session(values, folder, (actor, assembly, reward), (ledger, steps), stop)
            done = await asyncio.to_thread(train_policy, options, session)
    finally:
        ledger.close()
        steps.close()
    return _close_run(folder, options, reward, assembly.environment.info.clusters, done, time.perf_counter() - begun)


def _make_session(
    values: Mapping[str, Any],
    folder: Path,
    parts: tuple[ActorConfig, Assembly, RewardPolicy],
    ledgers: tuple[Ledger, StepLedger],
    stop: Event,
) -> TrlSession:
    actor, assembly, reward = parts
    data = values["data"]["train"]
    tasks = load_tasks(data["data_path"], data["env"], binding=data["binding"], limit=data["limit"])
    digests = Digests(compute_digest(to_plain(actor)), assembly.rubric_digests)
    grader = SampleGrader(
        assembly.environment, reward, ledgers[0], digests, deadline=actor.deadline, policy_model=actor.policy_model
    )

    def make_scorer(limits: Limits) -> Scorer:
        return Scorer(grader, ledgers[1], FailureWatch(actor.failure), limits)

    def record_step(step: int, figures: Mapping[str, float]) -> None:
        with JsonLines(folder / METRICS) as file:
            file.append(to_json({"step": step, "time": time.time(), **figures}))
        print_line(format_progress(step, int(values["trainer"]["max_steps"]), figures))

    return TrlSession(
        tasks, make_scorer, asyncio.get_running_loop(), record_step, stop, folder / "checkpoints", folder / "model"
    )


def format_progress(step: int, steps: int, figures: Mapping[str, float]) -> str:
    """Return what is said after a step."""
    graded, samples = int(figures.get("judge/graded", 0)), int(figures.get("judge/samples", 0))
    mean = figures.get("reward/graded_mean")
    reward = "no sample was graded" if mean is None else f"mean reward {mean:.3f}"
    return f"step {step} of {steps}: {reward}, {graded} of {samples} graded, {figures.get('seconds', 0.0):.1f} s"


def _to_do(folder: Path, options: GrpoOptions) -> bool:
    """Tell whether anything is left to do, and say from where it goes on."""
    known, kept = max((sample.step for sample in read_samples(folder)), default=0), find_newest(folder / "checkpoints")
    if kept is not None:
        print_line(f"going on from {kept}")
    elif known >= options.max_steps:
        print_line(f"all {options.max_steps} steps of this run are done; name another folder for a new one: run.dir=…")
        return False
    elif known:
        print_line(
            f"an earlier start got to step {known} and kept no checkpoint (it was killed?): this one begins at step "
            f"1, and replaces it"
        )
    return True


async def _find_weights(model: str, actor: ActorConfig, folder: Path) -> str:
    known = embedded.find_embedded(model)
    if known is None:
        return await asyncio.to_thread(lambda: str(Path(model).expanduser()))
    assets = actor.parts.assets
    store = assets.make_store()
    found = await embedded.prepare_embedded(
        known,
        cache=store.cache,
        python=sys.executable,
        log=folder / "logs" / "convert.log",
        progress=print_line,
        mirror=store.mirror,
        offline=store.offline,
    )
    return str(found)


def _tell_stop(stop: Event) -> None:
    print_line("told to end: the step under way is finished, then a checkpoint is kept")
    stop.set()


def _close_run(
    folder: Path, options: GrpoOptions, reward: RewardPolicy, clusters: str | None, done: int, seconds: float
) -> int:
    """Say what was done. A finished run keeps no checkpoint: it could only be gone on with."""
    samples = read_samples(folder, clusters=clusters)
    for line in summarize_reward(samples, bounds=reward.bounds):
        print_line(line)
    if draw_runs(folder / CURVE, {folder.name: samples}):
        print_line(f"curve: {folder / CURVE}")
    if done < options.max_steps:
        print_line(
            f"ended after step {done} of {options.max_steps}, {seconds:.0f} s; the same command goes on from there"
        )
        return INTERRUPTED
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    print_line(f"{done} steps in {seconds:.0f} s")
    return FINISHED


def print_line(line: str) -> None:
    """Write a line to the log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
