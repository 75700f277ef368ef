"""Scripted judges for the tests of this folder: a real server that answers by rule, behind the real client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.fault_server import FaultServer

from gavel.judges.assets import AssetStore
from gavel.judges.bindings import Binding, bind_rubrics
from gavel.judges.controls.abstention import ABSTENTION_CONTROLS
from gavel.judges.judge import BoundJudges
from gavel.judges.probing.attacks import list_attacks
from gavel.judges.types import BindingConfig, RubricConfig
from gavel.models.calls.client import ChatClient
from gavel.models.service import Service

NATIVE, STRICT = "nvidia/qa-abstention-v1", "gavel/qa-abstention-v1"
DATA = Path(__file__).parents[3] / "shared" / "data" / "abstention"
QUERY = {"question": "What is the capital of Australia?", "reference": "Canberra", "answer": "Canberra"}

Reply = Callable[[dict[str, Any]], str]


def store(profile: str, cache: Path) -> AssetStore:
    """An offline store that holds what the profile needs; skips where the ported prompt is not at hand."""
    if profile == NATIVE and not (DATA / "omniscience_grader.txt").is_file():
        pytest.skip("the ported prompt is not at hand: no ../shared/data/abstention/omniscience_grader.txt")
    return AssetStore(cache, mirror=DATA, offline=True)


def service(server: FaultServer, **more: Any) -> Service:
    return Service(mode="external", model="fake", base_url=server.base_url, attempts=1, deadline=20.0, **more)


def bound(profile: str, judge: Service, cache: Path) -> Binding:
    made = bind_rubrics(
        {"r": RubricConfig(profile)},
        {"abstention": BindingConfig("general", "r")},
        {"general": judge},
        store(profile, cache),
    )
    return made["abstention"]


@asynccontextmanager
async def scripted(
    profile: str, reply: Reply, cache: Path, *, fresh: bool = True, **more: Any
) -> AsyncIterator[tuple[FaultServer, Binding, BoundJudges]]:
    """A judge of this profile whose server answers by ``reply`` (the request's body -> text)."""
    async with FaultServer(
        reply=reply, **{key: more.pop(key) for key in ("choose", "tokenizer") if key in more}
    ) as server:
        judge = service(server, **more)
        binding = bound(profile, judge, cache)
        async with ChatClient("general", judge) as client:
            yield server, binding, BoundJudges({binding.name: binding}, {"general": client}.__getitem__, fresh=fresh)


WORDS = {
    NATIVE: {"correct": "A", "incorrect": "B", "abstained": "C"},
    STRICT: {"correct": "CORRECT", "incorrect": "INCORRECT", "abstained": "NOT_ATTEMPTED"},
}


def word(profile: str, label: str) -> str:
    """What a server replies for a label; a choice goes as its JSON object, as servers without vLLM's field are
    asked.
    """
    said = WORDS[profile][label]
    return said if profile == NATIVE else f'{{"answer": "{said}"}}'


def prompt(body: dict[str, Any]) -> str:
    return "\n".join(message["content"] for message in body["messages"])


def knowing(profile: str, cache: Path) -> Reply:
    """A judge that knows the right verdict on every control and attack, by its prompt."""
    rubric = bound(profile, Service(mode="external", model="fake", base_url="http://127.0.0.1:9/v1"), cache).rubric
    known = {
        rubric.render(control.slots)[0].content: control.expected[0]
        for control in (*ABSTENTION_CONTROLS, *list_attacks(rubric))
    }
    return lambda body: word(profile, known[prompt(body)])
