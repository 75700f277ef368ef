"""What is stored is literal: a run folder's values are text, and no word of a command looks into the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, reply, write_tasks

from gavel.launch.compose.compose import compose_config
from gavel.launch.config.literals import escape_interpolation, refuse_resolvers
from gavel.models.errors import ConfigError


@given(st.text(alphabet="\\${}ab:'\" ,", max_size=12))
def test_any_text_is_read_back_as_it_was_stored(text: str) -> None:
    tree = OmegaConf.create({"a": escape_interpolation([text, {"b": text}])})
    assert OmegaConf.to_container(tree, resolve=True) == {"a": [text, {"b": text}]}


@pytest.mark.parametrize(
    "text",
    ["${oc.env:X}", "a${oc.env:X,b}c", "${ oc.decode:x}", "${oc.create:{a: 1}}", "${a.${oc.env:X}}", "\\\\${oc.env:X}"],
)
def test_a_word_that_looks_into_the_environment_is_refused(text: str) -> None:
    for value in (text, [text], {"a": text}):
        with pytest.raises(ConfigError, match="_env="):
            refuse_resolvers(value, "policy.base_url")


@pytest.mark.parametrize("text", ["${policy.model}", "\\${oc.env:X}", "a: ${b}", "x"])
def test_references_and_texts_are_no_resolvers(text: str) -> None:
    refuse_resolvers(text, "policy.base_url")


@pytest.mark.parametrize("stop", ["${end}", "${oc.env:HOME}", "\\${x"])
async def test_a_run_whose_values_look_like_references_is_resumed_with_the_same_values(
    tmp_path: Path, stop: str
) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url, "policy.sampling.stop=[X]"
        )
        assert (await gavel(*words)).code == 0
        text = (tmp_path / "run" / "config.yaml").read_text()
        stored = yaml.safe_load(text)
        stored["policy"]["sampling"]["stop"] = [stop]
        manifest = (tmp_path / "run" / "manifest.json").read_text()
        (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(stored))
        done = await gavel("rollout", str(tmp_path / "run"))
        assert "Interpolation" not in done.err
        assert manifest
        assert "sampling" in done.err  # another identity, and told as text


async def test_a_secret_is_not_looked_up_for_a_value_that_is_stored(tmp_path: Path) -> None:
    words = arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", "http://127.0.0.1:1/${oc.env:HOME}/v1")
    done = await gavel(*words)
    assert done.code == 2
    assert "api_key_env=" in done.err
    assert not (tmp_path / "run").exists()


async def test_a_run_is_resumed_whole_and_the_server_gets_the_literal_text(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        words = arguments(
            write_tasks(tmp_path / "t.jsonl", 4), tmp_path / "run", server.base_url, "policy.sampling.stop=['\\${end}']"
        )
        assert (await gavel(*words, "tasks.limit=2")).code == 0
        done = await gavel("rollout", str(tmp_path / "run"), "tasks.limit=4")
        assert done.code == 0, done.err
        asked = [seen.body for seen in server.requests if seen.body["model"] == "policy-model"]
    assert len(asked) == 4
    assert [body["stop"] for body in asked] == [["${end}"]] * 4


@pytest.mark.parametrize("verb", ["train", "serve", "probe", "regrade", "calibrate"])
def test_no_verb_looks_a_word_up(verb: str) -> None:
    with pytest.raises(ConfigError, match="_env="):
        compose_config(verb, ["judge=external", "judge.base_url=http://127.0.0.1:1/${oc.env:HOME}/v1"])


async def test_no_file_of_a_run_holds_a_secret(tmp_path: Path) -> None:
    secret, run = "s3cret-of-this-test-7f21", tmp_path / "run"
    keys = (
        "policy.api_key_env=TEST_KEY_OF_GAVEL",
        "judge.api_key_env=TEST_KEY_OF_GAVEL",
        "judge.header_env={X-Token: TEST_KEY_OF_GAVEL}",
    )
    env = {**os.environ, "TEST_KEY_OF_GAVEL": secret}
    async with FaultServer(reply=reply) as server:
        done = await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 3), run, server.base_url, *keys), env=env)
        assert done.code == 0, done.err
        assert any(secret in str(seen.headers) for seen in server.requests)
    holding = [path for path in run.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert not holding
    assert secret not in done.out + done.err
