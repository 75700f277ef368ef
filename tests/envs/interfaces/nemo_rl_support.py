"""Environments inside NeMo-RL in tests: configs, a server that plays judge and simulator, tasks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.envs.vera_mh import support as vera
from tests.support.fault_server import FaultServer
from tests.support.faults import Answer

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.config import ActorConfig
from gavel.launch.assembly.assemble import assemble_run, make_parts
from gavel.launch.compose.compose import compose_config
from gavel.launch.config.training_schema import TrainerOptions
from gavel.launch.training.nemo_rl.config import NemoRlRun, TrainedEnvironment, render_environments
from gavel.models.codec import to_plain

ROOT = os.environ.get("NEMO_RL_ROOT", "")
needs_nemo_rl = pytest.mark.skipif(not ROOT, reason="NEMO_RL_ROOT names no checkout of NVIDIA-NeMo/RL")
REPOSITORY = Path(__file__).resolve().parents[3]
OPENING = "Hello, I could not sleep."
RIGHT, LOST, ABSTAINED = "qx1", "qxlost", "qxnone"
"""Words in a reply: the judge finds it right; the judge answers with status 500; the judge finds that it abstained."""


def overrides(env: str, url: str) -> list[str]:
    """The words of a composition with every model at ``url``."""
    common = [
        f"judge.base_url={url}",
        f"judge.model=judge-{env}",
        f"policy.base_url={url}",
        "policy.model=chatbot-model",
        "judge.attempts=1",
        "judge.max_in_flight=512",
        "failure.max_ungraded_fraction=1.0",
    ]
    own = {
        "abstention": ["rubrics.abstention.profile=gavel/qa-abstention-v1"],
        "instruction_following": [],
        "vera_mh": [
            vera.SMALL,
            "env.simulators=[{service: simulator}]",
            "env.max_turns=4",
            "env.parse_retries=0",
            "services.simulator.mode=external",
            f"services.simulator.base_url={url}",
            "services.simulator.model=simulator-model",
            "services.simulator.attempts=1",
        ],
    }[env]
    return [f"env={env}", *common, *own]


def make_run(run_dir: Path, *, gpus_per_node: int = 1, nodes: int = 1, **options: Any) -> NemoRlRun:
    """What a config says of a run besides its environment; ``options`` are those of ``trainer``."""
    return NemoRlRun(TrainerOptions(**options), str(run_dir), gpus_per_node, nodes)


def render_alone(
    run: NemoRlRun,
    words: Sequence[str],
    tasks: Path | str,
    validation: Path | str | None = None,
    failure: FailurePolicy | None = None,
) -> str:
    """The YAML of a training in the one environment that ``words`` compose."""
    composition = compose_config("rollout", words)
    assembly = assemble_run(composition, with_policy=False)
    one = TrainedEnvironment(
        make_parts(composition), assembly, composition.reward, str(tasks), str(validation) if validation else None
    )
    return render_environments(run, (one,), failure or FailurePolicy())


def actor_config(env: str, url: str, *more: str, **changes: Any) -> dict[str, Any]:
    """The plain data that stands under ``env.gavel_<env>``."""
    config = compose_config("rollout", [*overrides(env, url), *more])
    assembly = assemble_run(config, with_policy=False)
    parts = make_parts(config)
    kept = {name: parts.services[name] for name in assembly.services}
    failure = changes.pop("failure", FailurePolicy(max_ungraded_fraction=1.0))
    value = ActorConfig(
        type(parts)(parts.env, kept, parts.rubrics, parts.judging, parts.assets), config.reward, failure, **changes
    )
    raw = to_plain(value)
    assert isinstance(raw, dict)
    return raw


def task(env: str, number: int) -> dict[str, Any]:
    """The ``number``-th task of an environment, as it stands in a file."""
    question = f"Which town lies at kilometre {number} of the old road?"
    user = {"role": "user", "content": question}
    own: dict[str, Any] = {
        "abstention": {
            "verifier": "nemo_abstention_v1/abstention",
            "messages": [user],
            "target": {"question": question, "reference": f"Town {number}"},
        },
        "instruction_following": {
            "verifier": "verifif/instruction_following",
            "messages": [user],
            "target": {
                "language": "en",
                "instructions": [
                    {
                        "uid": 1,
                        "source": "user",
                        "instruction_id": "change_case:lowercase",
                        "is_misalignment_check": False,
                        "arguments": {},
                    }
                ],
                "llm_judge": [{"uid": 2, "source": "user", "content": "Is it kind?", "is_misalignment_check": False}],
            },
        },
        "vera_mh": {
            "verifier": "vera_mh/vera_mh",
            "target": {"persona": "Tomas", "simulator": "simulator"},
            "messages": [
                {"role": "system", "content": vera.SYSTEM},
                {"role": "user", "content": f"{OPENING} {number}"},
            ],
        },
    }[env]
    return {"schema": "gavel.task/1", "task_id": f"{env}-{number}", "env": env, "metadata": {"number": number}, **own}


def write_tasks(path: Path, env: str, count: int) -> Path:
    """Write the first ``count`` tasks."""
    path.write_bytes(b"".join(orjson.dumps(task(env, number)) + b"\n" for number in range(count)))
    return path


def answer(body: dict[str, Any]) -> str | Answer:
    """Play every model: a simulator that counts, and judges that find right what holds ``RIGHT``."""
    model, text = body["model"], body["messages"][-1]["content"]
    if model == "judge-abstention":
        return "NOT_ATTEMPTED" if ABSTAINED in text else "CORRECT" if RIGHT in text else "INCORRECT"
    if model == "judge-instruction_following":
        return orjson.dumps({"reasoning": "seen", "verdict": "YES" if RIGHT in text else "NO"}).decode()
    return vera.reply({**body, "model": vera.JUDGE if model == "judge-vera_mh" else model})


def answer_all(body: dict[str, Any]) -> str | Answer:
    """Play one judge of all three environments, which sees by the prompt whose it is, and every other model."""
    if body["model"] != "judge-all":
        return answer(body)
    text = str(body["messages"])
    env = "abstention" if "NOT_ATTEMPTED" in text else "instruction_following" if "verdict" in text else "vera_mh"
    if env == "vera_mh" and RIGHT in text and "Yes" in vera.options_of(body):
        return vera.verdict("Yes")
    return answer({**body, "model": f"judge-{env}"})


def lose(body: dict[str, Any], _: int) -> str | None:
    """Fail a judge's call about a reply that holds ``LOST``."""
    return "500" if body["model"].startswith("judge") and LOST in str(body["messages"]) else None


@contextmanager
def serving(**options: Any) -> Iterator[FaultServer]:
    """Run the server on a loop of its own thread, so that other threads and processes may call it."""
    server, loop = FaultServer(**{"reply": answer, "choose": lose, **options}), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
