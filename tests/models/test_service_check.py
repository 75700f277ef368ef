"""A service that cannot work, or that holds a credential, is refused by name before anything is made; the credential is
never shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.models.errors import ConfigError, InputError, make_visible, shorten_value
from gavel.models.secrets import is_credential_header, is_credential_name, is_likely_key, mask_keys
from gavel.models.service import Service, Timeout
from gavel.models.service_check import check_secrets, check_service
from gavel.models.types import Sampling

GOOD = Service(mode="external", model="m", base_url="http://h/v1")
KEYS = [
    "sk-proj-abcDEF123456789012345678", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456", "hf_AbCdEfGhIjKlMnOpQrStUvWxYzabcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "0123456789abcdef0123456789abcdef", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "gsk_8fGh2kL9mN3pQ5rS7tU1", "nvapi-8fGh2kL9mN3pQ5rS7tU1",  # noqa: E501
    "AbCdEfGhIjKlMnOpQrStUv", "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
]  # fmt: skip
NAMES = [
    "OPENAI_API_KEY", "HF_TOKEN", "hf_token", "A_KEY", "AZURE_OPENAI_KEY_2", "MyGatewayToken", "ANTHROPIC_API_KEY_2024",
    "AZUREOPENAIAPIKEY2", "sk_key", "GAVEL_TEST_NOT_SET", "_k", "myVeryLongVariableNameForKeys",
]  # fmt: skip


def refused(**changes: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_service("policy", replace(GOOD, **changes))
    return caught.value


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(({"sampling": Sampling(temperature=value)}, "sampling.temperature") for value in (-1.0, -0.01, float("nan"))),
        *(({"sampling": Sampling(top_p=value)}, "sampling.top_p") for value in (0.0, -1.0, 1.01)),
        ({"sampling": Sampling(max_response_tokens=0)}, "sampling.max_response_tokens"),
        ({"timeout": Timeout(-1.0, 1.0)}, "timeout.connect"),
        ({"timeout": Timeout(1.0, 0.0)}, "timeout.total"),
        *(
            ({key: value}, key)
            for key in ("rpm", "tpm", "max_context_length", "tensor_parallel_size")
            for value in (0, -1)
        ),
        *(({key: 0}, key) for key in ("max_in_flight", "attempts", "replicas", "min_replicas", "gpus")),
        *(({key: 0.0}, key) for key in ("deadline", "startup_timeout", "kv_cache_gb")),
        *(({"port": value}, "port") for value in (-1, 65536, 70000)),
        ({"api_key_env": ()}, "api_key_env"),
        ({"min_replicas": 2}, "min_replicas"),
        *(
            ({"base_url": url}, "base_url")
            for url in (
                "http://127.0.0.1:99999/v1",
                "http://[::1/v1",
                "http://h:x/v1",
                "http://h:0/v1",
                "ftp://h/v1",
                "h/v1",
                "http://h/v1?a=b",
            )
        ),
    ],
)
def test_a_number_or_url_out_of_range_is_refused_by_its_key(change: dict[str, Any], field: str) -> None:
    failed = refused(**change)
    assert failed.field == f"policy.{field}"
    assert failed.found


def test_the_ends_of_every_range_are_allowed() -> None:
    check_service(
        "policy",
        replace(GOOD, sampling=Sampling(temperature=0.0, top_p=1.0, max_response_tokens=1), rpm=1, tpm=1, attempts=1),
    )
    check_service(
        "policy", replace(GOOD, timeout=Timeout(0.001, 0.001), max_context_length=1, base_url="http://[::1]:65535/v1")
    )


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("place", ["api_key_env", "list", "header_env"])
def test_a_key_where_a_variables_name_belongs_is_refused_and_not_shown(key: str, place: str) -> None:
    change = {
        "api_key_env": {"api_key_env": key},
        "list": {"api_key_env": ("A_KEY", key)},
        "header_env": {"header_env": {"X-Gate": key}},
    }
    failed = refused(**change[place])
    assert failed.field == ("policy.header_env.X-Gate" if place == "header_env" else "policy.api_key_env")
    assert key not in str(failed)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_variables_are_taken_as_such(name: str) -> None:
    assert not is_likely_key(name)
    check_service("policy", replace(GOOD, api_key_env=name))


@given(
    st.text("0123456789abcdef", min_size=32, max_size=64).filter(
        lambda text: sum(map(str.isdigit, text)) >= 3 and not text.isdigit()
    )
)
def test_any_hexadecimal_key_is_suspected(key: str) -> None:
    assert is_likely_key(f"a{key}" if key[0].isdigit() else key)


SECRET = "hunter2-is-the-word"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"base_url": f"http://h/v1?api-key={SECRET}"}, "base_url"),
        ({"base_url": f"http://h/v1?version=1&access_token={SECRET}"}, "base_url"),
        ({"base_url": f"http://user:{SECRET}@h/v1"}, "base_url"),
        ({"base_url": ("http://a/v1", f"http://h/v1?key={SECRET}")}, "base_url"),
        ({"default_headers": {"X-My-Password": SECRET}}, "default_headers.X-My-Password"),
        ({"default_headers": {"X-Subscription-Key": SECRET}}, "default_headers.X-Subscription-Key"),
        ({"sampling": Sampling(extra={"api_key": SECRET})}, "sampling.extra.api_key"),
        ({"sampling": Sampling(extra={"nvext": {"auth_token": SECRET}})}, "sampling.extra.nvext.auth_token"),
        ({"engine_args": {"hf_token": SECRET}}, "engine_args.hf_token"),
        ({"engine_args": {"api-key": SECRET}}, "engine_args.api-key"),
    ],
)
def test_a_credential_that_stands_in_a_config_is_refused_and_not_shown(change: dict[str, Any], field: str) -> None:
    failed = refused(**change)
    assert failed.field == f"policy.{field}"
    assert SECRET not in str(failed)
    with pytest.raises(ConfigError):  # also for a service that is not called
        check_secrets("policy", replace(GOOD, model=None, **change))


@pytest.mark.parametrize("key", [KEYS[0], KEYS[1], KEYS[3]])
def test_a_key_of_a_known_form_is_refused_under_any_name(key: str) -> None:
    for change in (
        {"default_headers": {"X-Team": key}},
        {"sampling": Sampling(extra={"user": key})},
        {"base_url": f"http://h/{key}/v1"},
    ):
        assert key not in str(refused(**change))


def test_what_only_sounds_like_a_credential_is_allowed() -> None:
    extra = {
        "min_tokens": 3,
        "stop_token_ids": [1],
        "skip_special_tokens": False,
        "prompt_cache_key": "team",
        "user": "me",
    }
    arguments = {"max_num_batched_tokens": 2048, "tokenizer": "other", "tokenizer_mode": "auto", "hf_token": True}
    check_service(
        "policy",
        replace(GOOD, sampling=Sampling(extra=extra), default_headers={"X-Team": "a", "anthropic-version": "1"}),
    )
    check_service("policy", Service(mode="managed", model="embedded:smollm2", engine_args=arguments))
    assert not is_credential_name("author")
    assert is_credential_header("X-Gate-Token")


@pytest.mark.parametrize("key", [KEYS[0], KEYS[1], KEYS[3]])
def test_no_error_shows_a_key_of_a_known_form(key: str) -> None:
    error = InputError(
        "no such key",
        where=f"{key}.jsonl:1",
        field=f"policy.{key}",
        found=shorten_value(f"x {key}"),
        remedy=f"remove {key}",
    )
    assert key not in str(error)
    assert mask_keys("hf-internal-testing/tiny-gpt2 and sk-learn, max_tokens=17") == (
        "hf-internal-testing/tiny-gpt2 and sk-learn, max_tokens=17"
    )


# Text that is not ours


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("ring\x07", r"ring\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\x00b\x7f", r"a\x00b\x7f"),
        ("x\ry", r"x\ry"),
        ("\u202eevil", r"\u202eevil"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Zürich 東京 😀", "Zürich 東京 😀"),
    ],
)
def test_what_could_steer_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert make_visible(text) == shown
    assert str(InputError("bad", found=text)).endswith(shown)


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    assert not any(
        ord(character) < 32 or 127 <= ord(character) < 160
        for character in make_visible(text)
        if character not in "\n\t"
    )
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shorten_value(text))
