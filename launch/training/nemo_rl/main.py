"""The wrapper entrypoint: registers our environments, installs the hooks, runs the stock script of the user's NeMo-RL
checkout.

    python -m gavel.launch.nemo_rl_main --config runs/first/nemo_rl.yaml [--check]

``--check`` stops after the preflight. The config is the YAML of ``gavel.launch.training.nemo_rl.config``, or one
written by hand; its section ``gavel`` names the checkout. Config alone cannot register an environment, and
``examples/`` is no part of NeMo-RL's package, hence this.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

import gavel
from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.async_driver import AsyncDriver
from gavel.envs.interfaces.nemo_rl.collector_hooks import install_async_training
from gavel.envs.interfaces.nemo_rl.config import PREFIX, build_parts, read_config
from gavel.envs.interfaces.nemo_rl.controller_hooks import install_single_controller
from gavel.envs.interfaces.nemo_rl.driver import Driver
from gavel.envs.interfaces.nemo_rl.gym_driver import GymAsyncDriver, GymDriver, install_gym_training
from gavel.envs.interfaces.nemo_rl.hooks import install_hooks
from gavel.envs.interfaces.nemo_rl.ledger import StepLedger
from gavel.envs.interfaces.nemo_rl.modes import settle_kind
from gavel.envs.interfaces.nemo_rl.register import register_environments
from gavel.envs.interfaces.nemo_rl.threads import widen_executor
from gavel.envs.types import Environment
from gavel.launch.training.nemo_rl.arithmetic import find_contradictions
from gavel.launch.training.nemo_rl.checkout import is_checkout, read_checkout, require_contract
from gavel.launch.training.nemo_rl.config import KINDS, settle_config
from gavel.launch.training.nemo_rl.gym import prepare_gym
from gavel.launch.training.nemo_rl.interpreter import describe_failures, run_toy_group
from gavel.launch.training.nemo_rl.preflight import list_findings
from gavel.launch.training.nemo_rl.recipe import load_exemplar, to_text
from gavel.launch.training.trainer import SECTION
from gavel.models.errors import ConfigError, GavelError
from gavel.models.files import write_whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run the entrypoint; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="gavel.launch.nemo_rl_main", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--check", action="store_true", help="stop after the preflight")
    options = parser.parse_args(argv)
    try:
        config = read_yaml(options.config)
        root = Path(config[SECTION]["nemo_rl_root"]).expanduser()
        if is_checkout(root):
            kind = settle_config(config)
            require_contract(read_checkout(root), asynchronous=kind.overlapping, gym=kind.gym)
        problems: list[GavelError] = [*list_findings(config), *(find_contradictions(config) if options.check else ())]
        if options.check and not problems and is_checkout(root):
            toy = describe_failures(run_toy_group(sys.executable, (str(Path(gavel.__file__).parent.parent), str(root))))
            if toy:
                place = f"{SECTION}.nemo_rl_root"
                problems.append(ConfigError(f"a toy group through the hooks of this checkout: {toy}", field=place))
        if problems:
            told = "\n\n".join(map(str, problems))
            sys.stderr.write(f"{len(problems)} findings in {options.config}; nothing was started:\n\n{told}\n")
            return ConfigError.exit_code
        if options.check:
            sys.stderr.write("preflight: nothing was found wrong\n")
            return 0
        prepare_trainer(config)
    except GavelError as failed:
        sys.stderr.write(f"{failed}\n")
        return failed.exit_code
    return run_script(config, resolve_config(config, options.config))


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the emitted YAML, or one written by hand: ``defaults`` are merged in and interpolations resolved, as NeMo-RL
    does.

    Raises:
        ConfigError: it is not there, no YAML, not ours, or cannot be resolved.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as failed:
        raise ConfigError("the config cannot be read", where=str(path), found=str(failed.strerror)) from None
    except yaml.YAMLError as failed:
        raise ConfigError("the config is not YAML", where=str(path), found=str(failed)) from None
    section = raw.get(SECTION) if isinstance(raw, dict) else None
    if not isinstance(section, dict) or not {"nemo_rl_root", "run_dir"} <= section.keys():
        raise ConfigError(
            "this config does not say what gavel needs",
            where=str(path),
            field=SECTION,
            allowed="a section with nemo_rl_root and run_dir",
            remedy=f"let `gavel train` write it, or add {SECTION}: {{nemo_rl_root: …, run_dir: …}}",
        )
    config = yaml.safe_load(to_text(load_exemplar(path)))
    config[SECTION].setdefault("kind", "grpo")
    assert isinstance(config, dict)
    return config


def resolve_config(config: Mapping[str, Any], path: Path) -> Path:
    """Return the file that the script is given: ``path``, or a resolved copy in the run's folder where it was not
    resolved.
    """
    if yaml.safe_load(path.read_text(encoding="utf-8")) == config:
        return path
    copy = Path(config[SECTION]["run_dir"]).expanduser() / "nemo_rl.resolved.yaml"
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_whole(copy, yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=120).encode())
    return copy


def prepare_trainer(config: Mapping[str, Any]) -> None:
    """Make NeMo-RL importable here and in its workers, then register and hook; the script is not imported yet.

    Raises:
        ConfigError: this NeMo-RL lacks what the hooks need.
    """
    section = config[SECTION]
    root = str(Path(section["nemo_rl_root"]))
    ours = str(Path(gavel.__file__).parent.parent)
    # Actors get a copy of the driver's environment; without this their interpreter may not find us.
    paths = [ours, root, *(part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    if root not in sys.path:
        sys.path.insert(0, root)
    names = [name for name in config["env"] if str(name).startswith(PREFIX)]
    register_environments(names)
    widen_executor()
    INSTALLERS[settle_kind(config, section["kind"])](config, names, _choose_failure_policy(config, names))


def _install_synchronous(config: Mapping[str, Any], names: Sequence[str], failure: FailurePolicy) -> None:
    joins = bool((config.get("grpo") or {}).get("use_dynamic_sampling"))
    install_hooks(Driver(config["policy"], failure, _open_steps(config), joins=joins, several=len(names) > 1))


def _install_asynchronous(config: Mapping[str, Any], names: Sequence[str], failure: FailurePolicy) -> None:
    install_async_training(AsyncDriver(config["policy"], failure, _open_steps(config), several=len(names) > 1))


def _install_gym(config: Mapping[str, Any], names: Sequence[str], failure: FailurePolicy) -> None:
    prepare_gym(config)
    environments: dict[str, Environment] = {}
    for name in names:
        actor = read_config(config["env"][name], name=name)
        environment = build_parts(actor)[0].environment
        environments[actor.name or environment.name] = environment
    own: dict[str, Any] = {"environments": environments, "several": len(names) > 1}
    if settle_config(config).overlapping:
        install_gym_training(GymAsyncDriver(config["policy"], failure, _open_steps(config), **own))
        return
    joins = bool((config.get("grpo") or {}).get("use_dynamic_sampling"))
    install_gym_training(GymDriver(config["policy"], failure, _open_steps(config), joins=joins, **own))


def _install_controller(config: Mapping[str, Any], _: Sequence[str], failure: FailurePolicy) -> None:
    install_single_controller(config["policy"], failure)


def _open_steps(config: Mapping[str, Any]) -> StepLedger:
    return StepLedger(Path(config[SECTION]["run_dir"]).expanduser() / "ledger")


INSTALLERS: Mapping[str, Callable[[Mapping[str, Any], Sequence[str], FailurePolicy], None]] = {
    "grpo": _install_synchronous,
    "grpo_async": _install_asynchronous,
    "gym": _install_gym,
    "gym_async": _install_gym,
    "single_controller": _install_controller,
}
"""What hooks a kind of training (see ``settle_kind``); each gets the names of our environments."""


def run_script(config: Mapping[str, Any], path: Path) -> int:
    """Run the stock script as if it had been started itself; return the exit code."""
    section = config[SECTION]
    root = Path(section["nemo_rl_root"])
    script = root / KINDS[section["kind"]].script
    sys.argv = [str(script), "--config", str(path.resolve())]
    os.chdir(root)  # its exemplars name files relative to the checkout
    try:
        runpy.run_path(str(script), run_name="__main__")
    except GavelError as failed:
        sys.stderr.write(f"{failed}\n")
        return failed.exit_code
    return 0


def _choose_failure_policy(config: Mapping[str, Any], names: Sequence[str]) -> FailurePolicy:
    """Return the one failure policy of all environments: a step is of all of them."""
    policies = {name: read_config(config["env"][name], name=name).failure for name in names}
    first = next(iter(policies.values()))
    for name, policy in policies.items():
        if policy != first:
            raise ConfigError(
                "environments of one trainer share a failure policy",
                field=f"env.{name}.failure",
                found=str(policy),
                allowed=str(first),
            )
    return first


if __name__ == "__main__":
    sys.exit(main())
