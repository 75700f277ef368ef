"""Whole rollouts with a real small model as policy and judge: vLLM's CPU build, no GPU and no network."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import orjson
import pytest
from tests.support.runs import Done, gavel, rows
from tests.support.vllm import RealVllm

pytestmark = pytest.mark.vllm

MIRROR = Path(__file__).parents[3] / "shared" / "data" / "abstention"
PROFILES = ("gavel/qa-abstention-v1", "nvidia/qa-abstention-v1")
LABELS = {"correct", "incorrect", "abstained", "truncated", "no_answer"}


async def demo(run: Path, vllm: RealVllm, *more: str) -> Done:
    """Run ``experiment=demo`` with its models at the session's server."""
    where = [
        f"{role}.{key}={value}"
        for role in ("policy", "judge")
        for key, value in (
            ("base_url", vllm.base_url),
            ("model", vllm.model),
            ("max_context_length", 4096),
            ("max_in_flight", 8),
        )
    ]
    words = ["rollout", "experiment=demo", "policy=external", "judge=external", *where, f"run.dir={run}", *more]
    return await gavel(*words, timeout=600.0)


def generations(vllm: RealVllm) -> float:
    """The number of replies the server has finished, by its own count."""
    with urllib.request.urlopen(f"{vllm.base_url.removesuffix('/v1')}/metrics") as answer:
        counted = re.findall(r"^vllm:request_success_total\{[^}]*\} (\S+)$", answer.read().decode(), re.MULTILINE)
    return sum(map(float, counted))


async def test_the_demo_grades_every_sample_and_a_second_run_asks_nothing(real_vllm: RealVllm, tmp_path: Path) -> None:
    done = await demo(tmp_path / "run", real_vllm)
    assert done.code == 0, done.out + done.err
    graded = rows(tmp_path / "run")
    assert len({row["task_id"] for row in graded}) == len(graded) == 24
    assert {row["outcome"]["label"] for row in graded} <= LABELS
    judged = [row for row in graded if "judge_reply" in row["outcome"]["details"]]
    assert judged, "rules do not decide all of them"
    for row in graded:
        assert row["receipts"][0]["role"] == "policy"
        assert {receipt["served_model"] for receipt in row["receipts"]} == {real_vllm.model}
        assert all(receipt["usage"]["prompt_tokens"] > 0 for receipt in row["receipts"])
    metrics = orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())
    assert metrics["rows"] == {"planned": 24, "graded": 24, "ungraded": 0, "invalid": 0, "missing": 0}
    before, asked = (tmp_path / "run" / "results.jsonl").read_bytes(), generations(real_vllm)
    assert asked >= 24 + len(judged)
    assert (await demo(tmp_path / "run", real_vllm)).code == 0
    assert generations(real_vllm) == asked
    assert (tmp_path / "run" / "results.jsonl").read_bytes() == before


@pytest.mark.skipif(not MIRROR.is_dir(), reason=f"no upstream examples at {MIRROR}")
@pytest.mark.parametrize("profile", PROFILES)
async def test_upstreams_examples_run_under_both_profiles_offline(
    profile: str, real_vllm: RealVllm, tmp_path: Path
) -> None:
    done = await demo(
        tmp_path / "run",
        real_vllm,
        f"tasks.path={MIRROR / 'example.jsonl'}",
        f"rubrics.abstention.profile={profile}",
        f"assets.mirror={MIRROR}",
        f"assets.cache={tmp_path / 'assets'}",
        "assets.offline=true",
        "failure.max_ungraded_fraction=1.0",
    )
    assert done.code in (0, 3), done.out + done.err
    graded, failed = rows(tmp_path / "run"), rows(tmp_path / "run", "errors.jsonl")
    planned = {orjson.loads(line)["id"] for line in (MIRROR / "example.jsonl").read_bytes().splitlines()}
    assert {row["task_id"] for row in graded} | {row["task_id"] for row in failed} == planned
    assert len(graded) + len(failed) == len(planned) == 5
    assert graded
    # A judge this small may not come to an end within its tokens; that is its failure, and never a reward.
    assert {row["outcome"]["failure"]["kind"] for row in failed} <= {"judge_unparseable"}
    assert all(row["reward"] is None for row in failed)
    if profile == PROFILES[0]:
        assert not failed, "its replies are bound to three words"
