"""Several environments in one training: how they are said, joined, checked and rendered."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.envs.interfaces.nemo_rl_support import write_tasks
from tests.envs.vera_mh import support as vera
from tests.launch.test_nemo_rl_launch import checkout

from gavel.launch.assembly.assemble import assemble_run, split_environments
from gavel.launch.compose.compose import compose_config
from gavel.launch.config.stored import from_yaml, to_yaml
from gavel.launch.training.nemo_rl.preflight import list_findings
from gavel.launch.training.preflight import check_run
from gavel.models.errors import ConfigError

JUDGE = [
    "judge.base_url=http://127.0.0.1:9/v1",
    "judge.model=j",
    "qualification.required=false",
    "hygiene_required=false",
]
SIMULATOR = [
    "services.simulator.mode=external",
    "services.simulator.base_url=http://127.0.0.1:9/v1",
    "services.simulator.model=s",
]
VERA = [vera.SMALL, "env.simulators=[{service: simulator}]", "env.max_turns=4"]


def words(tmp_path: Path, *more: str) -> list[str]:
    """A training in all three environments, on a double of NeMo-RL."""
    found = [*JUDGE, *SIMULATOR, f"trainer.nemo_rl_root={checkout(tmp_path / 'RL')}", "trainer.prompts_per_step=2"]
    for name, env in (("a", "abstention"), ("b", "instruction_following"), ("c", "vera_mh")):
        found += [f"env@envs.{name}={env}", f"envs.{name}.tasks.path={write_tasks(tmp_path / f'{env}.jsonl', env, 2)}"]
    return [*found, *(f"envs.c.{word}" for word in VERA), *more]


def test_each_environment_has_its_own_and_all_share_the_judge(tmp_path: Path) -> None:
    config = compose_config("train", words(tmp_path, "envs.a.reward.abstain=0.25", "envs.b.weight=2"))
    assert {name: (one.env["name"], one.reward["name"], one.weight) for name, one in config.envs.items()} == {
        "a": ("abstention", "tiered", 1.0),
        "b": ("instruction_following", "all", 2.0),
        "c": ("vera_mh", "vera", 1.0),
    }
    assert config.envs["a"].reward["abstain"] == 0.25
    assert set(config.rubrics) == set(config.judging.bindings) == {"abstention", "instruction_following", "vera_mh"}
    parts = split_environments(config)
    assert [sorted(part.services) for part in parts.values()] == [[], [], ["simulator"]]
    joined = assemble_run(config, with_policy=False)
    assert sorted(joined.services) == ["general", "simulator"]
    assert set(joined.bindings) == set(config.judging.bindings)
    assert from_yaml(type(config), to_yaml(config)) == config


def test_the_trainers_config_has_an_actor_and_data_for_each(tmp_path: Path) -> None:
    run = tmp_path / "run"
    checked = check_run(compose_config("train", words(tmp_path, "envs.b.weight=2", "envs.a.tasks.limit=1")), run)
    made = yaml.safe_load(checked.config_text)
    assert set(made["env"]) == {"gavel_a", "gavel_b", "gavel_c"}
    assert [actor["name"] for actor in made["env"].values()] == ["a", "b", "c"]
    assert {actor["ledger"] for actor in made["env"].values()} == {str(run / "ledger")}
    assert [
        (one["env_name"], one.get("weight"), one.get("limit"), one["multi_turn"]) for one in made["data"]["train"]
    ] == [("gavel_a", None, 1, False), ("gavel_b", 2.0, None, False), ("gavel_c", None, None, True)]
    assert made["grpo"]["max_rollout_turns"] == 2
    assert made["data"]["validation"] is None
    assert list(made["env"]["gavel_a"]["parts"]["services"]) == ["general"]
    # Abstention and instruction following ask the same questions here, and are kept apart.
    assert list_findings(made, probe=False, places=False) == []
    assert not any("envs" in str(finding) for finding in checked.findings), checked.findings


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["reward=tiered"], "reward: with several environments this is said of one of them"),
        (["tasks.path=x.jsonl"], r"tasks\.path: with several environments"),
        (["judge@envs.a=qwen3_32b"], r"envs\.a\.judge: all environments of a training share this"),
        (["envs.a.trainer.max_steps=3"], r"envs\.a\.trainer: all environments of a training share this"),
        (["envs.d.tasks.path=x"], r"envs\.d: this environment is not chosen"),
        (["envs.a.weight=0"], r"envs\.a\.weight: this is no weight"),
        (["envs.a.weight=nan"], r"envs\.a\.weight: this is no weight"),
        (["env@envs.d=abstention", "envs.d.rubrics.abstention.temperature=0.5"], r"envs\.d\.rubrics\.abstention: two"),
        (["envs.a.env.no_such=1"], r"envs\.a\.env\.no_such"),
        (["env@envs.a/b=abstention"], "path|name"),
    ],
)
def test_a_word_that_does_not_fit_is_refused_by_its_key(more: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        assemble_run(compose_config("train", words(tmp_path, *more)), with_policy=False)


def test_one_environment_twice_with_two_rewards_is_told_apart_by_name(tmp_path: Path) -> None:
    one, two = (write_tasks(tmp_path / f"{name}.jsonl", "abstention", 2) for name in ("one", "two"))
    said = [
        *JUDGE, f"trainer.nemo_rl_root={checkout(tmp_path / 'RL')}", "trainer.prompts_per_step=2",
        "env@envs.kind=abstention", "envs.kind.reward.abstain=0.9", f"envs.kind.tasks.path={one}",
        "env@envs.strict=abstention", "envs.strict.reward.abstain=0.1", f"envs.strict.tasks.path={two}",
    ]  # fmt: skip
    checked = check_run(compose_config("train", said), tmp_path / "run")
    made = yaml.safe_load(checked.config_text)
    assert {name: actor["reward"]["abstain"] for name, actor in made["env"].items()} == {
        "gavel_kind": 0.9,
        "gavel_strict": 0.1,
    }
    assert list_findings(made, probe=False, places=False) == []


def test_what_is_wrong_with_one_is_told_with_its_name_and_other_trainers_train_in_one(tmp_path: Path) -> None:
    said = [word for word in words(tmp_path) if not word.startswith("envs.b.tasks")]
    config = compose_config("train", [*said, "envs.c.tasks.path=/no/such.jsonl", "trainer.kind=trl"])
    found = "\n".join(map(str, check_run(config, tmp_path / "run").findings))
    assert "envs.b.tasks.path: no tasks are named" in found
    assert "envs.c.tasks.path: there is no such file" in found
    assert "this trainer trains in one environment" in found


def test_a_container_must_see_the_tasks_of_each(tmp_path: Path) -> None:
    said = words(tmp_path, "cluster=slurm", "cluster.container=image.sqsh", "cluster.mounts=['/elsewhere:/elsewhere']")
    found = "\n".join(map(str, check_run(compose_config("train", said), tmp_path / "run").findings))
    for name in "abc":
        assert f"envs.{name}.tasks.path: the container does not see this place" in found
