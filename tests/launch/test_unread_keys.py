"""A key that nothing reads is refused, with what would make it count; no advice names one."""

from __future__ import annotations

import ast
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from gavel.envs.abstention.environment import AbstentionConfig
from gavel.envs.instruction_following.environment import InstructionFollowingConfig
from gavel.envs.vera_mh.config import VeraMhConfig
from gavel.launch.compose.compose import compose_config
from gavel.launch.compose.services import READS, check_read, check_services
from gavel.launch.compose.verbs import VERBS as VERB_TABLE
from gavel.launch.config import schema as schemas
from gavel.launch.config.keys import list_known_keys
from gavel.models.codec import decode, to_plain
from gavel.models.errors import ConfigError, GavelError

SERVED = ("policy=smollm2", "judge=smollm2", "env=abstention")
ELSEWHERE = ("policy=smollm2", "judge=openai", "judge.model=m", "env=abstention")


def refused(verb: str, *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose_config(verb, words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("temperature=0.7", "rubrics.NAME.temperature=0.7"),
        ("max_response_tokens=4096", "rubrics.NAME.max_response_tokens=4096"),
        ("seed=5", "judge.extra_body={seed: 5}"),
        ("extra={enable_thinking: false}", "judge.extra_body={enable_thinking: false}"),
        ("stop=[x]", "judge.extra_body"),
    ],
)
@pytest.mark.parametrize("verb", ["rollout", "probe", "regrade"])
def test_a_judges_sampling_is_refused_with_the_key_that_is_read(verb: str, key: str, right: str) -> None:
    words = (
        ["judge=openai", "judge.model=m"]
        if verb == "regrade"
        else list(ELSEWHERE[1:] if verb == "probe" else ELSEWHERE)
    )
    said = refused(verb, *words, f"judge.sampling.{key}")
    assert right in said
    written = said.split("write ")[1].split(";")[0].split("\n")[0].replace("rubrics.NAME", "rubrics.abstention")
    if verb != "regrade":
        compose_config(verb, [*words, written])  # what is advised works


def test_a_further_services_sampling_is_refused_and_one_that_a_group_brings_is_not() -> None:
    second = ["judge@services.second=openai", "services.second.model=m", "judging.bindings.abstention.judge=second"]
    assert "services.second.extra_body={seed: 5}" in refused(
        "rollout", *SERVED, *second, "services.second.sampling.seed=5"
    )
    compose_config("rollout", [*SERVED, "policy@services.second=smollm2", "judging.bindings.abstention.judge=second"])


@pytest.mark.parametrize("key", ["rubrics.abstention.extra={a: 1}", "rubrics.abstention.seed=5", "judge.extra={a: 1}"])
def test_no_advice_names_a_key_that_is_not_read(key: str) -> None:
    said = refused("rollout", *ELSEWHERE, key)
    assert "judge.extra_body" in said
    assert "judge.sampling" not in said


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        ("rollout", (*ELSEWHERE, "judge.gpus=2"), "only a managed service reads it"),
        ("rollout", (*ELSEWHERE, "judge.engine_args={a: 1}"), "only a managed service reads it"),
        ("rollout", (*SERVED, "judge.base_url=http://h/v1"), "only an external service reads it"),
        ("rollout", (*SERVED, "judge.served_as=[m]"), "only an external service reads it"),
        ("rollout", (*SERVED, "policy.query={a: b}"), "only an external service reads it"),
        (
            "rollout",
            (*ELSEWHERE, "judge.api=responses", "judge.max_tokens_field=max_tokens"),
            "one name for the output limit",
        ),
        ("rollout", (*ELSEWHERE, "judge.api_key_env=null", "judge.key_header=api-key"), "no api_key_env"),
        ("rollout", (*SERVED, "policy.cache=true"), "only a judge's calls read it"),
        ("rollout", (*SERVED, "policy.response_format=none"), "only a judge's calls read it"),
        ("rollout", (*SERVED, "policy.omit=[seed]", "policy.sampling.seed=1"), "policy.omit leaves the field out"),
        ("rollout", (*SERVED, "policy.extra_body={seed: 1}"), "policy.sampling.seed"),
        ("rollout", (*SERVED, "deadline_margin=5"), "without deadline"),
        ("rollout", (*SERVED, "export.wandb.group=g"), "without export.wandb.project"),
        ("rollout", (*SERVED, "show_sensitive=true"), "without inspect"),
        ("probe", (*SERVED[1:], "policy.model=x"), "asks no policy"),
        ("serve", (*SERVED, "policy.sampling.temperature=0.5"), "gym.play=true"),
        ("rollout", (*ELSEWHERE, "judge.extra_body={temperature: 1}"), "rubrics.NAME.temperature"),
        ("rollout", (*ELSEWHERE, "judge.extra_body={stream: true}"), "belongs to the client"),
        ("rollout", (*ELSEWHERE, "judge.omit=[topp]"), "temperature, top_p"),
    ],
)
def test_a_key_without_effect_is_refused(verb: str, words: tuple[str, ...], said: str) -> None:
    assert said in refused(verb, *words)


