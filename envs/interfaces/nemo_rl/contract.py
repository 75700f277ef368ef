"""What the hooks take hold of in NeMo-RL, by name; imports nothing of it.

Names are those of NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

from collections.abc import Mapping

TESTED = "7ea279abfbeb698b092856d0dab61e7cf39bc909"
BASELINE = "calculate_baseline_and_std_per_prompt"
LOGGING = "_log_mixed_rewards_and_advantages_information"

NEEDED: Mapping[str, tuple[str, ...]] = {
    "nemo_rl.experience.rollouts": ("calculate_rewards",),
    "nemo_rl.experience.rollout_manager": ("calculate_rewards", "AsyncRolloutImpl"),
    "nemo_rl.algorithms.advantage_estimator": (BASELINE, "GRPOAdvantageEstimator"),
    "nemo_rl.data.utils": ("setup_response_data",),
    "nemo_rl.algorithms.grpo": (
        "run_multi_turn_rollout",
        "run_async_multi_turn_rollout",
        "validate",
        "grpo_train",
        BASELINE,
        LOGGING,
    ),
}
"""What the hooks take hold of, by module."""

NEEDED_ASYNC: Mapping[str, tuple[str, ...]] = {
    "nemo_rl.algorithms.grpo": ("async_grpo_train",),
    "nemo_rl.algorithms.async_utils": ("AsyncTrajectoryCollector",),
    "nemo_rl.algorithms.async_utils.trajectory_collector": ("AsyncTrajectoryCollector",),
}
"""What they take hold of besides where training is asynchronous."""
COLLECTOR = ("_collect_rollout_batch", "_iter_rollout_groups")
"""The methods of its collector that are overridden."""

GYM_ROLLOUT = "run_nemo_gym_rollout_sync"
NEEDED_GYM: Mapping[str, tuple[str, ...]] = {
    "nemo_rl.experience.rollouts": ("_postprocess_single_nemo_gym_group", "calculate_single_metric"),
    "nemo_rl.algorithms.grpo": (GYM_ROLLOUT,),
}
"""What they take hold of besides where NeMo Gym rolls out."""

COMPONENTS = "GDPOAdvantageEstimator"
"""The estimator that compares the components of a reward one by one."""
ESTIMATORS: Mapping[str, tuple[str, str]] = {
    "GRPOAdvantageEstimator": ("grpo", "exact"),
    "ReinforcePlusPlusAdvantageEstimator": ("reinforce_plus_plus", "exact"),
    COMPONENTS: ("gdpo", "exact"),
    "OPDAdvantageEstimator": ("opd", "refused"),
    "RawRewardAdvantageEstimator": ("raw_reward", "refused"),  # of PPO, which is not hooked
    "GeneralizedAdvantageEstimator": ("gae", "refused"),
}
"""By class: the name in ``grpo.adv_estimator.name``, and how it stands with samples that were not graded. Others are
unknown, and refused too."""
