"""Trainings of NeMo-RL whose rollouts NeMo Gym makes: NeMo-RL's own actor starts Gym's own servers and our agents.

Stood in for are the policy that learns, and vLLM: an HTTP server with its route for chats, which gives token ids as
NeMo-RL's does. Needs ``NEMO_RL_ROOT``, and ``nemo_gym`` in this interpreter: Gym's servers join NeMo-RL's Ray, which
wants one Python. NeMo Gym 0.7.0 runs on 3.11, too; its wheel, unpacked with what it needs into a folder of its own, is
enough (``GAVEL_GYM_CLIENT`` names it, ``PYTHONPATH`` has it).
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web
from tests.envs.interfaces.nemo_rl_support import ROOT, make_run, overrides, write_tasks

from gavel.envs.failure_policy import FailurePolicy

GYM = importlib.util.find_spec("nemo_gym") if ROOT else None
_SERVERS = ("responses_api_models/vllm_model", "environment_servers/legacy_agent")
Say = Callable[[str, int], "str | tuple[str, bool] | int"]
"""(the prompt's text, how many replies were drawn) -> a reply, one and whether it ends, or an HTTP status."""


class ChatServer:
    """vLLM's route for chats as NeMo-RL serves it: a reply continues the tokens of the turns before it."""

    def __init__(self, tokenizer: Any, say: Say) -> None:
        self.tokenizer, self.say, self.count, self.asked = tokenizer, say, 0, []
        self.url = ""

    asked: list[str]

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt = self._render(body["messages"])
        text = self.tokenizer.decode(prompt)
        said = self.say(text, self.count)
        self.count += 1
        self.asked.append(text)
        if isinstance(said, int):
            return web.json_response({"error": {"message": "the engine has failed"}}, status=said)
        words, ends = said if isinstance(said, tuple) else (said, True)
        ids = self.tokenizer(words, add_special_tokens=False)["input_ids"]
        ids = [*ids, self.tokenizer.eos_token_id] if ends else ids[: body.get("max_tokens") or 64]
        content = [{"token": f"token_id:{one}", "logprob": -0.5, "top_logprobs": []} for one in ids]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": words},
            "finish_reason": "stop" if ends else "length",
            "logprobs": {"content": content},
            "token_ids": ids,
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
        whole = {
            "id": f"chat-{self.count}",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
            "prompt_token_ids": prompt,
        }
        return web.json_response(whole)

    def _render(self, messages: list[dict[str, Any]]) -> list[int]:
        """The prompt's tokens: those of the newest reply's turn as they were, and what follows it."""
        place = next((at for at in range(len(messages) - 1, -1, -1) if "prompt_token_ids" in messages[at]), None)
        kept: list[int] = []
        plain = [{"role": one["role"], "content": one["content"]} for one in messages]
        text = self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
        if place is not None:
            kept = [*messages[place]["prompt_token_ids"], *messages[place]["generation_token_ids"]]
            before = self.tokenizer.apply_chat_template(plain[: place + 1], tokenize=False)
            text = text.removeprefix(before.rstrip("\n"))
        return [*kept, *self.tokenizer(text, add_special_tokens=False)["input_ids"]]


@contextmanager
def serving_policy(tokenizer: Any, say: Say) -> Iterator[ChatServer]:
    """Serve a policy on a thread's own loop."""
    server, loop, ready = ChatServer(tokenizer, say), asyncio.new_event_loop(), threading.Event()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_get("/{path:.*}", lambda _: _answer_models())
    runner = web.AppRunner(app, access_log=None)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


async def _answer_models() -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "policy", "object": "model"}]})


