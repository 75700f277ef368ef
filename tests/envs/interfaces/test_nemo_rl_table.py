"""Advantages of NeMo-RL's own ``grpo_train`` for every size of group, with rewards that binary numbers hold exactly and
others.

The rewards are shares of checks that a program makes, i/10 and i/3; a sample is lost by a reply that is too long to be
graded. Needs ``NEMO_RL_ROOT``.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import orjson
import pytest
from tests.envs.interfaces.nemo_rl_support import ROOT, task

if not ROOT:
    pytest.skip("NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL", allow_module_level=True)

from tests.envs.interfaces.nemo_rl_exact import TENTHS, THIRDS, wanted_advantages
from tests.envs.interfaces.nemo_rl_train import train, trainer_process

pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = tuple(f"k{letter}" for letter in "abcdefghij")
SIZES = range(2, 33)
LONGEST = 40
TOO_LONG = "much " * 10
NOBODY = "http://127.0.0.1:9/v1"
"""No task asks a judge."""
Group = tuple[list[Fraction], int, int | None]
"""Rewards, of how many checks, and which sample is lost."""


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with trainer_process():
        yield


def groups() -> list[Group]:
    """Every size, with one odd out for every value and with mixed values, each whole and with one sample lost."""
    found: list[Group] = []
    for size in SIZES:
        for checks, values in ((10, TENTHS), (3, THIRDS)):
            for place, value in enumerate(values):
                odd = Fraction(place % 2) if value not in (0, 1) else 1 - value
                rewards = [odd, *[value] * (size - 1)]
                found += [(rewards, checks, None), (rewards, checks, size - 1 if (place + size) % 3 else 0)]
            mixed = [values[place * 7 % len(values)] for place in range(size)]
            found += [(mixed, checks, None), (mixed, checks, size // 2)]
    return found


def write(path: Path, table: list[Group]) -> None:
    """One task for each sample: NeMo-RL's groups are the rows whose prompts are the same tokens, here of every size in
    one batch.
    """
    lines = []
    for number, (rewards, checks, _) in enumerate(table):
        row = task("instruction_following", number)
        row["target"]["llm_judge"] = []
        row["target"]["instructions"] = [
            {
                "uid": place,
                "source": "user",
                "instruction_id": "keywords:existence",
                "is_misalignment_check": False,
                "arguments": {"keywords": [word]},
            }
            for place, word in enumerate(WORDS[:checks])
        ]
        lines += [orjson.dumps({**row, "task_id": f"{number}-{place}"}) for place in range(len(rewards))]
    path.write_bytes(b"\n".join(lines) + b"\n")


def replies(table: list[Group]) -> list[str]:
    return [
        TOO_LONG if place == lost else " ".join(WORDS[: int(reward * checks)]) or "nothing"
        for rewards, checks, lost in table
        for place, reward in enumerate(rewards)
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("normalize", [True, False], ids=["normalised", "plain"])
@pytest.mark.parametrize("leave_one_out", [True, False], ids=["leave-one-out", "whole"])
def test_grpo_train_gives_exact_advantages_at_every_size(tmp_path: Path, leave_one_out: bool, normalize: bool) -> None:
    table = groups()
    said = replies(table)
    done = train(
        tmp_path,
        NOBODY,
        lambda _, count: said[count],
        env="instruction_following",
        tasks=len(said),
        generations=1,
        edit=lambda path: write(path, table),
        grpo={"use_leave_one_out_baseline": leave_one_out, "normalize_rewards": normalize},
        more=("reward=mean", f"env.max_reply_characters={LONGEST}"),
    )
    wanted = [
        one
        for rewards, _, lost in table
        for one in wanted_advantages(rewards, lost, leave_one_out=leave_one_out, normalize=normalize)
    ]
    (batch,) = done.batches
    assert [float(one) for one in batch["advantages"][:, 0]] == pytest.approx(wanted, abs=1e-5)
    assert batch["sample_mask"].tolist() == [
        float(place != lost) for rewards, _, lost in table for place in range(len(rewards))
    ]
