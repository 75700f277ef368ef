"""NeMo Gym's side of ``gavel serve``: its routes on the same service, and the policy where rows are played here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from gavel.envs.episode import Policy
from gavel.envs.interfaces.http.app import WORKS, build_app
from gavel.envs.interfaces.http.gate import HttpOptions
from gavel.envs.interfaces.http.records import ServiceLoad
from gavel.envs.interfaces.nemo_gym.gateway import Gateway
from gavel.envs.interfaces.nemo_gym.names import make_agent_name
from gavel.envs.interfaces.nemo_gym.routes import make_gym_routes
from gavel.envs.interfaces.served import ServedEnvironment
from gavel.envs.types import Result
from gavel.launch.config.schema import ServeConfig
from gavel.launch.serving.parts import Offer
from gavel.models.calls.transport import read_credentials
from gavel.models.service import Service, get_config_key
from gavel.models.types import ChatModel

POLICY = "policy"


def list_played(config: ServeConfig) -> dict[str, Service]:
    """Return the policy by its name where rows are played here, else nothing.

    Raises:
        ConfigError: a credential's variable is not set.
    """
    if not config.gym.play:
        return {}
    read_credentials(get_config_key(POLICY), config.policy)
    return {POLICY: config.policy}


def make_gym_app(
    config: ServeConfig,
    options: HttpOptions,
    offers: list[Offer],
    models: Mapping[str, ChatModel],
    loads: Callable[[], Mapping[str, ServiceLoad]],
) -> web.Application:
    """Return the service of these environments, Gym's routes with it; ``models`` are the started services by name."""
    policy = Policy(models[POLICY], config.policy.sampling) if config.gym.play else None
    served: dict[str, ServedEnvironment] = {offer.name: offer.make_served() for offer in offers}

    def record_result(name: str, result: Result) -> None:
        app[WORKS][name].tally.add(result)

    app = build_app(
        served,
        options,
        make_gym_routes(Gateway(served, policy, record_result), places=options.max_in_flight),
        loads=loads,
    )
    return app


def describe_gym(config: ServeConfig, offers: list[Offer], host: str, port: int) -> str:
    """Return how NeMo Gym is pointed at the service."""
    if not config.gym.play:
        return "NeMo Gym: POST /verify grades rows; gym.play=true policy.base_url=URL policy.model=NAME plays them, too"
    return (
        f"NeMo Gym: gym eval run --no-serve --agent {make_agent_name(offers[0].name)} --input ROWS.jsonl --output "
        f"OUT.jsonl "
        f"+head_server.host={host} +head_server.port={port}"
    )
