"""The options of NeMo-RL's GRPO that touch rewards, advantages and masks, on its own ``grpo_train``; needs
``NEMO_RL_ROOT``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.envs.interfaces.nemo_rl_support import LOST, ROOT, serving
from tests.support.runs import rows

if not ROOT:
    pytest.skip("NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL", allow_module_level=True)

import torch
from tests.envs.interfaces import nemo_rl_harness as harness
from tests.envs.interfaces.nemo_rl_train import R, Trained, W, advantages, train, trainer_process

from gavel.envs.interfaces.nemo_rl.modes import refuse_mode
from gavel.launch.training.nemo_rl.config import KINDS
from gavel.launch.training.nemo_rl.recipe import load_exemplar

pytestmark = pytest.mark.filterwarnings("ignore")
GRADED = [R, R, W, R, W, f"{R} or so", W]


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with trainer_process():
        yield


def both(tmp_path: Path, **options: Any) -> tuple[Trained, Trained]:
    """Train on a group of seven graded replies, and on the same group with an eighth whose judge call is lost."""
    found = []
    for name, replies in (("alone", GRADED), ("lost", [*GRADED, f"{R} and {LOST}"])):
        folder = tmp_path / name
        folder.mkdir()
        with serving() as server:
            done = train(
                folder, server.base_url, lambda _, count, said=replies: said[count], generations=len(replies), **options
            )
        found.append(done)
    return found[0], found[1]


SHAPING = {"enabled": True, "overlong_buffer_length": 4, "max_response_length": 6}
OPTIONS: dict[str, dict[str, Any]] = {
    "no leave-one-out": {"use_leave_one_out_baseline": False},
    "no normalisation": {"normalize_rewards": False},
    "scaling": {"reward_scaling": {"enabled": True, "target_min": -1.0, "target_max": 3.0}},
    "overlong shaping": {"reward_shaping": SHAPING},
    "stop-properly shaping": {"reward_shaping": {"enabled": True, "stop_properly_penalty_coef": 0.5}},
    "overlong filtering": {"overlong_filtering": True},
    "clipping": {"advantage_clip_low": -0.5, "advantage_clip_high": 0.25},
    "reinforce++": {"adv_estimator": {"name": "reinforce_plus_plus"}},
    "reinforce++ without baseline": {"adv_estimator": {"name": "reinforce_plus_plus", "minus_baseline": False}},
    "sequence error": {"seq_logprob_error_threshold": 1.5},
    "advantages on the GPU": {"+calculate_advantages_on_gpu": True},
}


@pytest.mark.parametrize("options", [pytest.param(options, id=name) for name, options in OPTIONS.items()])
def test_a_lost_sample_changes_nothing_for_its_siblings(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_: tensor.clone())  # there may be no GPU
    changes = {f"+grpo.{key[1:]}" if key.startswith("+") else f"grpo.{key}": value for key, value in options.items()}
    alone, lost = both(tmp_path, **changes)
    first, second = alone.batches[0], lost.batches[0]
    assert advantages(second) == pytest.approx([*advantages(first), 0.0], abs=2e-3)
    assert len({round(value, 2) for value in advantages(first)}) > 1
    assert second["sample_mask"].tolist() == [*first["sample_mask"].tolist(), 0.0]
    for name in (
        "reward",
        "baseline_reward/pct_0",
        "baseline_reward/pct_1",
        "reward/graded_mean",
        "masked_correct_pct",
    ):
        assert lost.metrics["train", 1][name] == pytest.approx(alone.metrics["train", 1][name], abs=1e-5), name
    weights = [row["weight"] for row in rows(lost.folder / "ledger", "steps.jsonl")]
    assert weights == second["sample_mask"].tolist()


class Mistaken(harness.StandIn):
    """A policy that is sure of other tokens than the engine in its first sample."""

    def get_logprobs(self, data: Any, timer: Any = None) -> dict[str, Any]:
        """Zeros, but for the first sample."""
        found = torch.zeros(data["input_ids"].shape)
        found[0] = -3.0
        return {"logprobs": found}


def test_a_sequence_that_the_trainer_takes_out_has_no_weight_in_the_steps_either(tmp_path: Path) -> None:
    replies = [R, W, R, LOST]
    with serving() as server:
        done = train(
            tmp_path,
            server.base_url,
            lambda _, count: replies[count],
            generations=4,
            learner=Mistaken(),
            grpo={"seq_logprob_error_threshold": 1.5},
        )
    assert done.batches[0]["sample_mask"].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert done.metrics["train", 1]["num_masked_seqs_by_logprob_error"] == 1
    assert [row["weight"] for row in rows(done.folder / "ledger", "steps.jsonl")] == [0.0, 1.0, 1.0, 0.0]


def test_a_reply_cut_at_its_limit_is_filtered_by_the_trainer_and_keeps_its_place_in_the_baseline(
    tmp_path: Path,
) -> None:
    replies: list[Any] = [R, W, R, (f"{R} so" + " so" * 300, False), LOST]
    with serving() as server:
        done = train(
            tmp_path, server.base_url, lambda _, count: replies[count], generations=5, grpo={"overlong_filtering": True}
        )
    batch = done.batches[0]
    assert batch["sample_mask"].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]
    # NeMo-RL's own rule: the reply that was cut, a graded 0, counts among its siblings: 1 - 1/3 over sqrt(3/2 * 2/9).
    assert advantages(batch)[0] == pytest.approx((2 / 3) / (1 / 3) ** 0.5, abs=1e-3)


DYNAMIC = {"use_dynamic_sampling": True, "use_leave_one_out_baseline": False}


def test_dynamic_sampling_takes_a_lost_sample_for_no_spread(tmp_path: Path) -> None:
    # The first group is all right but for a lost call, which a zero would have made a group that differs.
    replies = [R, R, R, LOST, *[R, W, W, R]]
    with serving() as server:
        done = train(
            tmp_path, server.base_url, lambda _, count: replies[count], tasks=2, prompts=1, generations=4, grpo=DYNAMIC
        )
    batch, metrics = done.batches[0], done.metrics["train", 1]
    assert advantages(batch) == pytest.approx([0.866, -0.866, -0.866, 0.866], abs=1e-3)
    assert batch["sample_mask"].tolist() == [1.0] * 4
    trained = {row["uid"]: row["weight"] for row in rows(done.folder / "ledger", "steps.jsonl")}
    tasks = {row["uid"]: row["result"]["task_id"] for row in rows(done.folder / "ledger", "abstention.rows.jsonl")}
    assert {tasks[uid] for uid in trained} == {"abstention-1"}
    # The step's figures are of both its batches.
    assert (metrics["judge/samples"], metrics["judge/ungraded"]) == (8, 1)
    assert metrics["reward"] == pytest.approx(5 / 7)
    assert metrics["dynamic_sampling_num_gen_batches"] == 2


def test_dynamic_sampling_keeps_a_group_whole_and_its_lost_sample_weighs_nothing(tmp_path: Path) -> None:
    replies = [R, W, LOST, R, *[W, R, R, W]]
    with serving() as server:
        done = train(
            tmp_path, server.base_url, lambda _, count: replies[count], tasks=2, prompts=1, generations=4, grpo=DYNAMIC
        )
    batch = done.batches[0]
    assert batch["sample_mask"].tolist() == [1.0, 1.0, 0.0, 1.0]
    assert advantages(batch) == pytest.approx([0.577, -1.155, 0.0, 0.577], abs=1e-3)
    lost = {
        row["uid"]
        for row in rows(done.folder / "ledger", "abstention.rows.jsonl")
        if row["result"]["status"] != "graded"
    }
    trained = {row["uid"] for row in rows(done.folder / "ledger", "steps.jsonl") if row["weight"]}
    assert len(lost) == 1
    assert not lost & trained


def test_one_prompt_that_stands_in_a_batch_twice_is_one_group_of_graded_samples(tmp_path: Path) -> None:
    replies = [R, W, LOST, R, W, W]

    def twice(path: Path) -> None:
        line = path.read_text().splitlines()[0]
        path.write_text(f"{line}\n{line.replace('abstention-0', 'the-same-again')}\n")

    with serving() as server:
        done = train(tmp_path, server.base_url, lambda _, count: replies[count], tasks=2, generations=3, edit=twice)
    batch = done.batches[0]
    assert batch["sample_mask"].tolist() == [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    # Two of five are right: 1 - 1/4 over sqrt(4/3 * 3/16), and 0 - 2/4 over sqrt(4/3 * 1/4).
    assert advantages(batch) == pytest.approx([1.5, -0.866, 0.0, 1.5, -0.866, -0.866], abs=2e-3)
    assert len({row["uid"] for row in rows(done.folder / "ledger", "abstention.rows.jsonl")}) == 6


@pytest.mark.parametrize("kind", ["grpo", "single_controller"])  # grpo_async starts from the first and adds to it
def test_the_exemplars_of_nemo_rl_ask_for_nothing_that_is_refused(kind: Any) -> None:
    from omegaconf import OmegaConf

    exemplar = OmegaConf.to_container(load_exemplar(Path(ROOT) / KINDS[kind].exemplar))
    assert isinstance(exemplar, dict)
    assert refuse_mode(exemplar, kind) == []  # type: ignore[arg-type]
