"""The YAML of the groups env, reward, failure and source says exactly what the code takes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gavel.envs.abstention.environment import AbstentionConfig
from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.registry import ENVIRONMENTS, REWARDS, SOURCES, make_reward
from gavel.envs.source_files import SourceConfig
from gavel.judges.rubrics.table import find_profile
from gavel.judges.types import Judging, RubricConfig
from gavel.models.codec import decode, to_plain

CONF = Path(__file__).parents[2] / "conf"


def read(group: str, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CONF / group / f"{name}.yaml").read_text())
    return loaded


@pytest.mark.parametrize(("group", "names"), [("env", ENVIRONMENTS), ("reward", REWARDS), ("source", SOURCES)])
def test_every_choice_in_the_code_has_its_file(group: str, names: dict[str, object]) -> None:
    assert set(names) <= {path.stem for path in (CONF / group).glob("*.yaml")}


@pytest.mark.parametrize("name", ["tiered", "omniscience"])
def test_a_rewards_file_holds_all_its_options_at_their_defaults(name: str) -> None:
    config = read("reward", name)
    options, _ = REWARDS[name].load_parts()
    assert config == {"name": name, **to_plain(options())}
    make_reward(config)


@pytest.mark.parametrize("name", ["zero", "strict"])
def test_a_failure_policys_file_holds_all_its_fields(name: str) -> None:
    assert decode(FailurePolicy, read("failure", name)) == FailurePolicy(name)  # type: ignore[arg-type]
    assert set(read("failure", name)) == set(to_plain(FailurePolicy()))


def test_the_sources_file_holds_all_its_options() -> None:
    config = read("source", "nemo_abstention_v1")
    assert set(config) == set(to_plain(SourceConfig("x")))
    assert decode(SourceConfig, config) == SourceConfig("nemo_abstention_v1", binding="abstention")


def test_the_environments_file_binds_the_native_profile() -> None:
    config = read("env", "abstention")
    assert config["env"] == {"name": "abstention", **to_plain(AbstentionConfig())}
    rubric = decode(RubricConfig, config["rubrics"]["abstention"])
    assert rubric == RubricConfig("nvidia/qa-abstention-v1", 64, 0.0)
    assert set(config["rubrics"]["abstention"]) == set(to_plain(rubric)), "keys that a user may override are all there"
    assert find_profile(rubric.profile).targets == ("nemo_abstention_v1",)
    bound = decode(Judging, config["judging"]).bindings["abstention"]
    assert (bound.judge, bound.rubric) == ("general", "abstention")
