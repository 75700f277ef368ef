"""Every service of a config, started and callable by name; what is managed is served here and ended with the pool."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from gavel.models.calls.cache import ReplyCache, find_default_replies
from gavel.models.calls.client import ChatClient
from gavel.models.calls.guard import GuardedModel
from gavel.models.calls.meter import Meter
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.pinned import find_default_cache
from gavel.models.service import Service, get_config_key
from gavel.models.service_check import check_service
from gavel.models.types import ChatModel
from gavel.models.vllm import fleet
from gavel.models.vllm.server import ManagedServer, ServerDied


class ServicePool:
    """The started services; made by ``open_services``.

    Each service has one client here, whoever calls it: its limits hold for all environments of a process together.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        progress: Callable[[str], None],
        replies: Path | None = None,
        key: Callable[[str], str] = get_config_key,
    ) -> None:
        self._services, self._progress, self._key = services, progress, key
        self._cache: ReplyCache | None = None
        if any(service.cache for service in services.values()):
            self._cache = ReplyCache(replies or find_default_replies())
        self.meter = Meter()
        """What went over the network so far, over all services."""
        self._models: dict[str, GuardedModel] = {}
        self._urls: dict[str, tuple[str, ...]] = {}
        self._servers: list[ManagedServer] = []
        self._failure: ServerDied | None = None
        self._failed = asyncio.Event()

    @property
    def models(self) -> Mapping[str, ChatModel]:
        """Every service by name."""
        return dict(self._models)

    def get_model(self, name: str) -> ChatModel:
        """Return the service called ``name``.

        Raises:
            ConfigError: there is none; names those there are.
        """
        if name not in self._models:
            raise ConfigError("there is no such service", field=f"services.{name}", allowed=", ".join(self._models))
        return self._models[name]

    def read_load(self, name: str) -> tuple[int, int, str]:
        """Return a service's calls in flight, its calls that wait for admission, and why it cannot be called, empty if
        it can.
        """
        model = self._models[name]
        return model.in_flight, model.client.admission.waiting, model.client.router.problem or ""

    @property
    def servers(self) -> tuple[ManagedServer, ...]:
        """The servers that were started here."""
        return tuple(self._servers)

    def list_urls(self, name: str) -> tuple[str, ...]:
        """Return the base URLs of a service, one per replica."""
        return self._urls[name]

    def find_failure(self) -> ServerDied | None:
        """Return why a service cannot be called, or None: fewer of its replicas live than ``min_replicas``.

        For a managed service that is for good, and ``report`` has the end of the log; the replicas of an external one
        may come back.
        """
        return self._failure or next(
            (died for died in map(self._find_shortage, self._models.values()) if died is not None), None
        )

    async def wait_failure(self) -> ServerDied:
        """Return once too many servers of a managed service died, with the reason."""
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    async def start(self, *, log_dir: Path, assets: fleet.Assets) -> None:
        """Start what is managed, then make every service callable; used by ``open_services``."""
        managed = {name: service for name, service in self._services.items() if service.mode == "managed"}
        groups = fleet.group_services(managed, self._key)
        for name, service in self._services.items():
            if service.mode == "external":  # credentials are read now: a missing one must not cost a server's start
                self._models[name] = self._make_guarded(name, service.base_urls)
                self._urls[name] = service.base_urls
                if service.is_none:
                    reason = f"there is no model to be asked: none is chosen for {self._key(name)}"
                    self._models[name].fail_calls(ModelFailure(FailureKind.TRANSPORT_UNREACHABLE, reason))
        if not groups:
            return
        plans = await fleet.plan_servers(
            groups, assets=assets, log_dir=log_dir, progress=self._progress, environment=os.environ
        )
        started = await fleet.start_servers(plans, log_dir=log_dir, progress=self._progress)
        self._servers = [server for replicas in started.values() for server in replicas]
        for group in groups:
            self._enter_group(group, started[group.name])

    def _make_guarded(
        self, name: str, urls: tuple[str, ...], engine: str = "", tokenizer: Path | None = None
    ) -> GuardedModel:
        service = self._services[name]
        client = ChatClient(
            name,
            service,
            base_urls=urls,
            engine=engine,
            cache=self._cache if service.cache else None,
            meter=self.meter,
            progress=self._progress,
            key=self._key(name),
            tokenizer=tokenizer,
        )
        return GuardedModel(client, service)

    def _enter_group(self, group: fleet.Group, servers: list[ManagedServer]) -> None:
        urls = tuple(server.base_url for server in servers)
        plan = servers[0].plan
        other = "tokenizer" in (plan.service.engine_args or {})
        folder = Path(plan.model) if plan.local and not other else None
        guarded = [self._make_guarded(name, urls, plan.engine, folder) for name in group.names]
        self._models |= {model.name: model for model in guarded}
        self._urls |= dict.fromkeys(group.names, urls)

        def note_death(index: int, died: ServerDied) -> None:
            self._progress(died.reason)
            alive = sum(server.failure is None for server in servers)
            for model in guarded:
                model.client.router.lose_replica(index, died.reason)
                if alive < self._services[model.name].min_replicas:
                    model.fail_calls(died)
                    self._failure = self._failure or died
                    self._failed.set()

        for index, server in enumerate(servers):
            server.notify_death(partial(note_death, index))

    def _find_shortage(self, model: GuardedModel) -> ServerDied | None:
        problem = model.client.router.problem
        if problem is None:
            return None
        died = ServerDied(FailureKind.TRANSPORT_UNREACHABLE, f"{self._key(model.name)}: {problem}")
        died.report = died.reason
        return died

    async def close(self) -> None:
        """Close every connection and the kept replies, and end every server."""
        try:
            for model in self._models.values():
                await model.close()
            if self._cache is not None:
                self._cache.close()
                if self._cache.problem is not None:
                    self._progress(self._cache.problem)
        finally:
            await fleet.stop_servers(self._servers)


@asynccontextmanager
async def open_services(
    services: Mapping[str, Service],
    *,
    log_dir: Path,
    progress: Callable[[str], None],
    assets_cache: Path | None = None,
    mirror: Path | None = None,
    offline: bool = False,
    replies: Path | None = None,
    key: Callable[[str], str] = get_config_key,
) -> AsyncIterator[ServicePool]:
    """Check and start services; end everything that was started when the block ends, however it does.

    Managed services whose launch is the same share one server. Servers start at the same time.

    Args:
        services: by name.
        log_dir: directory for the servers' logs, e.g. the run folder.
        progress: told each step of the start, and each server's death, one line each.
        assets_cache: directory for pinned files and embedded models; None: the user's cache.
        mirror: directory looked into before any download.
        offline: forbids downloads.
        replies: file of the replies that services with ``cache`` keep; None: ``find_default_replies``.
        key: tells where the config has a service, for errors and progress.

    Raises:
        ConfigError: a service cannot work as configured, or not on this machine; the replies would lie on a network
            file system.
        AssetError, EmbeddedError: an embedded model cannot be had.
        ServerError: a server did not become ready; has the end of its log.
    """
    for name, service in services.items():
        check_service(key(name), service)
    pool = ServicePool(services, progress, replies, key)
    try:
        await pool.start(log_dir=log_dir, assets=fleet.Assets(assets_cache or find_default_cache(), mirror, offline))
        yield pool
    finally:
        await pool.close()