@pytest.mark.parametrize(
    "words",
    [
        ("deadline=60", "deadline_margin=5"),
        ("export.wandb.project=p", "export.wandb.group=g"),
        ("judging.bindings.abstention.judge=policy", "policy.cache=true"),
        ("policy.cache=false",),
    ],
)
def test_the_same_key_is_taken_where_it_counts(words: tuple[str, ...]) -> None:
    compose_config("rollout", [*SERVED, *words])


CONFIGS: dict[str, type[Any]] = {
    "abstention": AbstentionConfig,
    "instruction_following": InstructionFollowingConfig,
    "vera_mh": VeraMhConfig,
}


@pytest.mark.parametrize("env", CONFIGS)
def test_every_key_of_an_environment_is_read_where_it_is_played_and_read_or_refused_where_tasks_are_prepared(
    env: str,
) -> None:
    package = Path(str(files("gavel.envs"))) / env
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in package.glob("*.py")]
    read = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr) in ("config", "_config", "self")
    }
    keys = {field.name for field in fields(CONFIGS[env])}
    assert keys <= read | {"name"}, "a key that no code of the environment reads"
    for key in keys - set(READS["prepare"][env]):
        said = refused("prepare", f"env={env}", f"env.{key}=7")
        assert f"env.{key}" in said
        assert "does not read this key" in said
    assert compose_config("prepare", [f"env={env}"])


@pytest.mark.parametrize("words", ["env.simulators=[{service: s}]", "env.chatbot_prompt=Be kind."])
def test_what_tasks_are_made_from_is_taken_by_prepare(words: str) -> None:
    assert compose_config("prepare", ["env=vera_mh", words])


@pytest.mark.parametrize("key", ["source.revision=0123456789012345678901234567890123456789", "source.file=x.jsonl"])
def test_keys_of_a_data_set_are_refused_for_a_local_file(key: str) -> None:
    assert "no effect without source.dataset" in refused("prepare", "env=abstention", "source.path=x.jsonl", key)


def test_a_judge_that_grades_itself_may_be_a_policy_in_a_probe() -> None:
    assert compose_config(
        "probe",
        [*SERVED[1:], "judging.bindings.abstention.judge=policy", "policy.base_url=http://h/v1", "policy.model=x"],
    )


JUDGED = ("judge=openai", "judge.model=j")
VERBS = {
    "rollout": ("policy=openai", "policy.model=m", *JUDGED), "probe": JUDGED, "calibrate": JUDGED, "serve": JUDGED, "train": JUDGED,  # noqa: E501
    "regrade": JUDGED, "rescore": ("reward=tiered",), "prepare": (), "judge": ("judge=smollm2",), "export": (),
}  # fmt: skip
PLAYED = {
    "abstention": {"exact_match_rule"},
    "instruction_following": {"short_circuit", "max_reply_characters"},
    "vera_mh": {"max_turns", "max_total_words", "parse_retries"},
}
SECTIONS = ("env", "judge", "policy", "tasks", "reward")


def another(value: Any) -> list[Any]:
    """Values that a key may have instead of its own; several where its type does not show."""
    if value is None:
        return ["x", 7, ["x"], {"a": "1"}, True]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1]
    return [f"{value}x"] if isinstance(value, str) else [["x"]] if isinstance(value, list) else []


def accepted(verb: str, tree: dict[str, Any]) -> set[str]:
    """The keys of a composed config that may be set to something else."""
    schema, found = getattr(schemas, VERB_TABLE[verb].schema), set()
    for key in list_known_keys(schema, tree):
        parts = key.split(".")
        if parts[0] not in SECTIONS or parts[1:] == []:
            continue
        held: Any = tree
        for part in parts:
            held = held.get(part) if isinstance(held, dict) else None
        for value in another(held):
            changed = {**tree, parts[0]: deepcopy(tree[parts[0]])}
            place = changed
            for part in parts[:-1]:
                place[part] = place.get(part) or {}
                place = place[part]
            place[parts[-1]] = value
            with suppress(GavelError):
                config = decode(schema, changed, error=ConfigError)
                check_read(verb, config, [key])
                check_services(verb, config)
                found.add(key)
                break
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_takes_the_keys_that_it_reads_and_no_others(verb: str) -> None:
    groups = VERB_TABLE[verb].groups
    for env in PLAYED if "env" in groups else ("abstention",):
        words = (*VERBS[verb], *((f"env={env}",) if "env" in groups else ()))
        keys = accepted(verb, to_plain(compose_config(verb, words)))
        sections = {key.partition(".")[0] for key in keys}
        plays = verb in ("rollout", "serve", "train") or (
            verb == "probe" and env in ("abstention", "instruction_following")
        )
        assert ({f"env.{key}" for key in PLAYED[env]} <= keys) == plays, env
        assert bool({f"env.{key}" for key in PLAYED[env]} & keys) == plays, env
        assert ("policy" in sections) == (verb == "rollout")
        assert ("tasks" in sections) == (verb in ("rollout", "train"))
        assert ("judge" in sections) == (verb not in ("rescore", "prepare", "export"))
        assert ("reward" in sections) == (verb in ("rollout", "serve", "train", "rescore"))
        assert not {key for key in keys if key.startswith("judge.sampling.")}
        served, called = (
            {"judge.gpus", "judge.port", "judge.engine_args"},
            {"judge.attempts", "judge.rpm", "judge.extra_body"},
        )
        assert not (keys & (called if verb == "judge" else served))
        assert called <= keys or "judge" not in sections or verb == "judge"
