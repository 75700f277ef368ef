"""The options of the groups ``policy`` and ``judge``: all have every key of a service, and each is one that can
work.
"""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gavel.launch.compose.compose import compose_config
from gavel.launch.config.stored import from_yaml, to_yaml
from gavel.models.codec import decode
from gavel.models.errors import ConfigError
from gavel.models.service import Service
from gavel.models.service_check import check_service
from gavel.models.types import Sampling

CONF = Path(importlib.import_module("gavel").__file__ or "").parent / "conf"
OPTIONS = ("external", "qwen3_32b", "remote_api", "smollm2")


@pytest.mark.parametrize(
    ("word", "urls"),
    [
        ("http://127.0.0.1:8000/v1", ("http://127.0.0.1:8000/v1",)),
        ("http://[::1]:8000/v1", ("http://[::1]:8000/v1",)),
        ("[http://a:8000/v1,http://b:8001/v1]", ("http://a:8000/v1", "http://b:8001/v1")),
        ("['http://[::1]:8000/v1']", ("http://[::1]:8000/v1",)),
    ],
)
def test_a_service_has_one_url_or_a_list_of_its_replicas(word: str, urls: tuple[str, ...]) -> None:
    config = compose_config(
        "rollout", [f"policy.base_url={word}", "policy.model=p", "judge.base_url=${policy.base_url}", "judge.model=j"]
    )
    assert config.policy.base_urls == config.judge.base_urls == urls
    again = from_yaml(type(config), to_yaml(config))
    assert again.policy.base_urls == urls


def test_the_number_of_replicas_bounds_the_least() -> None:
    with pytest.raises(ConfigError, match=r"policy\.min_replicas"):
        compose_config(
            "rollout", ["policy.base_url=http://a/v1", "policy.model=p", "policy.min_replicas=2", "judge=smollm2"]
        )


def read(group: str, name: str) -> dict[str, Any]:
    found = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"))
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


@pytest.mark.parametrize("group", ["policy", "judge"])
def test_a_group_offers_the_four_kinds_of_model(group: str) -> None:
    assert {path.stem for path in (CONF / group).glob("*.yaml")} >= set(OPTIONS)


@pytest.mark.parametrize("group", ["policy", "judge"])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_has_every_key_and_decodes(group: str, name: str) -> None:
    raw = read(group, name)
    assert list(raw) == [field.name for field in fields(Service)]
    assert set(raw["sampling"]) == {field.name for field in fields(Sampling)}
    service = decode(Service, raw)
    if name == "external":
        with pytest.raises(ConfigError, match="no model is named"):
            check_service(group, service)
    else:
        check_service(group, service)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_policy_says_how_it_is_sampled_and_a_judge_leaves_that_to_its_rubric(name: str) -> None:
    policy, judge = (decode(Service, read(group, name)) for group in ("policy", "judge"))
    assert policy.sampling.max_response_tokens is not None
    assert policy.sampling.temperature is not None
    assert judge.sampling == Sampling()


@pytest.mark.parametrize("name", ["qwen3_32b", "smollm2"])
def test_policy_and_judge_of_the_same_model_share_a_server(name: str) -> None:
    from gavel.models.vllm.arguments import launch_key

    policy, judge = (decode(Service, read(group, name)) for group in ("policy", "judge"))
    assert launch_key(policy) == launch_key(judge)


def test_qwen3_32b_is_pinned_and_does_not_think() -> None:
    judge = decode(Service, read("judge", "qwen3_32b"))
    assert (judge.model, judge.revision) == ("Qwen/Qwen3-32B", "9216db5781bf21249d130ec9da846c4624c16137")
    assert judge.chat_template_kwargs == {"enable_thinking": False}
    assert judge.max_context_length == 8192
