from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.judges.support import STRICT

from gavel.judges.assets import AssetStore
from gavel.judges.bindings import (
    Binding,
    advise_limit,
    bind_rubrics,
    check_verifiers,
    describe_output_limit,
    parse_verifier,
)
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import BindingConfig, RubricConfig
from gavel.models.errors import ConfigError
from gavel.models.service import Service

GENERAL = Service(mode="external", model="judge", base_url="http://127.0.0.1:9/v1")
SERVICES = {"policy": GENERAL, "general": GENERAL}
RUBRICS = {"strict": RubricConfig(STRICT)}
BINDINGS = {"abstention": BindingConfig("general", "strict")}


@pytest.fixture
def assets(tmp_path: Path) -> AssetStore:
    return AssetStore(tmp_path, offline=True)


def test_a_binding_joins_its_service_and_its_rubric(assets: AssetStore) -> None:
    binding = bind_rubrics(RUBRICS, BINDINGS, SERVICES, assets)["abstention"]
    assert (binding.name, binding.service, binding.rubric.profile, binding.judge) == (
        "abstention",
        "general",
        STRICT,
        GENERAL,
    )


def test_one_service_may_serve_several_bindings(assets: AssetStore) -> None:
    two = {"a": BindingConfig("general", "strict"), "b": BindingConfig("general", "other")}
    made = bind_rubrics({**RUBRICS, "other": RubricConfig(STRICT, temperature=0.3)}, two, SERVICES, assets)
    assert {binding.service for binding in made.values()} == {"general"}
    assert made["a"].digest != made["b"].digest


@pytest.mark.parametrize(
    ("change", "field", "hint"),
    [
        (
            {"bindings": {"abstention": BindingConfig("genral", "strict")}},
            "judging.bindings.abstention.judge",
            "general",
        ),
        (
            {"bindings": {"abstention": BindingConfig("general", "strikt")}},
            "judging.bindings.abstention.rubric",
            "strict",
        ),
        ({"rubrics": {"strict": RubricConfig("gavel/qa-abstention-v2")}}, "rubrics.strict.profile", STRICT),
        ({"rubrics": {**RUBRICS, "spare": RubricConfig(STRICT)}}, "rubrics.spare", "~rubrics.spare"),
        ({"declared": ("second",), "services": {**SERVICES, "second": GENERAL}}, "services.second", "~services.second"),
    ],
    ids=["unknown_service", "unknown_rubric", "unknown_profile", "unused_rubric", "unused_service"],
)
def test_names_that_do_not_fit_are_refused_by_key_with_what_is_valid(
    assets: AssetStore, change: Mapping[str, Any], field: str, hint: str
) -> None:
    given: dict[str, Any] = {"rubrics": RUBRICS, "bindings": BINDINGS, "services": SERVICES, "declared": (), **change}
    with pytest.raises(ConfigError) as caught:
        bind_rubrics(given["rubrics"], given["bindings"], given["services"], assets, declared=given["declared"])
    assert caught.value.field == field
    assert hint in str(caught.value)


@pytest.mark.parametrize("context", [300, 16])
def test_a_rubric_that_cannot_fit_the_services_context_is_refused(assets: AssetStore, context: int) -> None:
    small = {"general": replace(GENERAL, max_context_length=context)}
    with pytest.raises(ConfigError) as caught:
        bind_rubrics(RUBRICS, BINDINGS, small, assets)
    assert caught.value.field == "rubrics.strict.max_response_tokens"
    assert str(context) in caught.value.allowed
    assert bind_rubrics(RUBRICS, BINDINGS, {"general": replace(GENERAL, max_context_length=2048)}, assets)


def test_a_bindings_digest_follows_the_model_and_not_the_url_or_the_name(assets: AssetStore) -> None:
    def made(service: Service, name: str = "a") -> str:
        return bind_rubrics(RUBRICS, {name: BindingConfig("general", "strict")}, {"general": service}, assets)[
            name
        ].digest

    base = made(GENERAL)
    assert made(replace(GENERAL, base_url="http://127.0.0.1:10/v1", max_in_flight=3), "b") == base
    assert made(replace(GENERAL, model="other")) != base


@pytest.fixture
def bindings(assets: AssetStore) -> Mapping[str, Binding]:
    return bind_rubrics(RUBRICS, BINDINGS, SERVICES, assets)


def test_tasks_and_bindings_that_agree_pass(bindings: Mapping[str, Binding]) -> None:
    check_verifiers(bindings, ["nemo_abstention_v1/abstention"] * 3)


@pytest.mark.parametrize(
    ("verifiers", "found"),
    [
        (["nemo_abstention_v1/abstain"], "abstention"),
        (["nemo_if_v1/abstention"], "nemo_abstention_v1"),
        ([], "no task uses this binding"),
        (["abstention"], "<target format>/<binding>"),
        (["nemo_abstention_v1/"], "<target format>/<binding>"),
    ],
    ids=["missing_binding", "wrong_target", "unused_binding", "no_target", "no_binding"],
)
def test_tasks_and_bindings_that_disagree_are_refused(
    bindings: Mapping[str, Binding], verifiers: list[str], found: str
) -> None:
    with pytest.raises(ConfigError, match=found):
        check_verifiers(bindings, verifiers)


def test_a_verifier_is_split_at_its_first_slash() -> None:
    assert parse_verifier("nemo_abstention_v1/abstention") == ("nemo_abstention_v1", "abstention")


def test_an_output_limit_without_room_for_thinking_names_the_key_and_what_is_needed() -> None:
    rubric = make_rubric(RubricConfig("gavel/qa-abstention-v1"), AssetStore(offline=True))
    service = Service(mode="external", model="m", base_url="http://h/v1")
    assert "judge.thinking_tokens=4096, 4112 in all" in describe_output_limit(Binding("a", "general", rubric, service))
    roomy = describe_output_limit(Binding("a", "general", rubric, replace(service, thinking_tokens=8192)))
    assert roomy == "at most 8208 tokens a reply, 8192 of them for thinking"


def test_the_keys_that_give_a_judge_room_are_those_of_its_service_and_its_rubric() -> None:
    rubric = make_rubric(RubricConfig("gavel/qa-abstention-v1"), AssetStore(offline=True))
    service = Service(mode="external", model="m", base_url="http://h/v1", thinking_tokens=8192)
    said = advise_limit(Binding("a", "second", rubric, service, "qa"))
    assert said == (
        "raise services.second.thinking_tokens (a judge that thinks needs 16384 or more; 8192 now) "
        "or rubrics.qa.max_response_tokens (16 now)"
    )
