"""``gavel serve``: the environments of a composition over HTTP, until it is told to end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gavel.envs.interfaces.http.gate import MIB, HttpOptions
from gavel.envs.interfaces.http.records import ServiceLoad
from gavel.envs.interfaces.http.running import Running
from gavel.judges.bindings import describe_judges, describe_output_limit
from gavel.launch.assembly.assemble import make_asset_store
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import ServeConfig
from gavel.launch.config.serving_schema import HttpConfig
from gavel.launch.rollout.session import run_async
from gavel.launch.serving.gym import POLICY, describe_gym, list_played, make_gym_app
from gavel.launch.serving.parts import Offer, list_services, make_offers
from gavel.models.calls.transport import is_loopback_address
from gavel.models.errors import ConfigError
from gavel.models.pool import ServicePool, open_services
from gavel.models.secrets import is_likely_key
from gavel.models.service import get_config_key

ENDED, DIED = 0, 4


def run(config: ServeConfig, console: Console) -> int:
    """Run the verb; see ``gavel serve --help``. Returns the exit code."""
    options = read_http_options(config.http)
    offers = make_offers(config)
    if config.dry_run:
        console.print(_make_plan_table(config, offers))
        return ENDED
    list_services(offers), list_played(config)
    return run_async(lambda: serve_environments(config, options, offers, console), console)


async def serve_environments(config: ServeConfig, options: HttpOptions, offers: list[Offer], console: Console) -> int:
    """Serve until SIGTERM or Ctrl-C, or until a server of ours dies.

    Returns:
        0 when it was told to end, 4 when a judge that was served here died.
    """
    store, replies = make_asset_store(config.assets), config.assets.replies
    folder = Path(config.run.dir or f"runs/serve-{time.strftime('%Y%m%d-%H%M%S')}")
    async with open_services(
        {**list_services(offers), **list_played(config)},
        log_dir=folder / "logs",
        progress=lambda line: print_line(console, line),
        assets_cache=store.cache,
        mirror=store.mirror,
        offline=store.offline,
        replies=Path(replies) if replies else None,
    ) as pool:
        for offer in offers:
            offer.set_models(pool.models)
        app = make_gym_app(config, options, offers, pool.models, lambda: _read_loads(pool, offers))
        running = await Running.start(app, config.http.host, config.http.port, idle=config.http.idle_timeout)
        try:
            _announce_service(config, running, offers, console)
            return await _wait_told(config, running, pool, console)
        finally:
            await running.close()


async def _wait_told(config: ServeConfig, running: Running, pool: ServicePool, console: Console) -> int:
    """Wait for a signal or a death, then end; a second signal ends what is in flight at once."""
    asked, again = asyncio.Event(), asyncio.Event()

    def ask_end() -> None:
        (again if asked.is_set() else asked).set()

    _call_on_signals(ask_end)
    death = asyncio.create_task(pool.wait_failure())
    told = asyncio.create_task(asked.wait())
    await asyncio.wait({death, told}, return_when=asyncio.FIRST_COMPLETED)
    died = death.result() if death.done() else None
    for task in (death, told):
        task.cancel()
    asked.set()
    print_line(
        console,
        died.report if died else f"ending: what is in flight has {config.http.grace:g} s (once more ends it now)",
    )
    hurry = asyncio.create_task(_stop_at_once(running, again))
    late = await running.stop(config.http.grace)
    hurry.cancel()
    if late:
        print_line(console, f"{late} requests were answered 503 before they were done")
    return ENDED if died is None else DIED


async def _stop_at_once(running: Running, again: asyncio.Event) -> None:
    await again.wait()
    await running.cut_requests()


def _call_on_signals(ask: Callable[[], None]) -> None:
    """Call ``ask`` at each signal from now on, until the loop closes: one that comes while services end must not break
    that off.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ask)


def read_http_options(config: HttpConfig) -> HttpOptions:
    """Return the bounds of the service, its key read from the variable.

    Raises:
        ConfigError: the variable is not set, or the service would be open to other machines without a key.
    """
    local = is_loopback_address(config.host)
    key = _read_key(config.api_key_env)
    if key is None and not local and not config.without_key:
        raise ConfigError(
            "other machines could use this service without a key",
            field="http.host",
            found=config.host,
            allowed="127.0.0.1, or any with http.api_key_env=VARIABLE",
            remedy="set http.api_key_env=VARIABLE, or http.without_key=true if the network is closed to others",
        )
    return HttpOptions(
        int(config.max_body_mib * MIB),
        config.max_in_flight,
        config.max_batch,
        config.body_timeout,
        api_key=key,
        loopback_hosts=local and key is None,
    )


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if is_likely_key(variable):
        raise ConfigError(
            "this looks like a key itself", field="http.api_key_env", allowed="the name of the variable that holds it"
        )
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(
            "the variable that should hold the key is not set",
            field="http.api_key_env",
            found=variable,
            remedy=f"export {variable}=…",
        )
    return value


def _read_loads(pool: ServicePool, offers: list[Offer]) -> Mapping[str, ServiceLoad]:
    names = dict.fromkeys(name for offer in offers for name in offer.assembly.services)
    return {get_config_key(name): ServiceLoad(*pool.read_load(name)) for name in names}


def _announce_service(config: ServeConfig, running: Running, offers: list[Offer], console: Console) -> None:
    key = f", key in {config.http.api_key_env}" if config.http.api_key_env else ""
    names = ", ".join(offer.name for offer in offers)
    print_line(
        console,
        f"serving {names} at {running.url} (POST /v1/NAME/grade, /step, /open; GET /openapi.json, /healthz{key}); "
        f"Ctrl-C ends it",
    )
    print_line(console, describe_gym(config, offers, config.http.host, running.port))


def _make_plan_table(config: ServeConfig, offers: list[Offer]) -> Table:
    table = Table("what", "how", title="dry run: nothing is started or asked", title_justify="left", show_edge=False)
    table.add_row("address", Text(f"{config.http.host}:{config.http.port}"))
    table.add_row(
        "key", Text(f"in the variable {config.http.api_key_env}" if config.http.api_key_env else "none is asked for")
    )
    table.add_row(
        "bounds",
        f"{config.http.max_in_flight} items in flight, {config.http.max_batch} in a batch, "
        f"{config.http.max_body_mib:g} MiB",
    )
    for offer in offers:
        table.add_row(
            f"/v1/{offer.name}", Text(f"{offer.config.env['name']}, reward {offer.config.reward.get('name')}")
        )
        for name, binding in offer.assembly.bindings.items():
            table.add_row("", Text(f"binding {name}: {describe_judges(binding)} grades with {binding.rubric.profile}"))
            table.add_row("", Text(describe_output_limit(binding)))
    services = {name: service for offer in offers for name, service in offer.assembly.services.items()}
    for name, service in {**services, **({POLICY: config.policy} if config.gym.play else {})}.items():
        where = ", ".join(service.base_urls) if service.mode == "external" else "served by us"
        table.add_row(f"service {get_config_key(name)}", Text(f"{service.model} ({where})"))
    return table
