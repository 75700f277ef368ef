"""NeMo Gym 0.7.0 itself against our service; and our search directory started as Gym starts it."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.interfaces.nemo_gym_support import VERA, played_at, responded
from tests.envs.vera_mh import support as vera
from tests.support import gym as real
from tests.support.fault_server import server_process
from tests.support.gym_models import UNREADABLE, abstention_row, following_row
from tests.support.runs import STRICT

from gavel.envs.interfaces.nemo_gym import SEARCH_DIR
from gavel.envs.interfaces.nemo_gym.rows import make_gym_row
from gavel.envs.types import Task
from gavel.envs.vera_mh.target import VeraMhTarget
from gavel.models.types import Message

FAKE = ("--reply", "tests.support.gym_models:both")

SUMMED = """
import json, sys
from nemo_gym.reward_profile import compute_aggregate_metrics
rows = [json.loads(line) for line in open(sys.argv[1])]
for row in rows:
    row["response"] = {"usage": (row.get("response") or {}).get("usage")}
    row.pop("responses_create_params"); row.pop("gavel_result"); row.pop("id")
found = compute_aggregate_metrics(rows)
print(json.dumps({"agent": found.agent_metrics, "groups": found.group_level_metrics, "repeats": found.repeat_level_metrics}))
"""  # noqa: E501
READ = """
import importlib, json, sys
module, name = sys.argv[2].split(":")
model = getattr(importlib.import_module(module), name)
made = [model.model_validate(json.loads(line)) for line in open(sys.argv[1])]
print(json.dumps([[row.reward, row.mask_sample, row.failure_kind, len(row.response.output)] for row in made]))
"""


@pytest.fixture
def mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that mends the judge once it exists."""
    monkeypatch.setenv("GYM_JUDGE_MENDED", str(tmp_path / "mended"))
    return tmp_path / "mended"


@pytest.fixture
def service(tmp_path: Path, mended: Path) -> Iterator[int]:
    """Both environments served, with a policy and a judge; the port."""
    with server_process(*FAKE) as url:
        words = (
            "env=abstention",
            STRICT,
            "also.instruction_following=env=instruction_following reward=all",
            f"judge.base_url={url}",
            "judge.model=judge",
            "judge.attempts=1",
            "gym.play=true",
            f"policy.base_url={url}",
            "policy.model=policy",
        )
        with real.serve(*words, cwd=tmp_path) as port:
            yield port


def collect(port: int, env: str, rows: Path, *words: str) -> str:
    head = ("+head_server.host=127.0.0.1", f"+head_server.port={port}")
    words = ("--agent", f"gavel_{env}_agent", "--input", rows.name, "--output", f"out/{env}.jsonl", *words, *head)
    return real.gym("eval", "run", "--no-serve", *words, cwd=rows.parent)


def metrics(folder: Path, env: str) -> dict[str, Any]:
    (entry,) = orjson.loads((folder / f"out/{env}_aggregate_metrics.json").read_bytes())
    found: dict[str, Any] = entry
    return found


def check_statistics(folder: Path, env: str, found: dict[str, Any]) -> None:
    """What we give must be what Gym's own profiler makes of the same rows, and more."""
    theirs = real.in_gym(SUMMED, f"out/{env}.jsonl", cwd=folder)
    for name, value in theirs["agent"].items():
        assert found["agent_metrics"][name] == pytest.approx(value, rel=1e-3, abs=1e-9), name
    assert [group["_ng_task_index"] for group in found["group_level_metrics"]] == [
        g["_ng_task_index"] for g in theirs["groups"]
    ]
    for ours, group in zip(found["group_level_metrics"], theirs["groups"], strict=True):
        for name, value in group.items():
            if name not in ("sample", "rollout_infos"):
                assert ours[name] == pytest.approx(value), name
    for ours, repeat in zip(found["repeat_level_metrics"], theirs["repeats"], strict=True):
        for name, value in repeat.items():
            assert ours[name] == pytest.approx(value, rel=1e-3, abs=1e-9), name


