"""A judge that another job serves: what does not fit is refused, and nobody is left behind who seems to use it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.fault_server import FaultServer

from gavel.launch.runs.training_plan import JUDGE_PLAN, write_plan
from gavel.launch.training.judge import folder as judge_folder
from gavel.launch.training.judge.join import join_judge, make_shared_plan
from gavel.models.errors import ConfigError, InputError
from gavel.models.service import Service

JUDGE = Service(mode="managed", model="a/judge", port=8000)


def served(folder: Path, services: Mapping[str, Service]) -> Path:
    folder.mkdir()
    write_plan(folder / JUDGE_PLAN, make_shared_plan(services, None, None, offline=True))
    return folder


@pytest.mark.parametrize(
    ("mine", "field"),
    [
        ({"general": Service(mode="managed", model="another/judge", port=8000)}, "general"),
        ({"general": Service(mode="managed", model="a/judge", port=8000, revision="1" * 40)}, "general"),
        ({"simulator": JUDGE}, "judge_folder"),
        ({}, "judge_folder"),
    ],
)
def test_what_is_not_served_there_is_refused(mine: Mapping[str, Service], field: str, tmp_path: Path) -> None:
    folder = served(tmp_path / "judge", {"general": JUDGE})
    with pytest.raises(ConfigError) as refused, join_judge(folder, tmp_path / "run", mine, print):
        pass
    assert refused.value.field == field
    assert not list(judge_folder.list_users(folder))


def test_a_folder_without_a_judge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError), join_judge(tmp_path, tmp_path / "run", {"general": JUDGE}, print):
        pass


async def test_the_judge_is_asked_at_its_address_and_knows_who_uses_it(tmp_path: Path) -> None:
    folder, run = served(tmp_path / "judge", {"general": JUDGE}), tmp_path / "run"
    async with FaultServer(reply=lambda body: "OK") as server:
        server.model = "a/judge"
        digest = make_shared_plan({"general": JUDGE}, None, None, offline=True).digest
        url = server.base_url
        judge_folder.publish_endpoint(folder, judge_folder.Endpoint(0, "here", None, digest, {"general": (url,)}))

        def join() -> tuple[Service, int]:
            with join_judge(folder, run, {"general": JUDGE}, lambda line: None) as joined:
                return joined["general"], len(list(judge_folder.list_users(folder)))

        service, users = await asyncio.to_thread(join)
    assert (service.mode, service.base_url, service.model, users) == ("external", (url,), "a/judge", 1)
    assert service.identity == JUDGE.identity
    assert not list(judge_folder.list_users(folder))
