"""A run folder that was made elsewhere starts no program unless the command says that it is trusted."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.support.fake_vllm import fake_python, model_directory
from tests.support.fault_server import FaultServer
from tests.support.runs import Done, arguments, gavel, reply, write_tasks


def managed(folder: Path, **more: Any) -> dict[str, Any]:
    """A judge whose interpreter leaves a trace when it is started."""
    python = Path(fake_python(folder / "env"))
    text = python.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\ntouch {folder}/STARTED\n")
    python.write_text(text)
    model = model_directory(folder / "model")
    return {
        "mode": "managed",
        "model": model,
        "base_url": None,
        "python": str(python),
        "cpu": True,
        "engine_args": {"reply": "CORRECT"},
        **more,
    }


async def made(tmp_path: Path, url: str, change: Callable[[dict[str, Any]], None], limit: int = 2) -> Path:
    """A run with rows left to do whose stored config was changed by another."""
    run = tmp_path / "run"
    words = arguments(write_tasks(tmp_path / "t.jsonl", 4), run, url, "tasks.limit=2")
    done = await gavel(*words)
    assert done.code == 0, done.err
    stored = yaml.safe_load((run / "config.yaml").read_text())
    stored["tasks"]["limit"] = limit
    change(stored)
    (run / "config.yaml").write_text(yaml.safe_dump(stored))
    return run


def names(done: Done, *words: str) -> None:
    assert done.code == 2, done.out + done.err
    assert "trust=true" in done.err
    for word in words:
        assert word in done.err, done.err


def policy_of(folder: Path) -> Callable[[dict[str, Any]], None]:
    return lambda stored: stored["policy"].update(managed(folder))


def judge_of(folder: Path) -> Callable[[dict[str, Any]], None]:
    return lambda stored: stored["judge"].update(managed(folder))


@pytest.mark.parametrize(("key", "change"), [("policy", policy_of), ("judge", judge_of)])
async def test_a_resumed_folder_starts_nothing_it_names(
    tmp_path: Path, key: str, change: Callable[[Path], Any]
) -> None:
    async with FaultServer(reply=reply) as server:
        run = await made(tmp_path, server.base_url, change(tmp_path), limit=4)
        shutil.rmtree(run / "logs", ignore_errors=True)
        (run / "results.jsonl").write_bytes(b"")
        (run / "transcripts.jsonl").write_bytes(
            b""
        )  # nothing is done: the run may begin anew under the stored identity
        done = await gavel("rollout", str(run))
        names(done, f"{key}.python={tmp_path}/env/python", f"{key}.engine_args")
        assert not (tmp_path / "STARTED").exists()
        again = await gavel(
            "rollout", str(run), f"{key}.max_in_flight=3"
        )  # what the refused command wrote makes nothing ours
        names(again, f"{key}.python=")
        assert (await gavel("rollout", str(run), "dry_run=true")).code == 0
        assert not (tmp_path / "STARTED").exists()
        await gavel("rollout", str(run), "trust=true")
        assert (tmp_path / "STARTED").exists()
        (tmp_path / "STARTED").unlink()
        (run / "results.jsonl").write_bytes(b"")
        (run / "transcripts.jsonl").write_bytes(b"")
        assert "trust=true" not in (await gavel("rollout", str(run))).err  # trusted once, it is ours
        assert (tmp_path / "STARTED").exists()


@pytest.mark.parametrize("more", [("only=all",), ("only=all", "rubrics.abstention.temperature=0.1")])
async def test_a_regraded_folder_starts_nothing_it_names(tmp_path: Path, more: tuple[str, ...]) -> None:
    async with FaultServer(reply=reply) as server:
        run = await made(tmp_path, server.base_url, judge_of(tmp_path))
        names(await gavel("regrade", str(run), *more), "judge.python=")
        if len(more) == 1:
            names(await gavel("regrade", f"run.dir={run}", "into=" + str(tmp_path / "into"), *more), "judge.python=")
        assert not (tmp_path / "STARTED").exists()
        own = ("judge=external", f"judge.base_url={server.base_url}", "judge.model=judge-model")
        done = await gavel("regrade", str(run), "only=all", "into=" + str(tmp_path / "mine"), *own)
        assert done.code == 0, done.err  # a judge of the command's own
        await gavel("regrade", str(run), *more, "trust=true")
        assert (tmp_path / "STARTED").exists()


async def test_a_command_that_starts_nothing_does_not_make_a_folder_ours(tmp_path: Path) -> None:
    def change(stored: dict[str, Any]) -> None:
        stored["policy"].update(managed(tmp_path))

    async with FaultServer(reply=reply) as server:
        run = await made(tmp_path, server.base_url, change)
        child = tmp_path / "child"
        assert (await gavel("regrade", str(run), "only=all", f"into={child}")).code == 0  # asks no policy
        rescored = tmp_path / "rescored"
        assert (await gavel("rescore", str(run), "reward.abstain=0.3", f"into={rescored}")).code == 0
        for folder in (child, rescored):
            assert orjson.loads((folder / "manifest.json").read_bytes())["config_mark"] is None
        assert (await gavel("report", str(run))).code == 0
        assert not (tmp_path / "STARTED").exists()


async def test_a_folder_of_our_own_is_never_asked_about(tmp_path: Path) -> None:
    own = managed(tmp_path)
    words = [
        "rollout",
        f"run.dir={tmp_path / 'run'}",
        f"tasks.path={write_tasks(tmp_path / 't.jsonl', 2)}",
        "env=abstention",
        "rubrics.abstention.profile=gavel/qa-abstention-v1",
        "policy=external",
        "policy.model=policy-model",
        "judge=smollm2",
        f"judge.model={own['model']}",
        "judge.revision=null",
        f"judge.python={own['python']}",
        "judge.engine_args={reply: CORRECT}",
    ]
    async with FaultServer(reply=reply) as server:
        done = await gavel(*words, f"policy.base_url={server.base_url}")
        assert "trust" not in done.err
        moved = (tmp_path / "run").rename(tmp_path / "moved")
        again = await gavel("rollout", str(moved), "tasks.limit=2", "retry=given_up")
        assert "trust" not in again.err
        text = orjson.loads((moved / "manifest.json").read_bytes())
        (moved / "manifest.json").write_bytes(
            orjson.dumps({**text, "config_mark": None})
        )  # as an older version wrote it
        (moved / "results.jsonl").write_bytes(b"")
        (moved / "transcripts.jsonl").write_bytes(b"")
        names(await gavel("rollout", str(moved)), "judge.python=")


async def test_the_key_is_the_users_alone_and_another_user_knows_no_folder(tmp_path: Path) -> None:
    state = tmp_path / "state"
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    async with FaultServer(reply=reply) as server:
        run = tmp_path / "run"
        words = arguments(write_tasks(tmp_path / "t.jsonl", 1), run, server.base_url)
        assert (await gavel(*words, env=env)).code == 0
        assert stat.S_IMODE((state / "gavel" / "key").stat().st_mode) == 0o600
        mark = orjson.loads((run / "manifest.json").read_bytes())["config_mark"]
        assert (await gavel("rollout", str(run), env=env)).code == 0
        assert orjson.loads((run / "manifest.json").read_bytes())["config_mark"] == mark
        elsewhere = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "t.jsonl")}  # cannot be made
        assert (await gavel("rollout", str(run), env=elsewhere)).code == 0
        assert orjson.loads((run / "manifest.json").read_bytes())["config_mark"] is None
