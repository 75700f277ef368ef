"""Choices by name, and what each reward pays."""

from typing import Any

import pytest
from tests.envs.abstention_support import Script, rubric

from gavel.envs.abstention.rules import NATIVE
from gavel.envs.registry import ENVIRONMENTS, REWARDS, SOURCES, load_source, make_environment, make_reward
from gavel.envs.types import Outcome, RewardError
from gavel.judges.bindings import Binding
from gavel.judges.judge import BoundJudges
from gavel.models.errors import ConfigError
from gavel.models.failures import Failure, FailureKind

JUDGE = BoundJudges({"abstention": Binding("abstention", "general", rubric(NATIVE))}, lambda _: Script(lambda _: "A"))


def values(config: dict[str, Any]) -> list[float]:
    policy = make_reward(config)
    return [
        policy.reward(Outcome(label)).value for label in ("correct", "abstained", "incorrect", "truncated", "no_answer")
    ]


@pytest.mark.parametrize(
    ("config", "paid"),
    [
        ({"name": "tiered"}, [1.0, 0.5, 0.0, 0.0, 0.0]),
        ({"name": "tiered", "correct": 1.0, "abstain": 0.3, "incorrect": 0.0}, [1.0, 0.3, 0.0, 0.0, 0.0]),
        ({"name": "tiered", "correct": 1, "abstain": 0, "incorrect": -1}, [1.0, 0.0, -1.0, 0.0, 0.0]),
        ({"name": "tiered", "correct": 1, "abstain": -0.2, "incorrect": -1}, [1.0, -0.2, -1.0, -0.2, -0.2]),
        ({"name": "omniscience"}, [1.0, 0.0, -1.0, 0.0, 0.0]),
        ({"name": "omniscience", "correct": 1.0, "abstain": 0.0, "incorrect": -1.0}, [1.0, 0.0, -1.0, 0.0, 0.0]),
    ],
)
def test_each_label_earns_its_tier_and_no_answer_never_more_than_abstaining(
    config: dict[str, Any], paid: list[float]
) -> None:
    assert values(config) == paid


def test_the_components_make_up_the_value() -> None:
    policy = make_reward({"name": "tiered"})
    for label in ("correct", "abstained", "incorrect", "truncated", "no_answer"):
        reward = policy.reward(Outcome(label))
        assert sum(reward.components.values()) == reward.value
        assert set(reward.components) == {"correct", "abstain", "incorrect", "unanswered"}
    assert policy.reward(Outcome("abstained")).components["abstain"] == 0.5


def test_an_ungraded_outcome_or_a_foreign_label_is_not_rewarded() -> None:
    policy = make_reward({"name": "tiered"})
    for outcome in (Outcome("", failure=Failure(FailureKind.JUDGE_FAILED, "judge", "down")), Outcome("followed")):
        with pytest.raises(RewardError, match="cannot reward"):
            policy.reward(outcome)


@pytest.mark.parametrize(
    ("config", "field", "hint"),
    [
        ({"name": "tierd"}, "reward.name", "reward=tiered"),
        ({}, "reward.name", "choose one"),
        ({"name": "tiered", "abtain": 0.3}, "reward.abtain", "abstain"),
        ({"name": "tiered", "abstain": "much"}, "reward.abstain", "number"),
        ({"name": "tiered", "abstain": 1.5}, "reward.correct", "correct >= abstain >= incorrect"),
        ({"name": "tiered", "incorrect": 0.7}, "reward.abstain", "correct >= abstain >= incorrect"),
        ({"name": "omniscience", "abstain": 0.3}, "reward.abstain", "reward=tiered reward.abstain=0.3"),
    ],
)
def test_a_reward_that_does_not_fit_is_refused_with_the_key_and_the_remedy(
    config: dict[str, Any], field: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        make_reward(config)
    assert refused.value.field == field
    assert hint in str(refused.value)


def test_an_ablation_of_the_v1_objective_says_so() -> None:
    assert make_reward({"name": "tiered"}).ablation is None  # type: ignore[attr-defined]
    assert make_reward({"name": "omniscience"}).ablation is None  # type: ignore[attr-defined]
    changed = make_reward({"name": "tiered", "abstain": 0.3})
    assert changed.ablation == "ablation of the v1 objective: abstain=0.3 instead of 0.5"  # type: ignore[attr-defined]


def test_an_environment_is_made_by_name_with_its_options() -> None:
    made = make_environment({"name": "abstention", "exact_match_rule": False}, JUDGE, {})
    assert made.name == "abstention"


@pytest.mark.parametrize(
    ("config", "field", "hint"),
    [
        ({"name": "abstantion"}, "env.name", "env=abstention"),
        ({"name": "abstention", "exact_match": True}, "env.exact_match", "exact_match_rule"),
        ({"name": "abstention", "exact_match_rule": "yes"}, "env.exact_match_rule", "boolean"),
    ],
)
def test_an_environment_that_does_not_fit_is_refused_with_the_key_and_the_remedy(
    config: dict[str, Any], field: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        make_environment(config, JUDGE, {})
    assert refused.value.field == field
    assert hint in str(refused.value)


def test_every_entry_of_the_tables_can_be_loaded() -> None:
    for entry in (*ENVIRONMENTS.values(), *REWARDS.values()):
        config, make = entry.load_parts()
        assert callable(make)
        config()
    for name, source in SOURCES.items():
        env = source.env or "abstention"
        assert (source.load_adapter(env).name, source.load_adapter(env).env) == (name, env)


def test_a_source_is_found_by_name_for_its_own_environment() -> None:
    assert load_source("nemo_abstention_v1", "abstention").name == "nemo_abstention_v1"
    with pytest.raises(ConfigError, match="another environment's"):
        load_source("nemo_abstention_v1", "vera_mh")
    with pytest.raises(ConfigError) as refused:
        load_source("nemo_abstention")
    assert "nemo_abstention_v1" in refused.value.remedy
