"""A run folder that has = in its path is named like any other, by every verb."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, reply, write_tasks

from gavel.launch.cli.command_line import parse_words


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


@pytest.mark.parametrize(
    ("words", "run"),
    [
        ("status c=d", "c=d"),
        ("status c=d/", "c=d/"),
        ("view reward.abstain=0.3", "reward.abstain=0.3"),
        ("compare c=d e", "c=d"),
        ("rescore c=d -m reward.abstain=0.3,0.5", "c=d"),
        ("rescore reward.abstain=0.3", None),
        ("status lines=5", None),
        ("report run=x", None),
        ("train env=abstention", None),
        ("status x=y", None),
        ("no-such-verb c=d", None),
    ],
)
def test_a_folder_that_is_there_is_a_run_unless_its_name_is_a_key_of_the_verb(
    words: str, run: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("c=d", "reward.abstain=0.3", "lines=5", "run=x", "env=abstention"):
        Path(name).mkdir()
    assert (parse_words(words.split()).runs or (None,))[0] == run