@real.needs_gym
@pytest.mark.timeout(600)
def test_gym_collects_a_thousand_abstention_rows_and_resumes_the_ones_whose_judge_failed(
    service: int, tmp_path: Path, mended: Path
) -> None:
    rows = real.write_rows(tmp_path / "rows.jsonl", [abstention_row(number) for number in range(1000)])
    collect(service, "abstention", rows)
    good, failed = (
        real.rows_of(tmp_path / "out/abstention.jsonl"),
        real.rows_of(tmp_path / "out/abstention_failures.jsonl"),
    )
    assert (len(good), len(failed)) == (900, 100)
    assert {row["_ng_task_index"] % 10 for row in failed} == {UNREADABLE}
    assert {(row["_ng_failure_class"], row["failure_kind"]) for row in failed} == {
        ("judge_failed", "judge_unparseable")
    }
    first = metrics(tmp_path, "abstention")
    assert first["key_metrics"]["mean/reward"] == pytest.approx((6 * 1.0 + 0.5) / 9)
    assert first["key_metrics"]["abstention/accuracy"] == pytest.approx(6 / 9)
    check_statistics(tmp_path, "abstention", first)

    mended.touch()
    collect(service, "abstention", rows, "--resume")
    assert len(real.rows_of(tmp_path / "out/abstention.jsonl")) == 1000
    assert len(real.rows_of(tmp_path / "out/abstention_failures.jsonl")) == 100, "tried again once, and none failed"
    assert metrics(tmp_path, "abstention")["key_metrics"]["abstention/accuracy"] == pytest.approx(0.6)
    read = real.in_gym(
        READ, "out/abstention.jsonl", "resources_servers.abstention.app:AbstentionVerifyResponse", cwd=tmp_path
    )
    assert [entry[1:] for entry in read] == [[False, None, 1]] * 1000
    read = real.in_gym(
        READ, "out/abstention_failures.jsonl", "resources_servers.abstention.app:AbstentionVerifyResponse", cwd=tmp_path
    )
    assert read == [[0.0, True, "judge_unparseable", 1]] * 100


@real.needs_gym
@pytest.mark.timeout(600)
def test_gym_keeps_masked_rows_in_its_results_and_out_of_its_metrics(service: int, tmp_path: Path) -> None:
    made = [following_row(number) for number in range(100)]
    for row in made[4::50]:
        row["instructions"][0]["instruction_id"] = "no:such"
    rows = real.write_rows(tmp_path / "vif.jsonl", made)
    collect(service, "instruction_following", rows, "--num-repeats", "2")
    good = real.rows_of(tmp_path / "out/instruction_following.jsonl")
    masked = [row for row in good if row["mask_sample"]]
    assert (len(good), len(masked), {row["id"] for row in masked}) == (180, 4, {4, 54})
    assert {row["should_skip_rollout"] for row in masked} == {True}
    assert len(real.rows_of(tmp_path / "out/instruction_following_failures.jsonl")) == 20
    found = metrics(tmp_path, "instruction_following")
    assert found["key_metrics"]["mean/reward"] == pytest.approx((60 - 2) / (90 - 2))
    assert found["key_metrics"]["instruction_following/prompt_accuracy"] == pytest.approx(58 / 88)
    assert (found["key_metrics"]["coverage/masked_rollouts"], found["key_metrics"]["coverage/fully_masked_tasks"]) == (
        4,
        2,
    )
    check_statistics(tmp_path, "instruction_following", found)
    kind = "resources_servers.verifif.app:TuringVIFVerifyResponse"
    read = real.in_gym(READ, "out/instruction_following.jsonl", kind, cwd=tmp_path)
    assert sum(entry[1] for entry in read) == 4


READ_RESPONSES = """
import json, sys
from nemo_gym.openai_utils import NeMoGymResponse
made = [NeMoGymResponse.model_validate(json.loads(line)["response"]) for line in open(sys.argv[1])]
print(json.dumps([[item.role for item in response.output] for response in made]))
"""


@real.needs_gym
@pytest.mark.timeout(600)
def test_gym_collects_whole_conversations_with_both_sides_in_the_response(tmp_path: Path) -> None:
    tasks = [
        Task(
            f"v-{name}",
            "vera_mh",
            "vera_mh/vera_mh",
            (Message("system", vera.SYSTEM),),
            VeraMhTarget(name, "simulator"),
            {},
        )
        for name in vera.NAMES
    ]
    rows = real.write_rows(tmp_path / "rows.jsonl", [make_gym_row(task) for task in tasks])
    with server_process("--reply", "tests.envs.vera_mh.support:reply") as url:
        words = (*VERA, f"services.simulator.base_url={url}", f"judge.base_url={url}", f"judge.model={vera.JUDGE}")
        with real.serve(*words, *played_at(url, vera.CHATBOT), cwd=tmp_path) as port:
            collect(port, "vera_mh", rows)
    good = real.rows_of(tmp_path / "out/vera_mh.jsonl")
    assert sorted(row["persona"] for row in good) == sorted(vera.NAMES)
    assert not any(row["mask_sample"] for row in good)
    assert (
        real.in_gym(READ_RESPONSES, "out/vera_mh.jsonl", cwd=tmp_path)
        == [["user", "assistant", "user", "assistant"]] * 3
    )
    found = metrics(tmp_path, "vera_mh")["key_metrics"]
    assert any(name.startswith("vera_mh/") for name in found), sorted(found)


