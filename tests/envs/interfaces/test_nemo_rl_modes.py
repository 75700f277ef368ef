"""The page's list of keys against the config classes of the checkout and against the preflight; needs
``NEMO_RL_ROOT``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.envs.interfaces.nemo_rl_support import ROOT

from gavel.envs.interfaces.nemo_rl.contract import ESTIMATORS
from gavel.envs.interfaces.nemo_rl.modes import REFUSED, refuse_mode

PAGE = (Path(__file__).parents[3] / "docs" / "nemo_rl.md").read_text()
needs_root = pytest.mark.skipif(not ROOT, reason="NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL")
CLASSES = {
    "grpo.async_grpo": ("grpo", "AsyncGRPOConfig"),
    "grpo.reward_scaling": ("grpo", "RewardScalingConfig"),
    "grpo.reward_shaping": ("reward_functions", "RewardShapingConfig"),
    "grpo.adv_estimator": ("advantage_estimator", "AdvEstimatorConfig"),
    "grpo": ("grpo", "GRPOConfig"),
    "reward_penalties": ("grpo", "RewardPenaltyConfig"),
    "loss_fn": ("loss/loss_functions", "ClippedPGLossConfig"),
}
SWITCHES = {
    "data_plane.enabled", "on_policy_distillation.enabled", "env.should_use_nemo_gym", "data.use_multiple_dataloader",
}  # fmt: skip


@cache
def listed() -> dict[str, list[str]]:
    """The keys of each row of the page's table."""
    table = PAGE.split("### Every key\n")[1].split("\nSingleController")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ") and "`" in line]
    return {head.strip().split(":")[0].strip("* "): re.findall(r"`([^`]+)`", keys) for head, keys in rows}


def keys_of(module: str, name: str) -> Iterator[str]:
    """The fields of a config class of the checkout."""
    tree = ast.parse(Path(ROOT, f"nemo_rl/algorithms/{module}.py").read_text())
    (found,) = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name]
    yield from (
        one.target.id for one in found.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    )


def set_key(key: str, value: Any) -> dict[str, Any]:
    """A config with one key."""
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


@needs_root
def test_every_key_of_the_checkout_stands_in_the_list_once_and_no_other_does() -> None:
    sections = {key.rpartition(".")[2] for key in CLASSES if key.startswith("grpo.")}
    known = {
        f"{prefix}.{key}"
        for prefix, place in CLASSES.items()
        for key in keys_of(*place)
        if not (prefix == "grpo" and key in sections)
    } | SWITCHES
    said = [key for keys in listed().values() for key in keys]
    spread = [
        one
        for key in said
        for one in (sorted(each for each in known if each.startswith(key[:-1])) if key.endswith(".*") else [key])
    ]
    assert len(spread) == len(set(spread))
    assert set(spread) == known


@pytest.mark.parametrize("kind", ["grpo", "grpo_async", "gym", "gym_async"])
def test_what_the_list_says_of_a_key_is_what_the_preflight_does(kind: str) -> None:
    base = {str(one) for one in refuse_mode({}, kind)}
    for head, keys in listed().items():
        for key in keys:
            if key.endswith(".*") or (kind.endswith("_async") and head != "refused"):
                continue
            if key == "env.should_use_nemo_gym" and kind.startswith("gym"):
                continue  # what they are
            if key == "grpo.max_val_samples" and kind.startswith("gym"):
                continue  # NeMo-RL's script for Gym refuses it, and so do we
            found = [str(one) for one in refuse_mode(set_key(key, True), kind) if str(one) not in base]
            assert any(one.startswith(key) for one in found) == (head == "refused"), (key, found)


def test_every_key_that_is_refused_of_grpo_stands_in_the_list() -> None:
    assert {rule.key for rule in REFUSED if "grpo" in rule.kinds} == set(listed()["refused"])


def test_each_estimator_stands_in_the_page_as_it_is_treated() -> None:
    for name, stands in ESTIMATORS.values():
        (row,) = [
            line
            for line in PAGE.splitlines()
            if line.startswith("| `adv_estimator.name")
            and f"`{name}`" in line.replace(f"adv_estimator.name: {name}", f"`{name}`")
        ]
        assert ("**refused**" in row) == (stands == "refused"), name
        assert bool(refuse_mode({"grpo": {"adv_estimator": {"name": name}}}, "grpo")) == (stands == "refused")