def lay_out_gym(folder: Path) -> Path:
    """What NeMo-RL's image has in ``NEMO_GYM_VENV_DIR``: the interpreters of Gym's own servers."""
    for name in _SERVERS:
        bin_ = folder / name / ".venv" / "bin"
        bin_.mkdir(parents=True, exist_ok=True)
        (bin_ / "activate").write_text("")
        (bin_ / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (bin_ / "python").chmod(0o755)
    return folder


def render_gym(
    tmp_path: Path,
    url: str,
    *,
    kind: str = "gym",
    env: str = "abstention",
    tasks: int = 1,
    prompts: int,
    generations: int,
    steps: int = 1,
    validation: int = 0,
    failure: FailurePolicy,
    more: Sequence[str] = (),
    words: Sequence[str] = (),
    **changes: Any,
) -> dict[str, Any]:
    """Write the YAML that we emit, and return it."""
    from tests.envs.interfaces import nemo_rl_harness as harness
    from tests.envs.interfaces.nemo_rl_train import render_any

    harness.make_tokenizer("chatml").save_pretrained(tmp_path / "model")
    write_tasks(tmp_path / "tasks.jsonl", env, tasks)
    validated = write_tasks(tmp_path / "validation.jsonl", env, validation) if validation else None
    trainer = make_run(
        tmp_path / "run",
        kind=kind,
        nemo_rl_root=ROOT,
        model=str(tmp_path / "model"),
        prompts_per_step=prompts,
        generations_per_prompt=generations,
        val_period=1,
        max_steps=steps,
        max_total_tokens=1024,
        max_new_tokens=256,
        gpus_per_node=2,
        overrides={"checkpointing": {"enabled": False}, **changes},
    )
    files = (tmp_path / "tasks.jsonl", validated)
    text = render_any(trainer, failure, [*overrides(env, url), *more], words, files)
    (tmp_path / "nemo_rl.yaml").write_text(text)
    config = yaml.safe_load(text)
    assert isinstance(config, dict)
    return config


@contextmanager
def hooked_gym(config: dict[str, Any], tmp_path: Path) -> Iterator[None]:
    """Make this process what the wrapper makes it, and take the hooks out again."""
    import nemo_rl.algorithms.grpo as grpo
    import nemo_rl.experience.rollouts as rollouts
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from tests.envs.interfaces import nemo_rl_harness as harness

    from gavel.envs.interfaces.nemo_rl.contract import NEEDED_GYM
    from gavel.launch.training.nemo_rl import main

    ACTOR_ENVIRONMENT_REGISTRY["nemo_rl.environments.nemo_gym.NemoGym"] = PY_EXECUTABLES.SYSTEM
    os.environ["NEMO_GYM_VENV_DIR"] = str(lay_out_gym(tmp_path / "image"))
    kept = [
        (module, name, getattr(module, name))
        for module, names in zip((rollouts, grpo), NEEDED_GYM.values(), strict=True)
        for name in names
    ]
    names = [name for name in config["env"] if name.startswith("gavel_")]
    failure = main._choose_failure_policy(config, names)
    refit, grpo.refit_policy_generation = grpo.refit_policy_generation, lambda *args, **options: {}
    try:
        with harness.hooked(None, lambda _: main._install_gym(config, names, failure)):
            yield
    finally:
        grpo.refit_policy_generation = refit
        for owner, name, value in kept:
            setattr(owner, name, value)


def start_gym(config: Any, tokenizer: Any, url: str) -> Any:
    """Start NeMo-RL's own actor, which starts Gym's servers and ours."""
    from nemo_rl.environments.nemo_gym import spinup_nemo_gym_actor

    return spinup_nemo_gym_actor(
        config.env,
        base_urls=[url],
        model_name="policy",
        tokenizer=tokenizer,
        enable_router_replay=False,
        routed_experts_dtype="int16",
        use_fastokens=False,
    )


def read_config(tmp_path: Path) -> tuple[Any, Any]:
    """The trainer's config as NeMo-RL's script makes it of our YAML, and its tokenizer."""
    import nemo_rl.algorithms.grpo as grpo
    import nemo_rl.utils.memory_tracker as memory
    from nemo_rl.algorithms.utils import get_tokenizer
    from nemo_rl.environments.nemo_gym import setup_nemo_gym_config
    from nemo_rl.models.generation import configure_generation_config
    from nemo_rl.utils.config import load_config
    from omegaconf import OmegaConf

    memory.memory_summary = lambda **_: ""  # wants a dashboard
    config = grpo.MasterConfig(**OmegaConf.to_container(load_config(tmp_path / "nemo_rl.yaml"), resolve=True))
    tokenizer = get_tokenizer(config.policy["tokenizer"])
    config.policy["generation"] = configure_generation_config(config.policy["generation"], tokenizer)
    setup_nemo_gym_config(config, tokenizer)
    return config, tokenizer


@contextmanager
def gym_training(
    tmp_path: Path,
    url: str,
    say: Say,
    *,
    tasks: int = 1,
    prompts: int = 0,
    generations: int = 8,
    failure: FailurePolicy | None = None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Set a training up, the whole way from our YAML, its servers started; yields what trainers are called with, in
    order.
    """
    import nemo_rl.algorithms.grpo as grpo
    from nemo_rl.algorithms.loss import ClippedPGLossFn
    from nemo_rl.data.collate_fn import rl_collate_fn
    from nemo_rl.data.utils import setup_response_data
    from tests.envs.interfaces import nemo_rl_harness as harness
    from torchdata.stateful_dataloader import StatefulDataLoader

    failure, size = failure or FailurePolicy(max_ungraded_fraction=1.0), prompts or tasks
    raw = render_gym(tmp_path, url, tasks=tasks, prompts=size, generations=generations, failure=failure, **options)
    config, tokenizer = read_config(tmp_path)
    with serving_policy(tokenizer, say) as served, hooked_gym(raw, tmp_path):
        dataset, validated = setup_response_data(tokenizer, config.data, env_configs=None)
        if validated is not None:
            config.grpo.max_val_samples = config.grpo.val_batch_size = len(validated)
        generation = harness.StandInGeneration(tokenizer, lambda *_: "")
        generation.cfg = config.policy["generation"]
        loader = {"collate_fn": rl_collate_fn, "drop_last": True}
        environments = {"nemo_gym": start_gym(config, tokenizer, served.url)}
        try:
            yield {
                "policy": harness.StandIn(),
                "policy_generation": generation,
                "dataloader": StatefulDataLoader(dataset, batch_size=size, **loader),
                "val_dataloader": StatefulDataLoader(validated, batch_size=len(validated), **loader)
                if validated
                else None,
                "tokenizer": tokenizer,
                "loss_fn": ClippedPGLossFn(config.loss_fn),
                "task_to_env": environments,
                "val_task_to_env": environments,
                "logger": harness.Log(),
                "checkpointer": harness.StandIn(),
                "grpo_save_state": grpo._initial_grpo_save_state(),
                "master_config": config,
            }
        finally:
            grpo.shutdown_environments(environments, environments)


def train_gym(tmp_path: Path, url: str, say: Say, **options: Any) -> Any:
    """One step of ``grpo_train`` with rollouts by NeMo Gym."""
    import nemo_rl.algorithms.grpo as grpo
    from tests.envs.interfaces.nemo_rl_train import Trained

    with gym_training(tmp_path, url, say, **options) as parts:
        grpo.grpo_train(*parts.values())
    return Trained(parts["policy"].trained, parts["logger"].metrics, tmp_path / "run")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a ledger."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