def start_config(folder: Path, url: str) -> str:
    words = [f"judge.base_url={url}", "judge.model=judge", "judge.attempts=1", STRICT]
    block = {"gavel_abstention": {"resources_servers": {"gavel_abstention": {"gavel": words}}}}
    (folder / "mine.yaml").write_bytes(orjson.dumps(block))  # JSON is YAML
    return "mine.yaml"


def linked_environments(folder: Path) -> Path:
    """Environments for Gym's servers that are there already, so that nothing is installed: ours, and its own."""
    own, theirs = Path(sys.prefix), Path(real.PYTHON).parents[1]
    gyms = (
        "responses_api_agents/simple_agent",
        "environment_servers/legacy_agent",
        "responses_api_models/openai_model",
    )
    for name, prefix in {"resources_servers/gavel_abstention": own, **dict.fromkeys(gyms, theirs)}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / ".venv").symlink_to(prefix)
    return folder


@real.needs_gym
@pytest.mark.timeout(600)
def test_gym_starts_our_server_from_the_search_directory_and_its_agent_plays_the_rows(
    tmp_path: Path, mended: Path
) -> None:
    if not (Path(sys.prefix) / "bin" / "activate").exists():
        pytest.skip("the running interpreter is in no virtual environment, and Gym wants one for a server")
    rows = real.write_rows(tmp_path / "rows.jsonl", [abstention_row(number) for number in range(60)])
    port = free_port()
    with server_process(*FAKE) as url:
        words = (
            "env",
            "start",
            "--search-dir",
            str(SEARCH_DIR),
            "--resources-server",
            "gavel_abstention",
            "--config",
            start_config(tmp_path, url),
            "--model-type",
            "openai_model",
            "--model",
            "policy",
            "--model-url",
            url,
            "--model-api-key",
            "none",
            "+skip_venv_if_present=true",
            f"+uv_venv_dir={linked_environments(tmp_path / 'venvs')}",
            "+head_server.host=127.0.0.1",
            f"+head_server.port={port}",
        )
        command = (str(Path(real.PYTHON).parent / "gym"), *words)
        with real.process(*command, ready="All 4 / 4 servers ready", env=real.gym_env(), cwd=tmp_path):
            collect(port, "abstention", rows, "--concurrency", "8")
    assert len(real.rows_of(tmp_path / "out/abstention.jsonl")) == 54
    assert metrics(tmp_path, "abstention")["key_metrics"]["abstention/accuracy"] == pytest.approx(6 / 9)


ROWS = {
    "abstention": (abstention_row(1), "[IDK]", 0.5, [STRICT]),
    "instruction_following": (following_row(1), "The harbour is near.", 1.0, []),
}


@pytest.mark.parametrize("env", list(ROWS))
def test_the_search_directorys_app_serves_where_gyms_variables_say_and_ends_with_gyms_shell(
    env: str, tmp_path: Path
) -> None:
    row, text, reward, more = ROWS[env]
    port = free_port()
    words = ["judge.base_url=http://127.0.0.1:1/v1", "judge.model=m", *more]
    block = {"host": "127.0.0.1", "port": port, "entrypoint": "app.py", "gavel": words}
    variables = {
        **os.environ,
        "NEMO_GYM_CONFIG_PATH": "mine",
        "NEMO_GYM_CONFIG_DICT": orjson.dumps({"mine": {"resources_servers": {f"gavel_{env}": block}}}).decode(),
    }
    app = SEARCH_DIR / "resources_servers" / f"gavel_{env}" / "app.py"
    shell = f"cd {shlex.quote(str(app.parent))} && {shlex.quote(sys.executable)} app.py"  # as Gym does
    with real.process("/bin/bash", "-c", shell, ready="serving ", env=variables, cwd=tmp_path):
        body = orjson.dumps({**row, "response": responded(text)})
        request = urllib.request.Request(f"http://127.0.0.1:{port}/verify", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert orjson.loads(answer.read())["reward"] == reward
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            assert answer.status == 200
    wait_until(lambda: not listens(port))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def test_the_shipped_configs_name_what_our_rows_name() -> None:
    for env in ("abstention", "instruction_following"):
        folder = SEARCH_DIR / "resources_servers" / f"gavel_{env}"
        text = (folder / "configs" / f"gavel_{env}.yaml").read_text()
        assert f"gavel_{env}_agent:" in text
        assert f"gavel_{env}_environment_server:" in text
        assert (folder / "requirements.txt").read_text().split() == ["gavel-rl"]
