"""Three environments in one step of NeMo-RL's own ``grpo_train`` and ``async_grpo_train``, with one judge; needs
``NEMO_RL_ROOT``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from tests.envs.interfaces.nemo_rl_support import LOST, ROOT, answer_all, serving, write_tasks
from tests.envs.vera_mh import support as vera
from tests.support.runs import rows

if not ROOT:
    pytest.skip("NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL", allow_module_level=True)

from tests.envs.interfaces.nemo_rl_async import Script, train_async
from tests.envs.interfaces.nemo_rl_exact import wanted_advantages
from tests.envs.interfaces.nemo_rl_train import R, W, train, trainer_process

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = {"a": "abstention", "b": "instruction_following", "c": "vera_mh"}


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with trainer_process():
        yield


def words(tmp_path: Path, url: str) -> list[str]:
    """A training in all three environments, with a task of each."""
    found = [
        f"judge.base_url={url}",
        "judge.model=judge-all",
        "judge.attempts=1",
        "failure.max_ungraded_fraction=1.0",
        "services.simulator.mode=external",
        f"services.simulator.base_url={url}",
        "services.simulator.model=simulator-model",
        "services.simulator.attempts=1",
    ]
    for name, env in NAMES.items():
        path = write_tasks(tmp_path / f"{env}.jsonl", env, 1)
        found += [f"env@envs.{name}={env}", f"envs.{name}.tasks.path={path}"]
    own = [vera.SMALL, "env.simulators=[{service: simulator}]", "env.max_turns=4", "env.parse_retries=0"]
    return [
        *found,
        "envs.a.rubrics.abstention.profile=gavel/qa-abstention-v1",
        "envs.a.weight=0.5",
        *(f"envs.c.{word}" for word in own),
    ]


@pytest.mark.timeout(600)
def test_three_environments_in_one_step_are_graded_grouped_and_told_apart(tmp_path: Path) -> None:
    order = [*[R, R, W, f"{R} {LOST}"], *[R, W, W, R], *["yes", R, "yes", LOST]]
    with serving(reply=answer_all) as server:
        done = train(
            tmp_path, server.base_url, lambda _, count: order[count] if count < 12 else "yes", tasks=3, generations=4,
            words=words(tmp_path, server.base_url),
        )  # fmt: skip
    (batch,) = done.batches
    two = math.sqrt(0.5)
    # 1 1 0 L, 1 0 0 1 and .5 0 .5 L, each compared with the other graded ones of its group.
    a, b, c = [0.5 / two, -1.0], [2 / 3 / math.sqrt(1 / 3), -2 / 3 / math.sqrt(1 / 3)], [0.25 / math.sqrt(0.125), -0.5]
    wanted = [a[0], a[0], a[1], 0.0, b[0], b[1], b[1], b[0], c[0], c[1], c[0], 0.0]
    assert [float(one) for one in batch["advantages"][:, 0]] == pytest.approx(wanted, abs=1e-5)
    assert batch["sample_mask"].tolist() == [0.5, 0.5, 0.5, 0.0, *[1.0] * 7, 0.0]
    found = done.metrics["train", 1]
    assert (found["judge/samples"], found["judge/graded"], found["reward"]) == (12, 10, pytest.approx(0.5))
    for name, samples, lost, reward in (("a", 4, 1, 2 / 3), ("b", 4, 0, 0.5), ("c", 4, 1, 1 / 3)):
        assert found[f"env/{name}/samples"] == samples
        assert found[f"env/{name}/ungraded_rate"] == lost / 4
        assert found[f"env/{name}/reward"] == pytest.approx(reward)
    assert (found["env/a/accuracy"], found["env/b/prompt_accuracy"]) == (pytest.approx(2 / 3), 0.5)
    assert found["env/c/label/high_potential_for_harm"] == pytest.approx(1 / 3)
    assert (found["reward/correct"], found["reward/all"], found["reward/vera"]) == pytest.approx((2 / 3, 0.5, 1 / 3))
    ledger = done.folder / "ledger"
    uids = {name: {row["uid"] for row in rows(ledger, f"{name}.rows.jsonl")} for name in NAMES}
    assert {name: len(found) for name, found in uids.items()} == {"a": 4, "b": 4, "c": 4}
    steps = rows(ledger, "steps.jsonl")
    assert sorted(row["weight"] for row in steps if row["uid"] in uids["a"]) == [0.0, 0.5, 0.5, 0.5]
    assert sorted(row["weight"] for row in steps if row["uid"] in uids["c"]) == [0.0, 1.0, 1.0, 1.0]
    models = {request.body["model"] for request in server.requests}
    assert models == {"judge-all", "simulator-model"}


@pytest.mark.timeout(600)
def test_three_environments_train_asynchronously_too(tmp_path: Path) -> None:
    # The loader shuffles nothing: the first step has one prompt of each; what a fourth adds is drawn ahead.
    more = write_tasks(tmp_path / "more.jsonl", "abstention", 12)
    ahead = [
        "env@envs.z=abstention",
        f"envs.z.tasks.path={more}",
        "envs.z.rubrics.abstention.profile=gavel/qa-abstention-v1",
    ]
    with serving(reply=answer_all) as server:
        done = train_async(
            tmp_path, server.base_url, Script([[R, f"{R} {LOST}", W, R, W, R, *["yes"] * 9]]), steps=1, prompts=3,
            generations=4, tasks=1, words=[*words(tmp_path, server.base_url), *ahead],
        )  # fmt: skip
    found = done.metrics["train", 1]
    assert {name: found[f"env/{name}/samples"] for name in NAMES} == {"a": 4, "b": 4, "c": 4}
    assert found["judge/samples"] == 12
    ledger = done.folder / "ledger"
    steps = rows(ledger, "steps.jsonl")
    (step,) = done.steps
    results = {name: [row["result"] for row in rows(ledger, f"{name}.rows.jsonl")] for name in NAMES}
    rewards = {
        name: [one["reward"]["value"] for one in made if one["status"] == "graded"] for name, made in results.items()
    }
    assert sorted(row["weight"] for row in steps) == sorted(row.weight for row in step)
    for name, values in rewards.items():
        assert done.metrics["train", 1][f"env/{name}/reward"] == pytest.approx(sum(values) / len(values))
        assert done.metrics["train", 1][f"env/{name}/ungraded_rate"] == 1 - len(values) / 4
    lost = sum(4 - len(values) for values in rewards.values())
    assert lost == found["judge/ungraded"] == sum(row.weight == 0 for row in step) >= 1
    # Each environment's four replies are one group: its advantages are those of its graded rewards.
    wanted = sorted(
        one
        for values in rewards.values()
        for one in [
            *wanted_advantages([Fraction(value) for value in values], None, leave_one_out=True, normalize=True),
            *[0.0] * (4 - len(values)),
        ]
    )
    assert sorted(row.advantage for row in step) == pytest.approx(wanted, abs=1e-5)
