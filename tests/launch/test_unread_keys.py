"""A key that nothing reads is refused, with what would make it count; no advice names one."""

from __future__ import annotations

import pytest

from gavel.launch.config import compose
from gavel.models.errors import ConfigError

SERVED = ("policy=smollm2", "judge=smollm2", "env=abstention")
ELSEWHERE = ("policy=smollm2", "judge=openai", "judge.model=m", "env=abstention")


def refused(verb: str, *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(verb, words)
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
    words = ["judge=openai", "judge.model=m"] if verb == "regrade" else list(ELSEWHERE[1:] if verb == "probe" else ELSEWHERE)
    said = refused(verb, *words, f"judge.sampling.{key}")
    assert right in said
    written = said.split("write ")[1].split(";")[0].split("\n")[0].replace("rubrics.NAME", "rubrics.abstention")
    if verb != "regrade":
        compose(verb, [*words, written])  # what is advised works


def test_a_further_services_sampling_is_refused_and_one_that_a_group_brings_is_not() -> None:
    second = ["judge@services.second=openai", "services.second.model=m", "judging.bindings.abstention.judge=second"]
    assert "services.second.extra_body={seed: 5}" in refused("rollout", *SERVED, *second, "services.second.sampling.seed=5")
    compose("rollout", [*SERVED, "policy@services.second=smollm2", "judging.bindings.abstention.judge=second"])


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
        ("rollout", (*ELSEWHERE, "judge.api=responses", "judge.max_tokens_field=max_tokens"), "one name for the output limit"),
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
    compose("rollout", [*SERVED, *words])


def test_a_judge_that_grades_itself_may_be_a_policy_in_a_probe() -> None:
    assert compose("probe", [*SERVED[1:], "judging.bindings.abstention.judge=policy", "policy.base_url=http://h/v1", "policy.model=x"])
