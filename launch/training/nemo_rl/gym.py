"""A training whose rollouts NeMo Gym makes: what NeMo-RL's config says of it, and what lies ready when Gym starts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gavel.envs.interfaces.nemo_gym import SEARCH_DIR
from gavel.envs.interfaces.nemo_rl.config import PREFIX
from gavel.envs.interfaces.nemo_rl.gym_process import AGENT, GROUP
from gavel.envs.interfaces.nemo_rl.prompts import list_gavel_entries
from gavel.models.codec import to_json
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.files import write_whole

MODEL, MODEL_CONFIG = "policy_model", "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
"""Gym's server before the policy, by the name that its own config for training gives it."""
ROOTS, VENVS = "NEMO_GYM_EXTRA_ROOTS", "NEMO_GYM_VENV_DIR"
"""Variables: where Gym looks for servers first; where NeMo-RL's image has the environments of Gym's servers."""
CHOICES: Mapping[str, Any] = {
    "grpo.max_val_samples": None,
    "policy.generation.vllm_cfg.expose_http_server": True,
    "policy.generation.vllm_cfg.skip_tokenizer_init": False,
}
"""Keys that a training with Gym demands: its script takes the whole validation set, and asks vLLM over HTTP."""


def make_agent(key: str) -> str:
    """Return the name of the agent that plays the rows of ``env.<key>``."""
    return f"{key}_agent"


def make_section(keys: Iterable[str], folder: Path) -> dict[str, Any]:
    """Return what stands beside our environments in the section ``env``.

    Args:
        keys: of the environments.
        folder: in the run's own, for Gym; ``prepare_gym`` fills it.
    """
    server = {"type": "responses_api_models", "name": MODEL}
    agents = {
        make_agent(key): {
            GROUP: {AGENT: {"entrypoint": "app.py", "gavel": str(folder / f"{key}.json"), "model_server": server}}
        }
        for key in keys
    }
    # Replies are graded as they were drawn, as in every other way of training; our graders know what thinking is.
    raw = {MODEL: {"responses_api_models": {"vllm_model": {"uses_reasoning_parser": False}}}}
    started = {"skip_venv_if_present": True, "uv_venv_dir": str(folder / "venvs")}
    gym = {"config_paths": [MODEL_CONFIG], **started, **raw, **agents}
    return {"should_use_nemo_gym": True, "should_mask_flagged_samples": True, "nemo_gym": gym}


def list_gym_findings(config: Mapping[str, Any], *, gym: bool) -> Iterator[ConfigError]:
    """Yield what does not fit between our data sets, our environments and the agents of the section ``env.nemo_gym``.

    Args:
        config: the trainer's, resolved.
        gym: whether NeMo Gym rolls out.
    """
    environments = config.get("env") or {}
    section = environments.get("nemo_gym") if isinstance(environments.get("nemo_gym"), Mapping) else {}
    for key, entry in list_gavel_entries(config.get("data") or {}):
        agent = entry.get("agent")
        if not gym and agent is not None:
            yield ConfigError(
                "an agent plays rows where NeMo Gym rolls out",
                field=f"{key}.agent",
                found=shorten_value(agent),
                allowed="null",
                remedy="leave it out, or choose trainer=nemo_rl_gym",
            )
        elif gym and agent not in (section or {}):
            yield ConfigError(
                "NeMo Gym gives a row to the agent that it names, and there is none of this name",
                field=f"{key}.agent",
                found=shorten_value(agent),
                allowed=make_agent(str(entry.get("env_name"))),
                remedy=f"describe it in env.nemo_gym, with {GROUP}.{AGENT}, or let `gavel train` write the config",
            )
    for name, value in environments.items() if gym else ():
        if str(name).startswith(PREFIX) and isinstance(value, Mapping) and value.get("check_workers"):
            yield ConfigError(
                "these are workers of NeMo-RL's Ray, of which NeMo Gym's agents are no part",
                field=f"env.{name}.check_workers",
                found=shorten_value(value["check_workers"]),
                allowed="0: checks run in processes beside the agent",
                remedy="trainer.check_workers=0",
            )


def prepare_gym(config: Mapping[str, Any]) -> None:
    """Write each agent's config, lay out the environments of Gym's servers, and let Gym find ours.

    Args:
        config: the trainer's, resolved.
    """
    gym = config["env"]["nemo_gym"]
    for key, value in config["env"].items():
        agent = gym.get(make_agent(str(key))) if str(key).startswith(PREFIX) else None
        if agent is not None:
            path = Path(agent[GROUP][AGENT]["gavel"])
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, to_json(value))
    if gym.get("uv_venv_dir"):
        _lay_out_venvs(Path(gym["uv_venv_dir"]))
    roots = [str(SEARCH_DIR), *os.environ.get(ROOTS, "").split(os.pathsep)]
    os.environ[ROOTS] = os.pathsep.join(dict.fromkeys(root for root in roots if root))


def _lay_out_venvs(folder: Path) -> None:
    """Give our agent the interpreter that runs this, and Gym's servers those of NeMo-RL's image, where it has them; Gym
    makes what is missing.
    """
    ours = folder / GROUP / AGENT / ".venv" / "bin"
    ours.mkdir(parents=True, exist_ok=True)
    write_whole(ours / "activate", b"")
    write_whole(ours / "python", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'.encode())
    (ours / "python").chmod(0o755)
    ready = os.environ.get(VENVS)
    for venv in sorted(Path(ready).glob("*/*/.venv")) if ready else ():
        link = folder / venv.relative_to(str(ready))
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(venv.absolute())
