"""The config: what composes, who wins, and what is refused with the nearest valid name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gavel.envs.registry import ENVIRONMENTS, reward_names
from gavel.launch.compose.compose import compose_config
from gavel.launch.compose.verbs import GROUPS, VERBS
from gavel.launch.config.groups import CONF, PACKAGE, list_choices, list_groups
from gavel.launch.config.schema import RolloutConfig
from gavel.launch.config.stored import from_yaml, to_yaml
from gavel.launch.config.task_paths import resolve_task_path
from gavel.models.errors import ConfigError

REMOTE = (
    "policy=external", "policy.base_url=http://127.0.0.1:8000/v1", "policy.model=p",
    "judge=external", "judge.base_url=http://127.0.0.1:8001/v1", "judge.model=j",
)  # fmt: skip


def rollout(*words: str, **more: Any) -> RolloutConfig:
    made = compose_config("rollout", [*REMOTE, *words], **more)
    assert isinstance(made, RolloutConfig)
    return made


def refused(*words: str, verb: str = "rollout", remote: bool = True, **more: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        compose_config(verb, [*REMOTE, *words] if remote and verb == "rollout" else words, **more)
    text = str(caught.value)
    assert "+" not in text, "an error may not suggest to add a key"
    assert "Traceback" not in text
    assert len(text.splitlines()) <= 6
    return caught.value


def test_the_keys_of_the_one_service_case_reach_the_config() -> None:
    config = rollout("tasks.path=t.jsonl", "tasks.limit=3", "rollouts_per_task=2", "concurrency=5", "run.dir=runs/x")
    assert (config.policy.base_url, config.policy.model) == ("http://127.0.0.1:8000/v1", "p")
    assert (config.judge.base_url, config.judge.model) == ("http://127.0.0.1:8001/v1", "j")
    assert (config.tasks.path, config.tasks.limit, config.rollouts_per_task, config.concurrency) == ("t.jsonl", 3, 2, 5)
    assert config.run.dir == "runs/x"
    assert set(config.service_table) == {"policy", "general"}


POLICY = ("policy=external", "policy.base_url=http://127.0.0.1:1/v1", "policy.model=m")
NEEDS = dict.fromkeys(("vera_mh_recommended", "debug_single_gpu", "abstention_qwen3_1p7b", "reward_ablation"), POLICY)
"""What an experiment leaves to its user: the policy that a benchmark is of, or that a training makes."""


def _needed(verb: str, experiment: str) -> list[str]:
    words = [word for word in NEEDS.get(experiment, ()) if "policy" in VERBS[verb].groups]
    return (
        [*words, "gym.play=true"] if verb == "serve" and words else words
    )  # else a service asks no policy, and says so


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS.values() if "experiment" in verb.groups])
@pytest.mark.parametrize("experiment", list_choices("experiment", [CONF]))
def test_every_experiment_composes_with_every_verb(verb: str, experiment: str) -> None:
    words = [f"experiment={experiment}", *_needed(verb, experiment)]
    assert type(compose_config(verb, words)).__name__ == VERBS[verb].schema


def is_preset(group: str, choice: str) -> bool:
    """Whether this is a service that the user must say the model of."""
    return group in ("policy", "judge") and "\nmodel: null\n" in (CONF / group / f"{choice}.yaml").read_text()


@pytest.mark.parametrize(("group", "choice"), [(g, c) for g in GROUPS for c in list_choices(g, [CONF])])
def test_every_choice_of_every_group_composes_with_every_verb_that_uses_it(group: str, choice: str) -> None:
    for verb in VERBS.values():
        if group not in verb.groups:
            continue
        both = [name for name in ("policy", "judge") if name in verb.groups and group != "experiment"]
        words = [f"{name}=smollm2" for name in both if name != group] + [f"{group}={choice}"]
        words += _needed(verb.name, choice) if group == "experiment" else []
        words += [
            f"env={env}"
            for env in ENVIRONMENTS
            if group == "reward" and "env" in verb.groups and choice in reward_names(env)
        ]
        words += [f"{group}.base_url=http://127.0.0.1:1/v1", f"{group}.model=m"] if is_preset(group, choice) else []
        words += ["gym.play=true"] if verb.name == "serve" and group == "policy" else []
        compose_config(verb.name, words)


def test_every_verb_lists_the_same_groups_so_that_experiments_serve_them_all() -> None:
    assert set(GROUPS) >= set(list_groups([CONF]))
    for verb in VERBS:
        text = (CONF / f"{verb}.yaml").read_text()
        wanted = [
            *GROUPS[1:-1],
            GROUPS[0],
            "_self_",
            GROUPS[-1],
        ]  # the environment after the groups whose choice it may set
        if verb in ("train", "doctor"):  # the trainer after the environment and the tasks, which it may bring
            wanted.remove("trainer")
            wanted.insert(-1, "trainer")
        assert [line.split(":")[0].strip(" -") for line in text.splitlines() if line.startswith("  - ")] == wanted


def test_the_demo_is_smollm2_twice_with_the_strict_rubric_over_the_shipped_samples() -> None:
    config = compose_config("rollout", ["experiment=demo"])
    assert config.policy.model == config.judge.model == "embedded:smollm2"
    assert config.policy.mode == config.judge.mode == "managed"
    assert config.policy.cpu
    assert config.judge.cpu
    assert config.rubrics["abstention"].profile == "gavel/qa-abstention-v1"
    assert config.run.dir == "runs/demo"
    assert resolve_task_path(config.tasks.path) == PACKAGE / "envs/abstention/data/samples.jsonl"


# Who wins


def test_the_command_line_beats_the_experiment_and_a_later_word_an_earlier_one() -> None:
    config = compose_config(
        "rollout", ["concurrency=2", "experiment=demo", "concurrency=3", "policy.sampling.max_response_tokens=7"]
    )
    assert (config.concurrency, config.policy.sampling.max_response_tokens) == (3, 7)


def test_a_group_chosen_on_the_command_line_beats_the_one_an_experiment_chooses() -> None:
    config = compose_config("rollout", ["experiment=demo", "reward=omniscience"])
    assert config.reward["name"] == "omniscience"


def test_another_choice_of_a_group_leaves_nothing_of_the_first() -> None:
    config = compose_config("rollout", [*REMOTE[:3], "judge=smollm2"])
    assert config.judge.base_url is None


def test_the_word_after_the_verb_is_the_run_folder_whatever_its_characters() -> None:
    assert (
        compose_config("rescore", ["reward.abstain=0.3"], runs=["runs/it's a (new), one=1"]).run.dir
        == "runs/it's a (new), one=1"
    )
    assert compose_config("rescore", runs=["17"]).run.dir == "17"


def test_regrade_keeps_judge_and_rubrics_of_the_run_unless_they_are_given() -> None:
    kept = compose_config("regrade", runs=["runs/x"])
    assert kept.judge is None
    assert kept.rubrics is None
    other = compose_config(
        "regrade", [*REMOTE[3:], "rubrics.abstention.profile=gavel/qa-abstention-v1"], runs=["runs/x"]
    )
    assert other.judge.model == "j"
    assert other.rubrics["abstention"].profile == "gavel/qa-abstention-v1"


# Values


def test_a_key_that_holds_a_text_takes_it_as_it_stands() -> None:
    config = rollout("inspect=0017", "tasks.path=data/a,b (1) [x].jsonl", "run.dir='runs/quoted'", "policy.model=2024")
    assert (config.inspect, config.tasks.path, config.run.dir, config.policy.model) == (
        "0017",
        "data/a,b (1) [x].jsonl",
        "runs/quoted",
        "2024",
    )


def test_null_unsets_a_key() -> None:
    assert rollout("policy.sampling.temperature=null", "run.dir=x", "run.dir=null").run.dir is None


def test_interpolations_are_resolved() -> None:
    config = rollout("run.dir=runs/${env.name}-${concurrency}", "concurrency=7", "judge.base_url=${policy.base_url}")
    assert config.run.dir == "runs/abstention-7"
    assert config.judge.base_url == config.policy.base_url


def test_keys_below_an_open_mapping_need_no_declaration() -> None:
    served = compose_config("probe", ["env=abstention", "judge=smollm2", "judge.engine_args.max_num_seqs=4"])
    assert served.judge.engine_args == {"max_num_seqs": 4}
    config = rollout("policy.default_headers.X-Team=rl", "policy.sampling.extra.top_k=5")
    assert config.policy.default_headers == {"X-Team": "rl"}
    assert config.policy.sampling.extra is not None
    assert config.policy.sampling.extra["top_k"] == 5


SECOND = ("services.second.mode=external", "services.second.base_url=http://127.0.0.1:2/v1", "services.second.model=s")


@pytest.mark.parametrize(
    "words",
    [
        SECOND,
        ("services.second={mode: external, base_url: 'http://127.0.0.1:2/v1', model: s}",),
        ("+services.second={mode: external, base_url: 'http://127.0.0.1:2/v1', model: s}",),
        ("services.second={mode: external, base_url: 'http://127.0.0.1:2/v1'}", "+services.second.model=s"),
    ],
)
def test_further_services_are_declared_under_services_with_the_defaults_of_a_service(words: tuple[str, ...]) -> None:
    second = rollout(*words).services["second"]
    assert (second.mode, second.base_url, second.model) == ("external", "http://127.0.0.1:2/v1", "s")
    assert (second.attempts, second.timeout.connect, second.max_in_flight) == (4, 10.0, 64)


def test_a_group_file_can_fill_a_further_service() -> None:
    config = rollout("judge@services.second=remote_api", "services.second.model=other")
    assert config.services["second"].api_key_env == "OPENAI_API_KEY"
    assert config.services["second"].model == "other"
    assert config.judge.model == "j"


def test_a_key_can_be_removed() -> None:
    assert rollout(*SECOND, "~services.second").services == {}


# What is refused


@pytest.mark.parametrize(
    ("word", "field", "meant"),
    [
        ("tasks.limt=3", "tasks.limt", "`tasks.limit`"),
        ("policy.sampling.temprature=1", "policy.sampling.temprature", "`policy.sampling.temperature`"),
        ("+policy.sampling.temprature=1", "policy.sampling.temprature", "`policy.sampling.temperature`"),
        ("++tasks.limt=3", "tasks.limt", "`tasks.limit`"),
        ("limit=3", "limit", "`tasks.limit`"),
        ("task.limit=3", "task", "`tasks.limit`"),
        ("base_url=x", "base_url", "`policy.base_url`"),
        ("reward.abstian=0.3", "reward.abstian", "`reward.abstain`"),
        ("+reward.abstian=0.3", "reward.abstian", "`reward.abstain`"),
        ("env.nmae=x", "env.nmae", "`env.name`"),
        ("services.second.modle=x", "services.second.modle", "`services.second.model`"),
        ("services.second={modle: x}", "services.second.modle", "`services.second.model`"),
        ("~tasks.limt", "tasks.limt", "`tasks.limit`"),
        ("polcy=smollm2", "polcy", "`policy`"),
        ("+polcy=smollm2", "polcy", "`policy`"),
        ("experment=demo", "experment", "`experiment`"),
        ("tasks.path.x=1", "tasks.path.x", "`tasks.path`"),
    ],
)
def test_a_wrong_key_is_refused_with_the_one_that_was_meant(word: str, field: str, meant: str) -> None:
    failed = refused(word)
    assert failed.field == field
    assert meant in failed.remedy + failed.problem


def test_a_key_like_no_other_is_refused_with_all_that_are_allowed() -> None:
    failed = refused("zzz=1")
    assert failed.field == "zzz"
    assert "concurrency" in failed.allowed


@pytest.mark.parametrize(
    ("word", "field", "found", "allowed"),
    [
        ("concurrency=abc", "concurrency", "abc", "integer"),
        ("concurrency=1.5", "concurrency", "1.5", "integer"),
        ("tasks.limit=many", "tasks.limit", "many", "integer"),
        ("dry_run=1", "dry_run", "1", "boolean"),
        ("policy.sampling.temperature=hot", "policy.sampling.temperature", "hot", "number"),
        ("policy.mode=local", "policy.mode", "local", "'external' or 'managed'"),
        ("policy.timeout.total=[1]", "policy.timeout.total", "[1]", "number"),
        ("rubrics.abstention.max_response_tokens=lots", "rubrics.abstention.max_response_tokens", "lots", "integer"),
    ],
)
def test_a_wrong_type_is_refused_with_key_found_and_allowed(word: str, field: str, found: str, allowed: str) -> None:
    failed = refused(word)
    assert failed.field == field
    assert failed.found == found
    assert allowed in failed.allowed


@pytest.mark.parametrize(
    ("word", "group", "meant"),
    [
        ("judge=smolm2", "judge", "judge=smollm2"),
        ("judge=qwen3-32b", "judge", "judge=qwen3_32b"),
        ("reward=tired", "reward", "reward=tiered"),
        ("failure=stict", "failure", "failure=strict"),
        ("experiment=dmeo", "experiment", "experiment=demo"),
        ("env=abstain", "env", "env=abstention"),
        ("judge@services.second=externl", "judge", "judge=external"),
    ],
)
def test_a_wrong_choice_is_refused_with_the_nearest_and_all_there_are(word: str, group: str, meant: str) -> None:
    failed = refused(word)
    assert failed.field == group
    assert meant in failed.remedy
    assert failed.allowed == ", ".join(list_choices(group, [CONF]))


def test_a_group_another_verb_uses_is_refused_not_ignored() -> None:
    failed = refused("judge=smollm2", verb="rescore")
    assert failed.field == "judge"
    assert failed.allowed == "reward, experiment"


def test_a_key_another_verb_uses_is_refused_on_the_command_line() -> None:
    assert refused("tasks.limit=1", verb="rescore").field == "tasks"


@pytest.mark.parametrize(
    "word", ["tasks.limit=1,2", "tasks.limit=[1", "hydra.run.dir=x", "hydra/launcher=basic", "nonsense", "=3"]
)
def test_words_that_mean_nothing_here_are_refused(word: str) -> None:
    refused(word)


def test_a_misspelled_verb_is_refused_with_the_nearest() -> None:
    failed = refused(verb="rolout")
    assert failed.found == "rolout"
    assert "gavel rollout" in failed.remedy


def test_a_broken_interpolation_names_the_key_that_holds_it() -> None:
    failed = refused("run.dir=${nope.x}")
    assert failed.field == "run.dir"
    assert "nope.x" in failed.found


def test_without_a_choice_of_policy_or_judge_the_choices_are_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        compose_config("rollout", [])
    assert caught.value.field == "policy"
    assert "smollm2" in caught.value.allowed
    assert "policy.base_url=" in caught.value.remedy
    with pytest.raises(ConfigError) as caught:
        compose_config("rollout", [*REMOTE[:3], "judge.model=j"])
    assert caught.value.field == "judge.base_url"


def test_a_key_in_place_of_a_variables_name_is_refused_and_not_shown() -> None:
    failed = refused("policy.api_key_env=sk-abcdefghijklmnop")
    assert failed.field == "policy.api_key_env"
    assert "sk-abc" not in str(failed)


# Folders of the user's own


Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = tmp_path / "own conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return tmp_path / "own conf"

    return write


def test_a_folder_of_ones_own_is_searched_before_ours(write: Write) -> None:
    write("policy/mine.yaml", "mode: external\nmodel: mine\nbase_url: http://127.0.0.1:3/v1\n")
    own = write("reward/tiered.yaml", "name: tiered\ncorrect: 2.0\nabstain: 0.5\nincorrect: 0.0\n")
    config = compose_config("rollout", ["policy=mine", *REMOTE[3:]], [own])
    assert config.policy.model == "mine"
    assert config.policy.deadline == 600.0
    assert config.reward["correct"] == 2.0


def test_an_experiment_of_ones_own_overrides_groups_and_keys(write: Write) -> None:
    own = write(
        "experiment/mine.yaml",
        "# @package _global_\n"
        "defaults:\n  - override /policy: smollm2\n  - override /judge: smollm2\n  - override /reward: omniscience\n"
        "services:\n  second: {mode: external, model: s, base_url: 'http://127.0.0.1:2/v1'}\nconcurrency: 5\n",
    )
    config = compose_config("rollout", ["experiment=mine"], [own])
    assert (config.concurrency, config.reward["name"], config.services["second"].model) == (5, "omniscience", "s")


def test_a_typo_in_a_file_is_refused_like_one_on_the_command_line(write: Write) -> None:
    own = write("experiment/mine.yaml", "# @package _global_\ntasks:\n  limt: 3\n")
    failed = refused("experiment=mine", config_dirs=[own])
    assert failed.field == "tasks.limt"
    assert "`tasks.limit`" in failed.remedy


def test_a_wrong_choice_in_a_file_names_the_file_and_the_choices(write: Write) -> None:
    own = write("experiment/mine.yaml", "# @package _global_\ndefaults:\n  - override /reward: tired\n")
    failed = refused("experiment=mine", config_dirs=[own])
    assert failed.where == "experiment/mine.yaml"
    assert (failed.field, failed.found) == ("reward", "tired")
    assert "omniscience" in failed.allowed


def test_a_group_that_does_not_exist_in_a_files_defaults_is_refused(write: Write) -> None:
    own = write("experiment/mine.yaml", "# @package _global_\ndefaults:\n  - override /polcy: smollm2\n")
    assert "polcy" in str(refused("experiment=mine", config_dirs=[own]))


def test_a_file_that_is_not_yaml_is_refused_with_its_line(write: Write) -> None:
    own = write("experiment/mine.yaml", "# @package _global_\ntasks:\n  limit: 3\n path: [\n")
    failed = refused("experiment=mine", config_dirs=[own])
    assert "mine.yaml:" in failed.where


def test_a_key_a_file_leaves_open_must_be_set(write: Write) -> None:
    own = write("policy/mine.yaml", "mode: external\nmodel: ???\nbase_url: http://127.0.0.1:3/v1\n")
    failed = refused("policy=mine", config_dirs=[own], remote=False)
    assert failed.field == "policy.model"
    assert "policy.model=" in failed.remedy


def test_a_config_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert refused(config_dirs=[tmp_path / "none"]).field == "--config-dir"


# The file in the run folder


def test_a_config_survives_its_yaml() -> None:
    config = rollout(*SECOND, "inspect=17", "policy.api_key_env=[A_KEY,B_KEY]", "policy.sampling.temperature=1e-3")
    text = to_yaml(config)
    assert from_yaml(RolloutConfig, text) == config
    assert "api_key_env:" in text


def test_a_changed_yaml_is_read_as_strictly_as_a_command_line() -> None:
    with pytest.raises(ConfigError) as caught:
        from_yaml(RolloutConfig, to_yaml(rollout()).replace("concurrency:", "concurency:"), where="config.yaml")
    assert caught.value.where == "config.yaml"


def test_composing_leaves_hydras_global_state_as_it_was() -> None:
    from hydra.core.global_hydra import GlobalHydra

    rollout()
    assert not GlobalHydra.instance().is_initialized()


def test_nothing_below_the_launch_layer_imports_hydra() -> None:
    code = (
        "import sys, gavel.envs.registry, gavel.launch.config.schema; print(sorted({'hydra', 'omegaconf'} & "
        "set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
