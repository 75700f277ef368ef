"""``gavel train`` for tests: a stand-in trainer, and a judge that is a fake vLLM (or the real one for the CPU)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.fake_vllm import fake_python, model_directory
from tests.support.preloaded import run_command

COMMON = (
    "experiment=debug_cpu", "trainer.kind=command",
    f"trainer.command=[{sys.executable},-m,tests.support.stand_in_trainer,'{{config}}']", "trainer.nemo_rl_root=null",
    "tasks.limit=2", "cluster.gpus_per_node=0",
)  # fmt: skip


def judge_words(folder: Path) -> list[str]:
    """Return the words that make the judge a fake vLLM that calls everything correct."""
    return [
        f"judge.python={fake_python(folder / 'fake')}",
        f"judge.model={model_directory(folder / 'model')}",
        "judge.engine_args={reply: CORRECT}",
    ]


def gavel(
    words: Sequence[str], cwd: Path, extra: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    done = run_command(words, cwd=cwd, env={**os.environ, **(extra or {})}, timeout=timeout)
    return subprocess.CompletedProcess(("gavel", *words), done.code, done.out, done.err)
