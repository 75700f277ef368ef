"""A run folder that has = in its path is named like any other, by every verb."""

from __future__ import annotations

from pathlib import Path

from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, reply, write_tasks


async def test_a_path_with_equals_is_a_run_for_every_verb(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    one, two = "runs/000-seed=1", "runs/001-seed=2"
    tasks = write_tasks(tmp_path / "t.jsonl", 2)
    async with FaultServer(reply=reply) as server:
        for run in (one, two):
            done = await gavel(*(word for word in arguments(tasks, Path(run), server.base_url)), cwd=tmp_path)
            assert done.code == 0, done.err
        assert (await gavel("rollout", one, cwd=tmp_path)).code == 0
    assert (await gavel("compare", one, two, cwd=tmp_path)).code == 0
    assert (await gavel("rescore", one, "reward.abstain=0.3", cwd=tmp_path)).code == 0
    several = await gavel("rescore", one, "reward.abstain=0.3,0.5", cwd=tmp_path)
    assert several.code == 2
    assert f"gavel rescore {one} -m reward.abstain=0.3,0.5" in several.err
    exported = await gavel("export", one, cwd=tmp_path)
    assert f"gavel export {one}" in exported.err
