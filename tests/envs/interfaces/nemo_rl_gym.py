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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

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


class Setup:
    """Stands in for NeMo-RL's ``setup``, which takes GPUs: makes loaders of what the script has loaded, serves the
    policy, and starts NeMo Gym as it does.
    """

    def __init__(self, say: Say, size: int) -> None:
        from tests.envs.interfaces import nemo_rl_harness as harness

        self.say, self.size = say, size
        self.policy, self.log = harness.StandIn(), harness.Log()
        self.open = ExitStack()
        self.tokenizer: Any = None

    def __call__(self, config: Any, tokenizer: Any, dataset: Any, validated: Any, processor: Any = None) -> Any:
        import nemo_rl.algorithms.grpo as grpo
        from nemo_rl.algorithms.loss import ClippedPGLossFn
        from nemo_rl.data.collate_fn import rl_collate_fn
        from tests.envs.interfaces import nemo_rl_harness as harness
        from torchdata.stateful_dataloader import StatefulDataLoader

        assert grpo.should_use_nemo_gym(config)
        self.tokenizer = tokenizer
        generation = harness.StandInGeneration(tokenizer, lambda *_: "")
        generation.cfg = config.policy["generation"]
        served = self.open.enter_context(serving_policy(tokenizer, self.say))
        made = {"collate_fn": rl_collate_fn, "drop_last": True}
        train = StatefulDataLoader(dataset, batch_size=self.size, **made)
        validation = StatefulDataLoader(validated, batch_size=config.grpo.val_batch_size, **made) if validated else None
        gym = start_gym(config, tokenizer, served.url)
        loss, state = ClippedPGLossFn(config.loss_fn), grpo._initial_grpo_save_state()
        logged = (loss, self.log, harness.StandIn(), state, config, None, None)
        return self.policy, generation, gym, None, train, validation, *logged


def run_gym(
    tmp_path: Path,
    url: str,
    say: Say,
    *,
    tasks: int = 1,
    prompts: int = 0,
    generations: int = 8,
    failure: FailurePolicy | None = None,
    make: Callable[[Say, int], Setup] | None = None,
    **options: Any,
) -> Setup:
    """Train from our YAML with NeMo-RL's own script for NeMo Gym, hooked as the wrapper hooks it."""
    import nemo_rl.algorithms.grpo as grpo
    import nemo_rl.distributed.virtual_cluster as cluster
    import nemo_rl.utils.memory_tracker as memory

    from gavel.launch.training.nemo_rl.main import run_script

    memory.memory_summary = lambda **_: ""  # wants a dashboard
    failure, size = failure or FailurePolicy(max_ungraded_fraction=1.0), prompts or tasks
    raw = render_gym(tmp_path, url, tasks=tasks, prompts=size, generations=generations, failure=failure, **options)
    made = (make or Setup)(say, size)
    kept = (grpo.setup, cluster.init_ray, sys.argv, Path.cwd())
    grpo.setup, cluster.init_ray = made, lambda *_: None
    try:
        with hooked_gym(raw, tmp_path), made.open:
            assert run_script(raw, tmp_path / "nemo_rl.yaml") == 0
    finally:
        grpo.setup, cluster.init_ray, sys.argv, folder = kept
        os.chdir(folder)
    return made


def train_gym(tmp_path: Path, url: str, say: Say, **options: Any) -> Any:
    """One step of ``grpo_train`` with rollouts by NeMo Gym."""
    from tests.envs.interfaces.nemo_rl_train import Trained

    made = run_gym(tmp_path, url, say, **options)
    return Trained(made.policy.trained, made.log.metrics, tmp_path / "run")


def train_gym_async(tmp_path: Path, url: str, say: Say, *, age: int = 1, **options: Any) -> Any:
    """Steps of ``async_grpo_train`` with rollouts by NeMo Gym: its collector, buffer and Gym's servers are real."""
    import nemo_rl.algorithms.async_utils as package
    import nemo_rl.algorithms.grpo as grpo
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from tests.envs.interfaces.nemo_rl_async import AsyncTrained, _read_row

    for name in ("ReplayBuffer", "AsyncTrajectoryCollector"):
        ACTOR_ENVIRONMENT_REGISTRY[f"nemo_rl.algorithms.async_utils.{name}"] = PY_EXECUTABLES.SYSTEM
    ahead = {"max_trajectory_age_steps": age, "in_flight_weight_updates": True}
    options["grpo"] = {**options.get("grpo", {}), "async_grpo": ahead}
    kept = (package.AsyncTrajectoryCollector, grpo.async_grpo_train)
    try:
        made = run_gym(tmp_path, url, say, kind="gym_async", **options)
    finally:
        package.AsyncTrajectoryCollector, grpo.async_grpo_train = kept
    trained = made.policy.trained
    steps = [[_read_row(batch, place, made.tokenizer) for place in range(batch.size)] for batch in trained]
    return AsyncTrained(steps, made.log.metrics, tmp_path / "run", trained)
