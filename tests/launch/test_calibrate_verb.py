"""``gavel calibrate`` as a command: known error rates are found again, the certificate is kept, bad files are named."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
from tests.judges.support import STRICT, word
from tests.support.fault_server import FaultServer
from tests.support.runs import gavel

WRONG = 0.2
LABELS = ("correct", "incorrect", "abstained")


def _shipped() -> list[dict[str, Any]]:
    path = Path(__file__).parents[2] / "envs" / "abstention" / "data" / "calibration.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def _judge() -> tuple[Any, int]:
    """A judge that grades a seeded fifth of the shipped answers wrongly; and how many that is."""
    draw, verdicts = random.Random(3), {}
    for row in _shipped():
        others = [label for label in LABELS if label != row["label"]]
        verdicts[row["question"], row["answer"]] = draw.choice(others) if draw.random() < WRONG else row["label"]
    wrong = sum(verdicts[row["question"], row["answer"]] != row["label"] for row in _shipped())

    def reply(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"].rpartition("Now the answer to check.")[2]
        found = [
            label
            for (question, answer), label in verdicts.items()
            if f"\n{question}\n</question>" in text and f"\n{answer}\n`" in text
        ]
        return word(STRICT, found[0]) if found else "no such answer"

    return reply, wrong


async def test_a_judge_of_known_error_rate_is_measured_within_its_interval(tmp_path: Path) -> None:
    reply, wrong = _judge()
    async with FaultServer(reply=reply) as server:
        done = await gavel(
            "calibrate",
            str(tmp_path / "run"),
            f"rubrics.abstention.profile={STRICT}",
            f"certificates={tmp_path / 'c'}",
            "draws=500",
            "judge=external",
            f"judge.base_url={server.base_url}",
            "judge.model=fake",
        )
    assert done.code in (0, 3), done.out + done.err
    (report,) = orjson.loads((tmp_path / "run" / "calibration.json").read_bytes())
    rows = _shipped()
    graded = sum(sum(line) for line in report["confusion"])
    assert report["items"] == len(rows)
    assert report["accuracy"]["value"] * graded == graded - sum(
        count for i, line in enumerate(report["confusion"]) for j, count in enumerate(line) if i != j
    )
    assert report["accuracy"]["low"] < 1 - WRONG < report["accuracy"]["high"]
    assert abs((1 - report["accuracy"]["value"]) * graded - wrong) < 1e-6
    assert "Cohen's kappa" in done.out
    assert done.code == 0, done.out + done.err
    (certificate,) = (tmp_path / "c").glob("*.json")
    assert orjson.loads(certificate.read_bytes())["calibration"]["data_digest"] == report["data_digest"]


async def test_a_label_the_rubric_does_not_know_is_named_with_its_line(tmp_path: Path) -> None:
    row = {"question": "q", "reference": "r", "answer": "a", "label": "correct"}
    (tmp_path / "l.jsonl").write_bytes(orjson.dumps(row) + b"\n" + orjson.dumps({**row, "label": "right"}) + b"\n")
    async with FaultServer() as server:
        done = await gavel(
            "calibrate",
            str(tmp_path / "run"),
            f"rubrics.abstention.profile={STRICT}",
            f"labelled={tmp_path / 'l.jsonl'}",
            "judge=external",
            f"judge.base_url={server.base_url}",
            "judge.model=fake",
        )
    assert done.code == 2
    assert "l.jsonl:2: label" in done.err
    assert server.paths.total() == 0


async def test_a_budget_ends_a_calibration_and_several_accepted_answers_reach_the_judge_as_in_a_run(
    tmp_path: Path,
) -> None:
    row = {"question": "q", "reference": "r", "answer": "a", "label": "correct"}
    several = {"question": "q", "references": ["Rangoon", "Yangon"], "answer": "a", "label": "correct"}
    none = {"question": "q", "answerable": False, "answer": "a", "label": "incorrect"}
    file = tmp_path / "l.jsonl"
    file.write_bytes(b"\n".join(map(orjson.dumps, (several, none, row, row, row))))
    words = [
        "calibrate",
        f"rubrics.abstention.profile={STRICT}",
        f"labelled={file}",
        f"certificates={tmp_path / 'c'}",
        "concurrency=1",
    ]
    async with FaultServer(reply=lambda _: word(STRICT, "correct")) as server:
        judge = ("judge=external", f"judge.base_url={server.base_url}", "judge.model=fake")
        done = await gavel(*words, *judge, f"run.dir={tmp_path / 'run'}", "budget.max_calls=3")
        asked = [request.body["messages"][-1]["content"] for request in server.requests if "messages" in request.body]
    assert done.code == 4, done.out + done.err
    assert len(asked) == 3
    assert "- Rangoon\n- Yangon" in asked[0]
    assert "no right answer" in asked[1]
    assert "stopped: the budget is spent (budget.max_calls=3)" in done.out
    assert "no certificate, for not all was asked" in done.out
    assert not (tmp_path / "c").exists()
