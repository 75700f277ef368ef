"""Shards of a run, merged, are the run that one process would have made."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import JUDGE, arguments, essence, gavel, number_of, reply, rows, source_row, write_tasks

from gavel.launch.runs.lease import FolderLock
from gavel.launch.runs.shards import read_shard
from gavel.models.errors import ConfigError

ROLLOUTS = ("rollouts_per_task=2",)


def _metrics(run: Path) -> dict[str, Any]:
    """What does not depend on the clock."""
    found: dict[str, Any] = orjson.loads((run / "metrics.json").read_bytes())
    for cost in (*found["services"].values(), found["cost"]):
        del cost["latency_s"]
    return found


async def _shards(tmp_path: Path, tasks: Path, of: int, url: str, *more: str) -> list[Path]:
    runs = [tmp_path / f"part-{index}" for index in range(1, of + 1)]
    for index, run in enumerate(runs, start=1):
        done = await gavel(*arguments(tasks, run, url, *ROLLOUTS, f"shard={index}/{of}", *more))
        assert done.code in (0, 3), done.out + done.err
    return runs


def _tasks_with_a_bad_row(path: Path) -> Path:
    lines = [orjson.dumps(source_row(number)) for number in range(23)]
    lines.insert(11, orjson.dumps({"id": "bad", "question": "", "answer": "x"}))
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


async def test_merged_shards_equal_the_run_in_one_piece(tmp_path: Path) -> None:
    tasks = _tasks_with_a_bad_row(tmp_path / "t.jsonl")
    async with FaultServer(reply=reply) as server:
        whole = await gavel(*arguments(tasks, tmp_path / "whole", server.base_url, *ROLLOUTS))
        assert whole.code == 3, whole.out + whole.err  # the bad row
        asked = server.count
        runs = await _shards(tmp_path, tasks, 3, server.base_url)
        assert server.count == 2 * asked  # nothing is played twice, nothing left out
        merged = tmp_path / "merged"
        (tmp_path / ".merged.merging" / "merged").mkdir(parents=True)  # of a merge that was killed
        (tmp_path / ".merged.merging" / "merged" / "inputs.jsonl").write_text("{torn")
        done = await gavel("merge", *map(str, reversed(runs)), f"into={merged}")
        assert done.code == 3, done.out + done.err
        assert "1 invalid" in done.out
        assert (merged / "inputs.jsonl").read_bytes() == (tmp_path / "whole" / "inputs.jsonl").read_bytes()
        assert essence(merged) == essence(tmp_path / "whole")
        assert _metrics(merged) == _metrics(tmp_path / "whole")
        assert (merged / "reward_profile.jsonl").read_bytes() == (
            tmp_path / "whole" / "reward_profile.jsonl"
        ).read_bytes()
        planned = [(row["task_id"], row["rollout_index"]) for row in rows(merged, "inputs.jsonl")]
        assert [(row["task_id"], row["rollout_index"]) for row in rows(merged)] == planned
        assert len({(line["task_id"], line["rollout_index"]) for line in rows(merged, "transcripts.jsonl")}) == len(
            planned
        )
        assert (merged / "report.html").is_file()
        manifest = orjson.loads((merged / "manifest.json").read_bytes())
        own = orjson.loads((tmp_path / "whole" / "manifest.json").read_bytes())
        assert [parent["run"] for parent in manifest["merged"]] == [str(run.resolve()) for run in runs]
        assert (manifest["identity"], manifest["digests"]["tasks"]) == (own["identity"], own["digests"]["tasks"])

        # Everything that takes a run takes this one.
        before = server.count
        for words in (
            ("report", str(merged), "format=csv"),
            ("compare", str(tmp_path / "whole"), str(merged)),
            ("rescore", str(merged), "reward=omniscience", f"into={tmp_path / 'omni'}"),
            ("regrade", str(merged)),
        ):
            after = await gavel(*words)
            assert after.code in (0, 3), (words, after.out + after.err)
        assert server.count == before
        again = await gavel(*arguments(tasks, merged, server.base_url, *ROLLOUTS))
        assert again.code == 3, again.out + again.err  # the bad row only
        assert server.count == before
        graded = await gavel("regrade", str(merged), "only=all", f"into={tmp_path / 'again'}")
        assert graded.code == 0, graded.out + graded.err
        assert server.count > before
    assert len(essence(tmp_path / "again")) == 46


async def test_all_rollouts_of_a_task_are_in_one_shard_and_raising_the_limit_moves_none(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 10)
    async with FaultServer(reply=reply) as server:
        first = await _shards(tmp_path, tasks, 2, server.base_url, "tasks.limit=5")
        small = [{row["task_id"] for row in rows(run)} for run in first]
        assert small == [{"q-0", "q-2", "q-4"}, {"q-1", "q-3"}]
        grown = await _shards(tmp_path, tasks, 2, server.base_url)
        assert [{row["task_id"] for row in rows(run)} for run in grown] == [
            {f"q-{n}" for n in range(start, 10, 2)} for start in (0, 1)
        ]
        for run in grown:
            assert all(
                sum(row["task_id"] == name for row in rows(run)) == 2 for name in {row["task_id"] for row in rows(run)}
            )
        done = await gavel("merge", *map(str, grown), f"into={tmp_path / 'merged'}")
    assert done.code == 0, done.out + done.err
    assert len(essence(tmp_path / "merged")) == 20


async def test_what_shards_lack_is_named_and_can_be_done_after_the_merge(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 6)

    def choose(body: dict[str, Any], n: int) -> str | None:
        return "500" if body["model"] == JUDGE and number_of(body) == 4 else None

    async with FaultServer(reply=reply, choose=choose) as server:
        runs = await _shards(tmp_path, tasks, 2, server.base_url, "judge.attempts=1")
    merged = tmp_path / "merged"
    missing = await gavel("merge", str(runs[1]), f"into={merged}")
    assert missing.code == 2
    assert "add 1/2" in missing.err
    assert not merged.exists()
    part = await gavel("merge", str(runs[1]), f"into={tmp_path / 'half'}", "partial=true")
    assert part.code == 3
    assert "1/2" in part.out
    done = await gavel("merge", *map(str, runs), f"into={merged}")
    assert done.code == 3, done.out + done.err
    assert "2 ungraded: q-4 (rollout 0), q-4 (rollout 1)" in done.out
    async with FaultServer(reply=reply) as server:
        mended = await gavel("regrade", str(merged), f"judge.base_url={server.base_url}")
        assert mended.code == 0, mended.out + mended.err
        assert {number_of(seen.body) for seen in server.requests} == {4}
    assert len(essence(merged)) == 12


async def test_runs_that_do_not_belong_together_are_refused_with_what_differs(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 6)
    async with FaultServer(reply=reply) as server:
        one, two = await _shards(tmp_path, tasks, 2, server.base_url)
        made = {
            "other-model": ("policy.model=policy-model", "policy.sampling.temperature=0.3", "shard=2/2"),
            "other-reward": ("reward.abstain=0.3", "shard=2/2"),
            "other-count": ("rollouts_per_task=3", "shard=2/2"),
            "other-limit": ("tasks.limit=4", "shard=2/2"),
            "thirds": ("shard=2/3",),
            "whole": (),
        }
        for name, more in made.items():
            done = await gavel(*arguments(tasks, tmp_path / name, server.base_url, *ROLLOUTS, *more))
            assert done.code == 0, done.out + done.err
        other = write_tasks(tmp_path / "other.jsonl", 6, start=100)
        assert (
            await gavel(*arguments(other, tmp_path / "other-tasks", server.base_url, *ROLLOUTS, "shard=2/2"))
        ).code == 0
    expected = {
        "other-model": "identity.policy.sampling.temperature",
        "other-reward": "reward.abstain: 0.5 -> 0.3",
        "other-count": "rollouts_per_task: 2 -> 3",
        "other-limit": "tasks.limit: None -> 4",
        "thirds": "shards: 2 -> 3",
        "whole": "this is no shard of a run",
        "other-tasks": "tasks: ",
        "part-1": "shard 1/2 is given twice",
    }
    (tmp_path / "copies").mkdir()
    shutil.copytree(one, tmp_path / "copies" / "part-1")
    for name, words in expected.items():
        run = tmp_path / "copies" / name if name == "part-1" else tmp_path / name
        done = await gavel("merge", str(one), str(run), f"into={tmp_path / 'merged'}")
        assert done.code == 2, (name, done.out)
        assert words in done.err, (name, done.err)
        assert not (tmp_path / "merged").exists()
    twice = await gavel("merge", str(one), f"{one}/", f"into={tmp_path / 'merged'}")
    assert twice.code == 2
    assert "this run is named twice" in twice.err
    with FolderLock(two):
        busy = await gavel("merge", str(one), str(two), f"into={tmp_path / 'merged'}")
    assert busy.code == 2
    assert "another process is writing this run" in busy.err
    taken = await gavel("merge", str(one), str(two), f"into={two}")
    assert taken.code == 2
    assert "this place is taken" in taken.err


async def test_a_merge_that_fails_leaves_nothing_and_no_row_is_lost_in_silence(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        runs = await _shards(tmp_path, write_tasks(tmp_path / "t.jsonl", 4), 2, server.base_url, "report=false")
    before = (runs[1] / "inputs.jsonl").read_bytes()
    for damage in (b"", before.splitlines(keepends=True)[0]):  # lost, cut short
        (runs[1] / "inputs.jsonl").write_bytes(damage)
        done = await gavel("merge", *map(str, runs), f"into={tmp_path / 'merged'}")
        assert done.code == 2, done.out
        assert f"{runs[1]}" in done.err
        assert "inputs.jsonl" in done.err
    (runs[1] / "inputs.jsonl").write_bytes(before)
    lines = (runs[1] / "results.jsonl").read_bytes().splitlines(keepends=True)
    (runs[1] / "results.jsonl").write_bytes(b"".join([*lines, lines[0]]))
    twice = await gavel("merge", *map(str, runs), f"into={tmp_path / 'merged'}")
    assert twice.code == 2, twice.out
    assert "this row is graded twice" in twice.err
    (runs[1] / "results.jsonl").write_bytes(b"{}\n")
    done = await gavel("merge", *map(str, runs), f"into={tmp_path / 'merged'}")
    assert done.code == 2, done.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part-1", "part-2", "t.jsonl"]


async def test_a_shard_that_was_only_looked_at_or_extended_later_is_merged_when_all_of_it_is_planned(
    tmp_path: Path,
) -> None:
    tasks, merged = write_tasks(tmp_path / "t.jsonl", 6), tmp_path / "merged"
    runs = [tmp_path / "part-1", tmp_path / "part-2"]
    async with FaultServer(reply=reply) as server:
        words = [
            arguments(tasks, run, server.base_url, "report=false", f"shard={n}/2")
            for n, run in enumerate(runs, start=1)
        ]
        assert (await gavel(*words[0], "tasks.limit=3")).code == 0
        assert (await gavel(*words[1], "inspect=q-3")).code == 0
        assert (await gavel(*words[0])).code == 0  # raised: the plan is that of the other now
        early = await gavel("merge", *map(str, runs), f"into={merged}")
        assert early.code == 2, early.out
        assert f"{runs[1]}: 1 rows" in early.err
        assert not merged.exists()
        assert (await gavel(*words[1])).code == 0
    done = await gavel("merge", *map(str, runs), f"into={merged}")
    assert done.code == 0, done.err
    assert len(essence(merged)) == 6


async def test_a_merge_goes_where_a_link_leads_and_never_into_a_shard(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        runs = await _shards(tmp_path, write_tasks(tmp_path / "t.jsonl", 2), 2, server.base_url, "report=false")
    inside = await gavel("merge", *map(str, runs), f"into={runs[0] / 'whole'}")
    assert inside.code == 2
    assert (
        f"into: a shard's own folder is no place for the whole: found {runs[0]}".partition(": found")[0] in inside.err
    )
    assert not (runs[0] / "whole").exists()
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    assert (await gavel("rescore", str(runs[0]), "reward=omniscience", f"into={tmp_path / 'child'}")).code == 0
    child = await gavel("merge", str(tmp_path / "child"), str(runs[1]), f"into={tmp_path / 'link'}")
    assert child.code == 2
    assert "merge the shards first, then rescore the whole" in child.err
    linked = await gavel("merge", *map(str, runs), f"into={tmp_path / 'link'}")
    assert linked.code == 0, linked.err
    assert len(rows(tmp_path / "disk")) == 4
    assert (tmp_path / "link").is_symlink()


async def test_a_shard_goes_on_only_as_itself(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "t.jsonl", 4)
    async with FaultServer(reply=reply) as server:
        (one, _) = await _shards(tmp_path, tasks, 2, server.base_url)
        other = await gavel(*arguments(tasks, one, server.base_url, *ROLLOUTS, "shard=2/2"))
        whole = await gavel(*arguments(tasks, one, server.base_url, *ROLLOUTS))
        same = await gavel("rollout", str(one))
    assert (other.code, whole.code, same.code) == (2, 2, 0)
    assert "another part of a run" in other.err
    assert "set shard=1/2" in whole.err


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", "1/20000", "\uff11/\uff12"])
def test_a_word_that_is_no_shard_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ConfigError, match="i from 1 to n"):
        read_shard(text)


async def test_more_shards_than_tasks_leave_one_without_work_which_is_said(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        done = await gavel(
            *arguments(write_tasks(tmp_path / "t.jsonl", 2), tmp_path / "run", server.base_url, "shard=3/3")
        )
    assert done.code == 2
    assert "at most as many shards as tasks, 2" in done.err
    assert not (tmp_path / "run").exists()
