"""Environments, reward policies and sources by name: one line each, imported when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from gavel.envs.entries import Entry as Entry
from gavel.envs.entries import SourceEntry as SourceEntry
from gavel.envs.plugins import find_added, find_note
from gavel.envs.sources import SourceAdapter
from gavel.envs.types import Environment, EnvironmentInfo, HasInfo, RewardPolicy, Task
from gavel.judges.types import Judge
from gavel.models.codec import decode
from gavel.models.errors import ConfigError, GavelError, find_nearest, shorten_value
from gavel.models.types import ChatModel

E = TypeVar("E")


_ABSTENTION = "gavel.envs.abstention"
_VERA_MH = "gavel.envs.vera_mh"
_INSTRUCTIONS = "gavel.envs.instruction_following"
_JUDGED = "gavel.envs.judged"

ENVIRONMENTS: Mapping[str, Entry] = {
    "abstention": Entry(f"{_ABSTENTION}.environment", "AbstentionConfig", "build"),
    "vera_mh": Entry(f"{_VERA_MH}.environment", "VeraMhConfig", "build"),
    "instruction_following": Entry(f"{_INSTRUCTIONS}.environment", "InstructionFollowingConfig", "build"),
    "judged": Entry(f"{_JUDGED}.environment", "JudgedConfig", "build"),
}
REWARDS: Mapping[str, Entry] = {
    "tiered": Entry(f"{_ABSTENTION}.rewards", "TieredConfig", "make_tiered"),
    "omniscience": Entry(f"{_ABSTENTION}.rewards", "OmniscienceConfig", "make_omniscience"),
    "vera": Entry(f"{_VERA_MH}.rewards", "VeraConfig", "make_vera"),
    **{
        name: Entry(f"{_INSTRUCTIONS}.rewards", "AggregateConfig", f"make_{name}")
        for name in ("all", "any", "mean", "min", "max", "weighted", "hard_soft")
    },
    "graded": Entry(f"{_JUDGED}.rewards", "GradedConfig", "graded"),
}
SOURCES: Mapping[str, SourceEntry] = {
    "nemo_gym": SourceEntry("gavel.envs.interfaces.nemo_gym.rows", "GymRows", None),
    "nemo_abstention_v1": SourceEntry(f"{_ABSTENTION}.source", "NemoAbstentionV1", "abstention"),
    "verifif": SourceEntry(f"{_INSTRUCTIONS}.source", "Verifif", "instruction_following"),
    "ifeval": SourceEntry(f"{_INSTRUCTIONS}.source_ifeval", "IfEval", "instruction_following"),
    "rows": SourceEntry(f"{_JUDGED}.source", "PlainRows", "judged"),
}

GENERATORS: Mapping[str, Entry] = {"vera_mh": Entry(f"{_VERA_MH}.preparing", "VeraMhSource", "VeraMhTasks")}
"""Environments whose tasks are made from pinned assets alone; ``config`` is what the group ``source`` may say about
it.
"""


class Generator(Protocol):
    """Makes an environment's tasks without a source file."""

    @property
    def services(self) -> tuple[str, ...]:
        """The services that must be running for it."""
        ...

    async def tasks(self, services: Mapping[str, ChatModel]) -> tuple[Task, ...]:
        """Return the tasks; the same config gives the same ones unless a model had to be asked."""
        ...

    def contents(self, tasks: Sequence[Task]) -> Mapping[str, bytes]:
        """Return the files of a prepared folder by name, the manifest last."""
        ...


def can_generate(env: Mapping[str, Any]) -> bool:
    """Tell whether an environment's tasks can be made without a source file."""
    return env.get("name") in GENERATORS


def make_generator(env: Mapping[str, Any], source: Mapping[str, Any], judge: Judge) -> Generator:
    """Return what makes the tasks of the environment ``env["name"]``, one of ``GENERATORS``.

    ``source`` holds its options if it bears the environment's name; any other source says nothing about it.

    Raises:
        ConfigError: an unknown environment or option.
    """
    options, _ = _read_options("env", env, ENVIRONMENTS)
    _check_binding(_read_info(options), judge)
    cls, make = GENERATORS[env["name"]].load_parts()
    own = decode(cls, dict(source), prefix="source", error=ConfigError) if source.get("name") == env["name"] else cls()
    return cast("Generator", make(options, own, judge))


def describe_environment(env: Mapping[str, Any]) -> EnvironmentInfo:
    """Return what the options of an environment say that it needs, before it is made: their ``info``, the defaults
    without.

    Raises:
        ConfigError: an unknown environment or option.
    """
    options, _ = _read_options("env", env, ENVIRONMENTS)
    return _read_info(options)


CONTENT_NOTES: Mapping[str, str] = {"vera_mh": "these conversations are about suicide risk"}
"""Environments whose transcripts are shown folded, under this note, until somebody asks for them: in ``inspect`` and in
reports.
"""


def find_content_note(env: Mapping[str, Any]) -> str | None:
    """Return what the transcripts of the environment ``env["name"]`` should not be shown without, or None."""
    name = str(env.get("name"))
    return CONTENT_NOTES.get(name) or (None if name in ENVIRONMENTS else find_note(name))


UPSTREAMS: Mapping[str, tuple[str, str]] = {"vera_mh": (f"{_VERA_MH}.calibrate", "compare_upstream")}
"""Environments that can be compared with a checkout of the code they follow: module and function, which takes the
environment, the run's results, the checkout's folder, and ``run`` and ``python`` by name; what it returns has
``identical`` and ``describe_lines()``."""


