"""Stands for a trainer: each step it lets the real environment grade a reply to every task, and keeps a checkpoint.

    python -m tests.support.stand_in_trainer CONFIG

``trainer.overrides`` may hold ``steps``, ``pause`` (seconds after each step), ``fail_at`` (a step at which it ends with
code 9) and ``hold_at`` (a step after which it goes on only once the file ``go`` is in the run folder), ``stop_at`` (a
step after which it ends with code 0 as NeMo-RL does when its time is over) and ``deaf`` (it ignores SIGTERM and does no
step).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import yaml

from gavel.envs.interfaces.nemo_rl.config import build_parts, read_config
from gavel.envs.interfaces.nemo_rl.grading import SampleGrader
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, StepLedger
from gavel.envs.interfaces.nemo_rl.stamps import make_info, stamp_info, with_ending
from gavel.envs.interfaces.nemo_rl.tasks import encode_task, load_tasks
from gavel.envs.types import Digests
from gavel.models.pool import open_services

ENDED = {"finish_reason": "stop", "think_prefilled": False, "prompt_tokens": 9, "completion_tokens": 6, "last_id": 1}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def released(file: Path) -> None:
    while not file.exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.05)


async def train(config: dict[str, Any]) -> None:
    run, options = Path(config["gavel"]["run_dir"]), config["trainer"]["overrides"] or {}
    ((name, raw),) = config["env"].items()
    actor = read_config(raw, name=name)
    assembly, reward = build_parts(actor)
    ledger, steps = Ledger(run / "ledger", assembly.environment.name), StepLedger(run / "ledger")
    grader = SampleGrader(
        assembly.environment, reward, ledger, Digests("", {}), deadline=actor.deadline, policy_model="stand-in"
    )
    data = config["data"]["train"]
    tasks = load_tasks(data["data_path"], data["env"], binding=data["binding"], limit=data["limit"])
    kept = run / "checkpoints"
    kept.mkdir(exist_ok=True)
    done = max((int(file.name) for file in kept.iterdir()), default=0)
    say(
        f"starting after step {done} on {os.environ.get('SLURMD_NODENAME', 'this machine')}, pid {os.getpid()}, "
        f"GPUs {os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}"
    )
    async with open_services(assembly.services, log_dir=run / "logs", progress=say) as pool:
        assembly.models.set_models(pool.models)
        for step in range(done + 1, int(options.get("steps", 3)) + 1):
            if options.get("deaf"):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                await asyncio.Event().wait()
            if step == options.get("fail_at"):
                say(f"RuntimeError: step {step} has no luck")
                sys.exit(9)
            uids = []
            for number, task in enumerate(tasks):
                info = stamp_info(
                    make_info(encode_task(task), "train", None, None), f"{os.getpid()}-{step}-{number}", 0
                )
                await grader.step_sample("The answer is Paris.", with_ending(info, ENDED))
                uids.append(info["gavel_uid"])
            verdicts, _ = grader.take_verdicts(uids)
            steps.add(step, "train", {uid: float(bool(v and v.graded)) for uid, v in zip(uids, verdicts, strict=True)})
            (kept / str(step)).touch()
            rewards = [v.reward for v in verdicts if v is not None and v.reward is not None]
            say(
                f"step {step}: {len(rewards)} of {len(tasks)} graded, mean reward "
                f"{sum(rewards) / max(len(rewards), 1):.2f}"
            )
            await asyncio.sleep(float(options.get("pause", 0.0)))
            if step == options.get("hold_at"):
                await released(run / "go")
            if step == options.get("stop_at"):
                say("Timeout has been reached, stopping training early")
                return


if __name__ == "__main__":
    # Without a word to the code it interrupts, as a process without a handler ends: an exception might end up in a
    # finalizer.
    signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"SIGTERM: a checkpoint is there\n"), os._exit(143)))
    asyncio.run(train(yaml.safe_load(Path(sys.argv[1]).read_text())))
