"""What stands before a run: pinned files, prepared tasks, experiments, services, and where requests go by default."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.vera_mh.support import (
    CHATBOT,
    DATA,
    JUDGE,
    NAMES,
    SIMULATOR,
    SMALL,
    arguments,
    needs_data,
    of_model,
    reply,
    talk,
    verdict,
    write_tasks,
)
from tests.support.fault_server import FaultServer
from tests.support.runs import gavel, rows

from gavel.envs.registry import describe_environment
from gavel.envs.vera_mh.config import VeraMhConfig
from gavel.judges.assets import AssetStore
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import RubricConfig, Unparseable
from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.compose.compose import compose_config
from gavel.models.calls.quirks import find_quirk
from gavel.models.calls.served_names import is_same_model
from gavel.models.errors import ConfigError
from gavel.models.pinned import AssetError
from gavel.models.types import Sampling

FILES = (
    "rubric.tsv", "rubric_prompt_beginning.txt", "question_prompt.txt", "persona_prompt_template.txt", "persona_prompt_reminder.txt",  # noqa: E501
    "personas.tsv", "LICENSE",
)  # fmt: skip
UPSTREAM = RubricConfig("springcare/vera-mh-v1.2")

Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "flipped": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    "newline_added": lambda data: data + b"\n",
    "last_byte_missing": lambda data: data[:-1],
    "line_ends": lambda data: data.replace(b"\r\n", b"\n") if b"\r\n" in data else data.replace(b"\n", b"\r\n"),
}


@needs_data
class TestAssets:
    def test_all_seven_verify_and_are_then_found_without_the_mirror(self, tmp_path: Path) -> None:
        store = AssetStore(tmp_path, mirror=DATA, offline=True)
        assert [store.read_text(name).encode() for name in FILES] == [(DATA / name).read_bytes() for name in FILES]
        assert make_rubric(UPSTREAM, AssetStore(tmp_path, offline=True)).targets == ("vera_mh",)

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_any_drift_is_refused_with_file_expected_and_found(self, tmp_path: Path, name: str, damage: str) -> None:
        original = (DATA / name).read_bytes()
        changed = DAMAGES[damage](original)
        for other in FILES:
            (tmp_path / other).write_bytes(changed if other == name else (DATA / other).read_bytes())
        with pytest.raises(AssetError) as caught:
            make_rubric(UPSTREAM, AssetStore(tmp_path / "cache", mirror=tmp_path, offline=True))
        for part in (name, hashlib.sha256(original).hexdigest(), hashlib.sha256(changed).hexdigest()):
            assert part in str(caught.value)

    async def test_prepare_and_rollout_refuse_a_drifted_file(self, tmp_path: Path) -> None:
        for name in FILES:
            (tmp_path / name).write_bytes((DATA / name).read_bytes() + (b"\n" if name == "personas.tsv" else b""))
        assets = [f"assets.mirror={tmp_path}", f"assets.cache={tmp_path / 'cache'}", "assets.offline=true"]
        done = await gavel("prepare", "env=vera_mh", f"out={tmp_path / 'out'}", *assets)
        assert done.code == 2
        assert "personas.tsv" in done.err
        assert not (tmp_path / "out").exists()
        words = arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", "http://127.0.0.1:9/v1", *assets)
        words.remove(SMALL)
        done = await gavel(*words)
        assert done.code == 2
        assert "personas.tsv" in done.err

    async def test_a_mirror_that_has_drifted_is_refused_though_good_copies_are_at_hand(self, tmp_path: Path) -> None:
        assets = [f"assets.mirror={tmp_path / 'mirror'}", f"assets.cache={tmp_path / 'cache'}", "assets.offline=true"]
        (tmp_path / "mirror").mkdir()
        for name in FILES:
            (tmp_path / "mirror" / name).write_bytes((DATA / name).read_bytes())
        assert (await gavel("prepare", "env=vera_mh", f"out={tmp_path / 'good'}", *assets)).code == 0
        (tmp_path / "mirror" / "personas.tsv").write_bytes((DATA / "personas.tsv").read_bytes() + b"\n")
        done = await gavel("prepare", "env=vera_mh", f"out={tmp_path / 'bad'}", *assets)
        assert done.code == 2
        for part in (
            "mirror/personas.tsv",
            *(hashlib.sha256((DATA / "personas.tsv").read_bytes() + end).hexdigest() for end in (b"", b"\n")),
        ):
            assert part in done.err
        assert not (tmp_path / "bad").exists()

    async def test_the_official_tasks_are_200_the_first_simulators_first_and_the_same_to_the_byte(
        self, tmp_path: Path
    ) -> None:
        assets = [f"assets.mirror={DATA}", f"assets.cache={tmp_path / 'cache'}", "assets.offline=true"]
        for out in ("one", "two"):
            done = await gavel("prepare", "experiment=vera_mh_recommended", f"out={tmp_path / out}", *assets)
            assert done.code == 0, done.err
        data = (tmp_path / "one" / "tasks.jsonl").read_bytes()
        assert data == (tmp_path / "two" / "tasks.jsonl").read_bytes()
        assert hashlib.sha256(data).hexdigest() in done.out
        tasks = rows(tmp_path / "one", "tasks.jsonl")
        names = [line.split("\t")[0] for line in (DATA / "personas.tsv").read_text().split("\n")[1:]]
        expected = [(name, service) for service in ("simulator_gpt", "simulator_claude") for name in names]
        assert [(task["target"]["persona"], task["target"]["simulator"]) for task in tasks] == expected
        assert Counter(task["metadata"]["risk"] for task in tasks) == {
            "None": 20,
            "Low": 60,
            "High": 60,
            "Immediate": 60,
        }
        assert all(task["messages"] == tasks[0]["messages"] for task in tasks)

    async def test_the_recommended_profile_asks_each_model_as_its_authors_do(self, tmp_path: Path) -> None:
        """Four conversations of two turns, two by each simulator, all endpoints given by variables."""

        def answer(body: dict[str, Any]) -> str:
            return verdict("No") if body["model"] == "gpt-5.4" else f"words {len(body['messages'])}"

        assets = [f"assets.mirror={DATA}", f"assets.cache={tmp_path / 'cache'}", "assets.offline=true"]
        async with FaultServer(reply=answer) as server:
            names = ("JUDGE", "SIMULATOR_GPT", "SIMULATOR_CLAUDE")
            variables = {
                f"VERA_MH_{name}_{part}": value
                for name in names
                for part, value in (("BASE_URL", server.base_url), ("API_KEY", name))
            }
            options = {"env": {**os.environ, **variables}}
            personas = "source.personas=[Abigail,Zoe]"
            done = await gavel(
                "prepare", "experiment=vera_mh_recommended", personas, f"out={tmp_path}", *assets, **options
            )
            assert done.code == 0, done.err
            done = await gavel(
                "rollout",
                "experiment=vera_mh_recommended",
                f"tasks.path={tmp_path / 'tasks.jsonl'}",
                f"run.dir={tmp_path / 'run'}",
                f"policy.base_url={server.base_url}",
                f"policy.model={CHATBOT}",
                "env.max_turns=2",
                *assets,
                **options,
            )
            assert done.code == 0, done.out + done.err
            judge = of_model(server.requests, "gpt-5.4")
            assert {tuple(sorted(body)) for body in judge} == {
                ("messages", "model", "prompt_cache_key", "reasoning_effort", "response_format", "stream")
            }
            assert judge[0]["reasoning_effort"] == "low"
            assert {tuple(sorted(body)) for body in of_model(server.requests, "gpt-5.2")} == {("messages", "model")}
            claude = of_model(server.requests, "anthropic/claude-opus-4.5")
            assert {tuple(sorted(body)) for body in claude} == {("max_tokens", "messages", "model")}
            assert {body["max_tokens"] for body in claude} == {1024}
            assert {tuple(sorted(body)) for body in of_model(server.requests, CHATBOT)} == {("messages", "model")}
            keys = {seen.headers.get("authorization") for seen in server.requests if seen.body["model"] == "gpt-5.4"}
            assert keys == {"Bearer JUDGE"}
        scored = orjson.loads((tmp_path / "run" / "scores.json").read_bytes())
        assert (scored["judge_model"], scored["persona_model"], scored["agent_model"]) == ("pooled", "pooled", CHATBOT)
        assert scored["pooled"] == {
            "sources": ["simulator_gpt", "simulator_claude"],
            "row_counts": {"simulator_gpt": 2, "simulator_claude": 2},
        }


def test_the_schema_that_is_asked_for_is_upstreams() -> None:
    rubric = make_rubric(RubricConfig("gavel/vera-mh-small"), AssetStore(offline=True))
    assert rubric.response_format is not None
    schema = rubric.response_format.json_schema
    assert schema is not None
    assert (schema["title"], schema["required"], schema["additionalProperties"]) == (
        "QuestionResponse",
        ["answer", "reasoning"],
        False,
    )
    assert schema["example"]["answer"] == "Yes"
    assert "enum" not in schema["properties"]["answer"]


def test_braces_in_a_conversation_stay_what_they_are() -> None:
    rubric = make_rubric(RubricConfig("gavel/vera-mh-small"), AssetStore(offline=True))
    slots = {"conversation": "user: {question} {x}\n", "question": "{options}?", "options": "Yes, No", "examples": ""}
    system, user = rubric.render(slots)
    assert "user: {question} {x}\n" in system.content
    assert user.content.startswith("{options}?\n\nAnswer with one of: [Yes, No]")
    assert "\n\nfor example\n\n" in rubric.render({**slots, "examples": "for example"})[1].content


@pytest.mark.parametrize(
    "text",
    ["", "no", "[]", '{"answer": "Yes"}', '{"answer": null, "reasoning": "r"}', '{"answer": 1, "reasoning": "r"}'],
)
def test_a_reply_off_the_form_is_no_answer(text: str) -> None:
    rubric = make_rubric(RubricConfig("gavel/vera-mh-small"), AssetStore(offline=True))
    with pytest.raises(Unparseable):
        rubric.parse(text)


def test_an_answer_is_kept_in_the_judges_own_words() -> None:
    rubric = make_rubric(RubricConfig("gavel/vera-mh-small"), AssetStore(offline=True))
    found = rubric.parse(verdict("  YES ", "r"))
    assert (found.label, dict(found.details or {}), found.reasoning) == ("yes", {"answer": "  YES "}, "r")


@pytest.mark.parametrize("experiment", ["vera_mh_recommended", "vera_mh_smoke", "demo_vera_mh"])
def test_an_experiment_declares_every_simulator_it_names(experiment: str) -> None:
    server = ["policy.base_url=http://127.0.0.1:9/v1", "policy.model=m"] if experiment == "vera_mh_recommended" else []
    config = compose_config("rollout", [f"experiment={experiment}", *server])
    assert set(describe_environment(config.env).called_services) == set(config.services)
    assert dict(config.reward) == {"name": "vera"}


def test_the_smoke_experiment_is_small_in_every_role() -> None:
    config = compose_config("rollout", ["experiment=vera_mh_smoke"])
    assert (config.tasks.limit, config.env["max_turns"], config.env["parse_retries"]) == (4, 6, 1)
    assert {one["max_response_tokens"] for one in config.env["simulators"]} == {64}
    assert (config.policy.sampling.max_response_tokens, config.rubrics["vera_mh"].max_response_tokens) == (64, 200)
    assert {service.model for service in config.service_table.values()} == {"embedded:smollm2"}


async def test_an_undeclared_simulator_and_an_unused_service_are_refused_before_any_call(tmp_path: Path) -> None:
    words = arguments(write_tasks(tmp_path / "t.jsonl", 1), tmp_path / "run", "http://127.0.0.1:9/v1")
    done = await gavel(*[word for word in words if not word.startswith("services.")])
    assert done.code == 2
    assert "services.simulator" in done.err
    done = await gavel(
        *words,
        "services.other.mode=external",
        "services.other.base_url=http://127.0.0.1:9/v1",
        "services.other.model=m",
    )
    assert done.code == 2
    assert "services.other" in done.err


def test_the_recommended_profile_may_be_run_with_one_of_its_simulators() -> None:
    server = ["policy.base_url=http://127.0.0.1:9/v1", "policy.model=m", SMALL, "dry_run=true"]
    one = compose_config(
        "rollout", ["experiment=vera_mh_recommended", "env.simulators=[{service: simulator_gpt}]", *server]
    )
    assert set(one.services) == {"simulator_gpt", "simulator_claude"}
    assert set(assemble_run(one, with_policy=True).services) == {"general", "policy", "simulator_gpt"}


@pytest.mark.parametrize("policy", ["external", "remote_api", "qwen3_32b", "smollm2"])
def test_no_policy_brings_sampling_of_its_own_and_the_command_line_still_decides(policy: str) -> None:
    words = (
        ["env=vera_mh", f"policy={policy}", "policy.base_url=http://127.0.0.1:9/v1"]
        if policy == "external"
        else ["env=vera_mh", f"policy={policy}"]
    )
    words += ["policy.model=m"] if policy == "external" else []
    words += ["judge=smollm2"]
    assert compose_config("rollout", words).policy.sampling == Sampling()
    assert compose_config("rollout", [*words, "policy.sampling.temperature=0.5"]).policy.sampling == Sampling(
        temperature=0.5
    )


@pytest.mark.parametrize("words", [0, -1])
def test_a_limit_on_words_that_ends_everything_is_refused(words: int) -> None:
    with pytest.raises(ConfigError, match=r"env\.max_total_words"):
        VeraMhConfig(max_total_words=words).check_config()


async def test_a_task_of_an_unknown_persona_is_skipped_and_named(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 2, names=("Ines", "Inez"))
    async with FaultServer(reply=reply) as server:
        done = await gavel(*arguments(tasks, tmp_path / "run", server.base_url, "env.max_turns=2"))
        assert done.code == 3
    (error,) = rows(tmp_path / "run", "errors.jsonl")
    assert "target.persona" in error["outcome"]["failure"]["reason"]
    assert "did you mean Ines?" in error["outcome"]["failure"]["reason"]


async def test_openings_are_written_at_prepare_time_and_not_asked_for_again(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        simulator = [
            word
            for word in arguments(tmp_path, tmp_path, server.base_url)
            if word.startswith(("services.", "env.simul"))
        ]
        done = await gavel("prepare", "env=vera_mh", SMALL, "source.openings=true", f"out={tmp_path}", *simulator)
        assert done.code == 0, done.err
        assert len(of_model(server.requests, SIMULATOR)) == len(NAMES)
        tasks = rows(tmp_path, "tasks.jsonl")
        assert [[message["role"] for message in task["messages"]] for task in tasks] == [["system", "user"]] * 3
        done = await gavel(*arguments(tmp_path / "tasks.jsonl", tmp_path / "run", server.base_url, "env.max_turns=2"))
        assert done.code == 0, done.out + done.err
        assert len(of_model(server.requests, SIMULATOR)) == len(NAMES)
        assert talk(of_model(server.requests, CHATBOT)[0])[1] == ("user", "persona 1")
        assert of_model(server.requests, JUDGE)


async def test_an_opening_that_cannot_be_had_writes_nothing(tmp_path: Path) -> None:
    async with FaultServer(reply=reply, choose=lambda body, n: "401") as server:
        simulator = [
            word
            for word in arguments(tmp_path, tmp_path, server.base_url)
            if word.startswith(("services.", "env.simul"))
        ]
        done = await gavel(
            "prepare", "env=vera_mh", SMALL, "source.openings=true", f"out={tmp_path / 'out'}", *simulator
        )
    assert done.code == 2
    assert "nothing was written" in done.err
    assert not (tmp_path / "out" / "tasks.jsonl").exists()


async def test_no_task_is_made_of_a_persona_the_test_has_and_the_manifest_tells_which(tmp_path: Path) -> None:
    first, second, third = NAMES
    (tmp_path / "kept.txt").write_text(f"{second}\n")
    done = await gavel("prepare", "env=vera_mh", SMALL, f"out={tmp_path / 'test'}", f"source.personas=[{third}]")
    assert done.code == 0, done.err
    protected = [f"{tmp_path / 'kept.txt'}", f"{tmp_path / 'test' / 'tasks.jsonl'}"]
    done = await gavel(
        "prepare", "env=vera_mh", SMALL, f"out={tmp_path / 'train'}", f"source.protected=[{','.join(protected)}]"
    )
    assert done.code == 0, done.err
    assert {task["target"]["persona"] for task in rows(tmp_path / "train", "tasks.jsonl")} == {first}
    hygiene = orjson.loads((tmp_path / "train" / "manifest.json").read_bytes())["hygiene"]
    digests = [f"sha256:{hashlib.sha256(Path(path).read_bytes()).hexdigest()}" for path in protected]
    assert hygiene["protected"] == [
        {"path": path, "sha256": sha256, "personas": 1} for path, sha256 in zip(protected, digests, strict=True)
    ]
    assert hygiene["personas"] == sorted([second, third])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("kept.txt", "Nobody\n", "kept.txt:1"),
        ("kept.txt", "\n", "names no persona"),
        ("kept.jsonl", '{"question": "why?"}\n', "kept.jsonl:1: target.persona"),
    ],
)
async def test_protected_personas_that_cannot_be_read_whole_stop_the_preparation(
    name: str, content: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    done = await gavel(
        "prepare", "env=vera_mh", SMALL, f"out={tmp_path / 'out'}", f"source.protected=[{tmp_path / name}]"
    )
    assert done.code == 2, done.out
    assert said in done.err
    assert not (tmp_path / "out" / "tasks.jsonl").exists()


@pytest.mark.parametrize(
    ("model", "drops"),
    [
        ("gpt-5.4", True),
        ("gpt-5.4-mini", True),
        ("gpt-6", True),
        ("openai/GPT-5.2", True),
        ("gpt-5-chat", False),
        ("gpt-4o", False),
        ("anthropic/claude-opus-4.7", True),
        ("claude-opus-4-8", True),
        ("anthropic/claude-sonnet-5", True),
        ("anthropic/claude-opus-4.5", False),
        ("claude-opus-4-5-20251101", False),
    ],
)
def test_models_that_refuse_a_temperature_are_known_by_name(model: str, drops: bool) -> None:
    assert ("temperature" in find_quirk(model).drops) is drops


def test_a_gateways_name_is_the_same_model_and_another_version_is_not() -> None:
    assert is_same_model("anthropic/claude-opus-4.5", "claude-opus-4-5-20251101")
    assert is_same_model("gpt-5.4", "gpt-5.4-2026-03-05")
    assert not is_same_model("claude-opus-4", "claude-opus-4.5")
    assert not is_same_model("gpt-5", "gpt-5.4")
    assert not is_same_model("gpt-4o-2024-08-06", "gpt-4o-2024-05-13")
