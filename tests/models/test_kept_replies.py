"""Replies kept between runs, from the config to the disk: only verdicts that could be read, on a disk of this
machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, essence, gavel, reply, write_tasks

from gavel.judges.bindings import Binding
from gavel.judges.judge import BoundJudges
from gavel.judges.rubrics.prompt import PromptRubric
from gavel.judges.rubrics.template import parse_template
from gavel.judges.types import Grade, JudgeFailure, JudgeQuery, Unparseable, Verdict
from gavel.models.calls import cache
from gavel.models.calls.cache import find_default_replies
from gavel.models.errors import ConfigError
from gavel.models.pool import open_services
from gavel.models.service import Service, Timeout
from gavel.models.types import Sampling


def read(text: str) -> Verdict:
    if text not in ("YES", "NO"):
        raise Unparseable(f"neither YES nor NO: {text!r}")
    return Verdict(text, "exact")


def binding(service: Service, temperature: float | None = 0.0) -> Binding:
    rubric = PromptRubric(
        profile="test/yes-no",
        targets=(),
        slots=("text",),
        labels=("YES", "NO"),
        sampling=Sampling(temperature=temperature),
        response_format=None,
        digest="sha256:yes-no",
        controls=(),
        template=parse_template("Is it? {text}", {"text"}),
        prepare=lambda slots: slots,
        reader=read,
        judged="text",
    )
    return Binding("b", "judge", rubric, service)


def query(text: str, **changes: Any) -> JudgeQuery:
    return replace(JudgeQuery("b", {"text": text}, prefix_key="p", retries=0), **changes)


async def grading(server: FaultServer, folder: Path, use: Callable[[BoundJudges], Any], **changes: Any) -> Any:
    service = Service(mode="external", model="fake", base_url=server.base_url, timeout=Timeout(1.0, 5.0), cache=True)
    service = replace(service, **changes)
    opened = open_services(
        {"judge": service}, log_dir=folder, progress=lambda line: None, replies=folder / "replies.sqlite"
    )
    async with opened as pool:
        return await use(BoundJudges({"b": binding(service)}, pool.get_model))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def ask_twice(judges: BoundJudges) -> tuple[Grade, Grade]:
    return await judges.grade(query("one")), await judges.grade(query("one"))


async def test_an_equal_question_is_not_asked_again_in_this_run_nor_in_a_later_one(tmp_path: Path) -> None:
    async with FaultServer(reply=lambda body: "YES") as server:
        first, second = await grading(server, tmp_path, ask_twice)
        assert server.count == 1
        third, _ = await grading(server, tmp_path, ask_twice)
        assert server.count == 1
        assert [grade.label for grade in (first, second, third)] == ["YES"] * 3
        assert [grade.receipts[0].cache_hit for grade in (first, second, third)] == [False, True, True]
        assert third.receipts[0].reply_digest == first.receipts[0].reply_digest


async def test_without_the_key_nothing_is_kept(tmp_path: Path) -> None:
    async with FaultServer(reply=lambda body: "YES") as server:
        await grading(server, tmp_path, ask_twice, cache=False)
        assert server.count == 2
        assert names(tmp_path) == []


async def test_a_reply_that_cannot_be_read_is_not_kept(tmp_path: Path) -> None:
    async def use(judges: BoundJudges) -> None:
        with pytest.raises(JudgeFailure):
            await judges.grade(query("one"))
        assert (await judges.grade(query("one"))).label == "NO"

    said = iter(["perhaps", "NO"])
    async with FaultServer(reply=lambda body: next(said)) as server:
        await grading(server, tmp_path, use)
        assert server.count == 2


async def test_a_further_draw_is_no_equal_question(tmp_path: Path) -> None:
    async def use(judges: BoundJudges) -> None:
        for sample in (0, 1, 1, 0):
            await judges.grade(query("one", sample=sample))

    async with FaultServer(reply=lambda body: "YES") as server:
        await grading(server, tmp_path, use)
        assert server.count == 2


async def test_another_model_at_the_same_url_is_another_question(tmp_path: Path) -> None:
    async with FaultServer(reply=lambda body: "YES", model="fake") as server:
        await grading(server, tmp_path, ask_twice)
        server.model = "other"
        await grading(server, tmp_path, ask_twice, model="other")
        assert server.count == 2


def mounts(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "mounts"
    path.write_text("".join(f"{line}\n" for line in ("root / ext4 rw 0 0", *lines)))
    return path


async def test_a_network_file_system_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "find_file_system", lambda path, mounts: "nfs4")
    async with FaultServer() as server:
        with pytest.raises(ConfigError, match=r"assets\.replies.*network file system") as caught:
            await grading(server, tmp_path, ask_twice)
        assert "nfs4" in str(caught.value)
        assert server.count == 0


def test_the_users_cache_folder_is_used_where_it_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert find_default_replies(mounts(tmp_path)) == tmp_path / "home" / "gavel" / "replies.sqlite"


def test_where_home_lies_on_a_network_a_folder_of_ones_own_on_this_machine_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, local = tmp_path / "home", tmp_path / "local"
    home.mkdir()
    local.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(local))
    table = mounts(tmp_path, f"server:/home {home} nfs4 rw 0 0")
    chosen = find_default_replies(table)
    assert chosen == local / f"gavel-{os.getuid()}" / "replies.sqlite"
    assert stat.S_IMODE(chosen.parent.stat().st_mode) == 0o700
    chosen.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="written by others"):
        find_default_replies(table)


async def test_a_second_run_of_the_command_asks_the_judge_nothing_and_grades_alike(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 8)
    kept = ["judge.cache=true", f"assets.replies={tmp_path / 'kept.sqlite'}", "rubrics.abstention.temperature=0.0"]
    async with FaultServer(reply=reply) as policy, FaultServer(reply=reply) as judge:
        runs = []
        for name in ("first", "second"):
            runs.append(tmp_path / name)
            done = await gavel(*arguments(tasks, runs[-1], policy.base_url, *kept, judge_url=judge.base_url))
            assert done.code == 0, done.out + done.err
        assert (policy.count, judge.count) == (16, 6)  # two rows in eight have no answer to grade
    assert essence(runs[0]) == essence(runs[1])
    costs = [orjson.loads((run / "metrics.json").read_bytes())["services"]["general"] for run in runs]
    assert [(cost["calls"], cost["cache_hits"], cost["cache_share"]) for cost in costs] == [(6, 0, 0.0), (0, 6, 1.0)]
