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
from gavel.judges.bindings import output_limit
from gavel.launch.assembly import asset_store
from gavel.launch.running.session import run_async, say
from gavel.launch.schema import ServeConfig
from gavel.launch.serving.gym import POLICY, gym_app, gym_line, played
from gavel.launch.serving.parts import Offer, offers_of, services_of
from gavel.launch.serving.schema import HttpConfig
from gavel.models.errors import ConfigError
from gavel.models.pool import ServicePool, open_services
from gavel.models.secrets import looks_like_a_key
from gavel.models.service import config_key
from gavel.models.transport import is_loopback_address

ENDED, DIED = 0, 4


def run(config: ServeConfig, console: Console) -> int:
    """Run the verb; see ``gavel serve --help``. Returns the exit code."""
    options = http_options(config.http)
    offers = offers_of(config)
    if config.dry_run:
        console.print(_plan(config, offers))
        return ENDED
    services_of(offers), played(config)
    return run_async(lambda: serve(config, options, offers, console), console)


async def serve(config: ServeConfig, options: HttpOptions, offers: list[Offer], console: Console) -> int:
    """Serve until SIGTERM or Ctrl-C, or until a server of ours dies.

    Returns:
        0 when it was told to end, 4 when a judge that was served here died.
    """
    store, replies = asset_store(config.assets), config.assets.replies
    folder = Path(config.run.dir or f"runs/serve-{time.strftime('%Y%m%d-%H%M%S')}")
    async with open_services(
        {**services_of(offers), **played(config)}, log_dir=folder / "logs", progress=lambda line: say(console, line),
        assets_cache=store.cache, mirror=store.mirror, offline=store.offline, replies=Path(replies) if replies else None,
    ) as pool:  # fmt: skip
        for offer in offers:
            offer.start(pool.models)
        app = gym_app(config, options, offers, pool.models, lambda: _loads(pool, offers))
        running = await Running.start(app, config.http.host, config.http.port, idle=config.http.idle_timeout)
        try:
            _announce(config, running, offers, console)
            return await _until_told(config, running, pool, console)
        finally:
            await running.close()


async def _until_told(config: ServeConfig, running: Running, pool: ServicePool, console: Console) -> int:
    """Wait for a signal or a death, then end; a second signal ends what is in flight at once."""
    asked, again = asyncio.Event(), asyncio.Event()

    def ask() -> None:
        (again if asked.is_set() else asked).set()

    _on_signals(ask)
    death = asyncio.create_task(pool.wait_failure())
    told = asyncio.create_task(asked.wait())
    await asyncio.wait({death, told}, return_when=asyncio.FIRST_COMPLETED)
    died = death.result() if death.done() else None
    for task in (death, told):
        task.cancel()
    asked.set()
    say(console, died.report if died else f"ending: what is in flight has {config.http.grace:g} s (once more ends it now)")
    hurry = asyncio.create_task(_hurry(running, again))
    late = await running.stop(config.http.grace)
    hurry.cancel()
    if late:
        say(console, f"{late} requests were answered 503 before they were done")
    return ENDED if died is None else DIED


async def _hurry(running: Running, again: asyncio.Event) -> None:
    await again.wait()
    await running.hurry()


def _on_signals(ask: Callable[[], None]) -> None:
    """Call ``ask`` at each signal from now on, until the loop closes: one that comes while services end must not break that off."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ask)


def http_options(config: HttpConfig) -> HttpOptions:
    """Return the bounds of the service, its key read from the variable.

    Raises:
        ConfigError: the variable is not set, or the service would be open to other machines without a key.
    """
    local = is_loopback_address(config.host)
    key = _key(config.api_key_env)
    if key is None and not local and not config.without_key:
        raise ConfigError(
            "other machines could use this service without a key", field="http.host", found=config.host,
            allowed="127.0.0.1, or any with http.api_key_env=VARIABLE",
            remedy="set http.api_key_env=VARIABLE, or http.without_key=true if the network is closed to others",
        )  # fmt: skip
    return HttpOptions(
        int(config.max_body_mib * MIB), config.max_in_flight, config.max_batch, config.body_timeout, api_key=key,
        loopback_hosts=local and key is None,
    )  # fmt: skip


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if looks_like_a_key(variable):
        raise ConfigError("this looks like a key itself", field="http.api_key_env", allowed="the name of the variable that holds it")
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(
            "the variable that should hold the key is not set", field="http.api_key_env", found=variable, remedy=f"export {variable}=…"
        )
    return value


def _loads(pool: ServicePool, offers: list[Offer]) -> Mapping[str, ServiceLoad]:
    names = dict.fromkeys(name for offer in offers for name in offer.assembly.services)
    return {config_key(name): ServiceLoad(*pool.load(name)) for name in names}


def _announce(config: ServeConfig, running: Running, offers: list[Offer], console: Console) -> None:
    key = f", key in {config.http.api_key_env}" if config.http.api_key_env else ""
    names = ", ".join(offer.name for offer in offers)
    say(
        console,
        f"serving {names} at {running.url} (POST /v1/NAME/grade, /step, /open; GET /openapi.json, /healthz{key}); Ctrl-C ends it",
    )
    say(console, gym_line(config, offers, config.http.host, running.port))


def _plan(config: ServeConfig, offers: list[Offer]) -> Table:
    table = Table("what", "how", title="dry run: nothing is started or asked", title_justify="left", show_edge=False)
    table.add_row("address", Text(f"{config.http.host}:{config.http.port}"))
    table.add_row("key", Text(f"in the variable {config.http.api_key_env}" if config.http.api_key_env else "none is asked for"))
    table.add_row(
        "bounds", f"{config.http.max_in_flight} items in flight, {config.http.max_batch} in a batch, {config.http.max_body_mib:g} MiB"
    )
    for offer in offers:
        table.add_row(f"/v1/{offer.name}", Text(f"{offer.config.env['name']}, reward {offer.config.reward.get('name')}"))
        for name, binding in offer.assembly.bindings.items():
            table.add_row("", Text(f"binding {name}: {config_key(binding.service)} grades with {binding.rubric.profile}"))
            table.add_row("", Text(output_limit(binding)))
    services = {name: service for offer in offers for name, service in offer.assembly.services.items()}
    for name, service in {**services, **({POLICY: config.policy} if config.gym.play else {})}.items():
        where = ", ".join(service.base_urls) if service.mode == "external" else "served by us"
        table.add_row(f"service {config_key(name)}", Text(f"{service.model} ({where})"))
    return table
