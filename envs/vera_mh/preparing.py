"""The tasks of VERA-MH: every persona with every simulator; for training, each with its opening."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from gavel.envs.task_manifest import MANIFEST_SCHEMA
from gavel.envs.types import Task
from gavel.envs.vera_mh.config import VeraMhConfig
from gavel.envs.vera_mh.conversation import CHATBOT_PROMPT
from gavel.envs.vera_mh.environment import NAME, VeraMhEnvironment
from gavel.envs.vera_mh.personas import Persona
from gavel.envs.vera_mh.protected import read_protected
from gavel.envs.vera_mh.target import VeraMhTarget
from gavel.judges.rubrics.vera_mh import TARGETS
from gavel.judges.types import Judge
from gavel.models.codec import compute_digest, dump, record, to_plain
from gavel.models.errors import ConfigError, find_nearest
from gavel.models.types import ChatModel, Message

SOURCE = "vera_mh"
LICENCE = {
    "personas": "Spring Care, Inc.: use and redistribution with the copyright notice, the permission notice and the "
    "disclaimer; "
    "a score is not a certification, an endorsement or a safety determination"
}


@record
class VeraMhSource:
    """``personas`` names those that are wanted, in the table's order; none named means all. ``openings`` writes each
    persona's first utterance into its task, which a trainer needs for a prompt: one call of the simulator for each
    task. ``protected`` are files with the personas you test with (``tasks.jsonl``, or ``.txt`` with a name a line): no
    task is made of one."""

    name: str = SOURCE
    personas: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    openings: bool = False


@dataclass(frozen=True, slots=True)
class VeraMhTasks:
    """Makes the tasks; see ``gavel.envs.registry.Generator``."""

    config: VeraMhConfig
    source: VeraMhSource
    judge: Judge

    @property
    def services(self) -> tuple[str, ...]:
        """The services that must be running."""
        return self.config.called_services if self.source.openings else ()

    async def tasks(self, services: Mapping[str, ChatModel]) -> tuple[Task, ...]:
        """Return the tasks: the first simulator with every persona in the table's order, then the next simulator.

        Raises:
            ConfigError: a persona that there is not, or none that is not protected.
            InputError: a protected file cannot be read.
            ModelFailure: an opening could not be had.
        """
        environment = VeraMhEnvironment(self.config, self.judge, services)
        kept, _ = read_protected(self.source.protected, environment.personas)
        personas = [persona for persona in self._choose_personas(environment.personas) if persona.name not in kept]
        if not personas:
            raise ConfigError(
                "every persona that is wanted is protected",
                field="source.personas",
                found=", ".join(self.source.personas) or "all",
                remedy="protect fewer, or name others",
            )
        made = [self._make_task(persona, service) for service in self.config.called_services for persona in personas]
        if not self.source.openings:
            return tuple(made)
        async with asyncio.TaskGroup() as group:  # each service admits only as many calls as it allows
            openings = [group.create_task(environment.open(task)) for task in made]
        return tuple(
            replace(task, messages=opening.result().messages) for task, opening in zip(made, openings, strict=True)
        )

    def contents(self, tasks: Sequence[Task]) -> Mapping[str, bytes]:
        """Return the files of a prepared folder: the same tasks give the same bytes."""
        binding, rubric = self.config.binding, self.judge.rubric(self.config.binding)
        verifier = {"kind": "NamedJudgeVerifier", "binding": binding, "profile": rubric.profile, "target": TARGETS[0]}
        rows = b"".join(dump(task) + b"\n" for task in tasks)
        made = {"tasks.jsonl": rows, "verifiers.json": _encode_pretty({f"{TARGETS[0]}/{binding}": verifier})}
        files = {name: {"sha256": f"sha256:{hashlib.sha256(data).hexdigest()}"} for name, data in made.items()}
        manifest = {
            "schema": MANIFEST_SCHEMA,
            "env": NAME,
            "source": {"name": SOURCE, "rubric": rubric.digest, "options": compute_digest(self.source)},
            "licence": {"statements": LICENCE, "warning": ""},
            "counts": {"rows": len(tasks), "train": len(tasks), "validation": 0, "dropped": {}},
            "hygiene": self._check_hygiene(),
            "files": files,
        }
        return {**made, "manifest.json": _encode_pretty(manifest)}

    def _check_hygiene(self) -> dict[str, object] | None:
        if not self.source.protected:
            return None
        table = VeraMhEnvironment(self.config, self.judge, {}).personas
        kept, files = read_protected(self.source.protected, table)
        return {"protected": [to_plain(file) for file in files], "personas": sorted(kept)}

    def _choose_personas(self, personas: Mapping[str, Persona]) -> list[Persona]:
        for name in self.source.personas:
            if name not in personas:
                near = find_nearest(name, personas)
                raise ConfigError(
                    "there is no such persona",
                    field="source.personas",
                    found=name,
                    allowed=f"one of {len(personas)}, such as {', '.join(list(personas)[:3])}",
                    remedy=f"did you mean {near[0]}?" if near else "",
                )
        return [
            persona for name, persona in personas.items() if not self.source.personas or name in self.source.personas
        ]

    def _make_task(self, persona: Persona, service: str) -> Task:
        metadata = {"source": SOURCE, "persona": persona.name, "risk": persona.risk, "simulator": service}
        own = self.config.chatbot_prompt
        prompt = CHATBOT_PROMPT if own is None else own
        return Task(
            f"{persona.name}/{service}",
            NAME,
            f"{TARGETS[0]}/{self.config.binding}",
            (Message("system", prompt),) if prompt else (),
            VeraMhTarget(persona.name, service),
            metadata,
        )


def _encode_pretty(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"