def find_upstream_comparison(env: Mapping[str, Any]) -> Any:
    """Return the function that compares a run of the environment ``env["name"]`` with its upstream's own code.

    Raises:
        ConfigError: it follows nobody's code.
    """
    if env.get("name") not in UPSTREAMS:
        raise ConfigError(
            "this environment has no upstream to be compared with",
            field="upstream",
            found=f"env={env.get('name')}",
            allowed=", ".join(f"env={name}" for name in UPSTREAMS),
            remedy="leave upstream out",
        )
    module, function = UPSTREAMS[env["name"]]
    return getattr(import_module(module), function)


CONTROLS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "abstention": (f"{_ABSTENTION}.controls", "list_abstention_controls", {"name": "tiered"}),
    "instruction_following": (f"{_INSTRUCTIONS}.controls", "list_instruction_controls", {"name": "all"}),
}
"""Known answers for a whole environment: module, function, and the reward policy their rewards are of."""


def make_environment(config: Mapping[str, Any], judge: Judge, services: Mapping[str, ChatModel]) -> Environment:
    """Make the environment ``config["name"]`` with the other keys as its options.

    Raises:
        ConfigError: an unknown name or option, with the nearest valid ones.
    """
    options, make = _read_options("env", config, ENVIRONMENTS)
    _check_binding(_read_info(options), judge)
    made = make(options, judge, services)
    if not isinstance(made, HasInfo):
        raise ConfigError(
            "this environment does not say what it needs",
            field="env.name",
            found=f"{config['name']}, a {type(made).__name__}",
            allowed="an environment with `info`, an EnvironmentInfo",
            remedy="give its class `info = EnvironmentInfo(policy_turns=1)`, with the most replies of one episode",
        )
    _check_binding(made.info, judge)
    return cast("Environment", made)


def _read_info(options: object) -> EnvironmentInfo:
    return options.info if isinstance(options, HasInfo) else EnvironmentInfo()


def _check_binding(info: EnvironmentInfo, judge: Judge) -> None:
    for binding in (info.binding, *info.also_binds):
        try:
            if binding is not None:
                judge.rubric(binding)
        except ConfigError as failed:
            remedy = failed.remedy or f"name one of these, or declare it: judging.bindings.{binding}.judge=general …"
            raise failed.copy_with(field="env.binding", found=binding or "", remedy=remedy) from None


def make_reward(config: Mapping[str, Any]) -> RewardPolicy:
    """Make the reward policy ``config["name"]`` with the other keys as its options.

    Raises:
        ConfigError: an unknown name or option, with the nearest valid ones; numbers that do not fit together.
    """
    options, make = _read_options("reward", config, REWARDS)
    return cast("RewardPolicy", make(options))


def find_reward(config: Mapping[str, Any]) -> RewardPolicy | None:
    """Make the reward policy that a run was rewarded by; None where it cannot be made here (its package is not
    installed).
    """
    try:
        return make_reward(config)
    except GavelError:
        return None


def check_reward(env: object, config: Mapping[str, Any]) -> None:
    """Refuse a reward policy of ours that belongs to another environment of ours; of outside ones it is not known what
    they take.

    Raises:
        ConfigError: names the rewards of the environment.
    """
    name = config.get("name")
    if env not in ENVIRONMENTS or name not in REWARDS:
        return
    own = reward_names(str(env))
    if name not in own:
        other = next(other for other in ENVIRONMENTS if name in reward_names(other))
        raise ConfigError(
            "this reward is another environment's",
            field="reward.name",
            found=f"{name} (for env={other})",
            allowed=", ".join(own),
            remedy=f"choose one of env={env}: reward={own[0]}",
        )


def reward_names(env: str) -> list[str]:
    """Return the reward policies that stand in the same package as an environment; none where it is not known here any
    more.
    """
    ours = env in ENVIRONMENTS
    environments, rewards = (ENVIRONMENTS, REWARDS) if ours else (find_added("env"), find_added("reward"))
    folder = environments[env].module.rpartition(".")[0] if env in environments else None
    return [name for name, reward in rewards.items() if reward.module.rpartition(".")[0] == folder]


def _read_options(group: str, config: Mapping[str, Any], table: Mapping[str, Entry]) -> tuple[Any, Any]:
    entry = choose_entry(group, config.get("name"), table)
    cls, make = entry.load_parts()
    rest = {key: value for key, value in config.items() if key != "name"}
    return decode(cls, rest, prefix=group, error=ConfigError), make


def load_source(name: str, env: str | None = None) -> SourceAdapter:
    """Return the adapter of the source ``name``.

    Raises:
        ConfigError: there is none, or it adapts rows for another environment than ``env``.
    """
    entry = choose_entry("source", name, SOURCES)
    if env is not None and entry.env not in (env, None):
        raise ConfigError(
            "this source is another environment's",
            field="source.name",
            found=f"{name} (for env={entry.env})",
            allowed=f"a source for env={env}",
        )
    return entry.load_adapter(env)


def list_sources(env: str) -> tuple[SourceAdapter, ...]:
    """Return the adapters of an environment's sources."""
    own = SOURCES if env in ENVIRONMENTS else {**SOURCES, **find_added("source")}
    return tuple(entry.load_adapter(env) for entry in own.values() if entry.env in (env, None))


def choose_entry(group: str, name: object, table: Mapping[str, E]) -> E:
    """Return the entry called ``name``: ours, or one that an installed package adds.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    if isinstance(name, str) and name in table:
        return table[name]
    table = {**find_added(group), **table}
    if isinstance(name, str) and name in table:
        return table[name]
    near = find_nearest(str(name), table)
    raise ConfigError(
        f"there is no such {group}",
        field=f"{group}.name",
        found=shorten_value(name),
        allowed=", ".join(table),
        remedy=f"did you mean {group}={near[0]}?" if near else f"choose one: {group}={next(iter(table))}",
    )
