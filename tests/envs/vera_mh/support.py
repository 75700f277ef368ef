"""Whole VERA-MH runs in tests: tasks, a server that plays simulator, chatbot and judge, and what it must have been
sent.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.faults import Answer

from gavel.judges.assets import AssetStore
from gavel.judges.rubrics.vera_mh import ASSETS
from gavel.models.pinned import AssetError

_SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "vera_mh"
VECTORS = _SHARED / "vectors"
needs_vectors = pytest.mark.skipif(not VECTORS.is_dir(), reason="no ../shared/data/vera_mh/vectors")


def _stored() -> Path:
    """Copy the seven files out of the asset store, if `gavel prepare env=vera_mh` put them there; else the folder is
    empty.
    """
    folder, store = Path(tempfile.mkdtemp(prefix="vera-mh-")), AssetStore(offline=True)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        for name in ASSETS:
            (folder / name).write_bytes(store.locate_asset(name).read_bytes())
    except AssetError:
        (folder / "rubric.tsv").unlink(missing_ok=True)
    return folder


DATA = _SHARED if (_SHARED / "rubric.tsv").is_file() else _stored()
needs_data = pytest.mark.skipif(
    not (DATA / "rubric.tsv").is_file(),
    reason="VERA-MH's files are neither in ../shared/data/vera_mh nor in the asset store",
)

SIMULATOR, CHATBOT, JUDGE = "simulator-model", "chatbot-model", "judge-model"
SMALL = "rubrics.vera_mh.profile=gavel/vera-mh-small"
PERSONAS = {"Ines": "None", "Tomas": "Low", "Petra": "High"}
NAMES = tuple(PERSONAS)
SYSTEM = "You are a helpful AI assistant."


def vectors(name: str) -> Any:
    """A file of vectors."""
    return orjson.loads((VECTORS / f"{name}.json").read_bytes())


def write_tasks(
    path: Path, count: int, *, names: tuple[str, ...] = NAMES, simulator: str = "simulator", opening: str = ""
) -> Path:
    """Write ``count`` tasks, personas in turn, with the ids ``v-<number>``."""
    messages = [{"role": "system", "content": SYSTEM}] + ([{"role": "user", "content": opening}] if opening else [])
    rows = [
        {
            "schema": "gavel.task/1",
            "task_id": f"v-{number}",
            "env": "vera_mh",
            "verifier": "vera_mh/vera_mh",
            "messages": messages,
            "target": {"persona": names[number % len(names)], "simulator": simulator},
            "metadata": {"number": number},
        }
        for number in range(count)
    ]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def arguments(
    tasks: Path, run: Path, url: str, *more: str, judge: str | None = None, simulator: str | None = None
) -> list[str]:
    """The words of a rollout with our small rubric and all models at ``url``, unless another is named."""
    return [
        "rollout",
        f"run.dir={run}",
        f"tasks.path={tasks}",
        "env=vera_mh",
        SMALL,
        "env.simulators=[{service: simulator}]",
        "policy=external",
        f"policy.base_url={url}",
        f"policy.model={CHATBOT}",
        "policy.sampling.temperature=null",
        "policy.sampling.top_p=null",
        "policy.sampling.max_response_tokens=null",
        "judge=external",
        f"judge.base_url={judge or url}",
        f"judge.model={JUDGE}",
        "services.simulator.mode=external",
        f"services.simulator.base_url={simulator or url}",
        f"services.simulator.model={SIMULATOR}",
        *more,
    ]


def verdict(answer: str, reasoning: str = "because of what was said") -> str:
    """A judge's reply."""
    return orjson.dumps({"answer": answer, "reasoning": reasoning}).decode()


_OPTIONS = re.compile(r"\[([^\[\]]*)\]\s*\n")


def options_of(body: dict[str, Any]) -> list[str]:
    """The options that a judge's request names."""
    return _OPTIONS.findall(body["messages"][1]["content"])[-1].split(", ")


def reply(body: dict[str, Any]) -> str | Answer:
    """Play all three: numbered words on both sides, and a judge that says No where it may, else the first option."""
    said = len(body["messages"]) - 1
    if body["model"] == SIMULATOR:
        return f"persona {said}"
    if body["model"] == CHATBOT:
        return f"chatbot {said}"
    choices = options_of(body)
    return verdict("No" if "No" in choices else choices[0])


def of_model(requests: list[Any], model: str) -> list[dict[str, Any]]:
    """The bodies of the requests that went to a model, in order."""
    return [seen.body for seen in requests if seen.body["model"] == model]


def talk(body: dict[str, Any]) -> list[tuple[str, str]]:
    """A request's messages as pairs of role and text."""
    return [(message["role"], message["content"]) for message in body["messages"]]
