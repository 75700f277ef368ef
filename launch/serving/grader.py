"""``gavel.Grader``: a composition from Python. Its judge is opened once, and many replies are graded, as a rollout
would grade them.

The words are those of a command line, and they are checked as the commands check them. What fails while grading is a
``Result`` without a reward, never an exception that a trainer could take for one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from gavel.envs.interfaces.served import Said, ServedEnvironment
from gavel.envs.types import Digests, Environment, Result, RewardPolicy, Task
from gavel.launch.compose.compose import compose_config
from gavel.launch.compose.overrides import read_head
from gavel.launch.config.schema import ServeConfig
from gavel.launch.serving.parts import Offer, list_services, make_offers
from gavel.models.closing import Closing
from gavel.models.codec import compute_digest
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.loop_thread import LoopThread
from gavel.models.pool import open_services

T = TypeVar("T")
Row = Task | Mapping[str, Any]
"""What a reply is graded against: a row of ours, or one of a source of the environment."""

_WITHOUT_EFFECT = ("policy", "http", "gym", "also", "name", "dry_run")
"""Keys of ``gavel serve`` that decide no grade."""
_NAMES_A_JUDGE = ("judge", "experiment")
_AT_ONCE = 256
"""Replies in work at once; each judge's own ``max_in_flight`` bounds its calls below that."""


class Grader(Closing):
    """Grades replies with the environment, judge and reward of one composition.

    Use it with ``with`` or ``async with``, or call ``close`` at the end. The judge is opened at the first grade, in a
    thread of its own, so that one grader serves several threads and event loops. In a child forked from its process it
    opens its judge anew. The log of a judge that is served here is removed at the end; ``run.dir=DIR`` keeps it.

    Args:
        words: of a command line: ``env=instruction_following``, ``reward=mean``, ``judge=external``,
            ``judge.base_url=…``. Where none names a judge, none is asked: a task that needs one is ungraded.
        config_dirs: folders of own configs, as ``--config-dir``.

    Raises:
        ConfigError: a word does not fit; names the key and what is allowed.
        AssetError: a rubric's pinned text is missing or has drifted.
    """

    def __init__(self, *words: str, config_dirs: Iterable[str | Path] = ()) -> None:
        _check_words(words)
        alone = () if any(read_head(word) in _NAMES_A_JUDGE for word in words) else ("judge=none",)
        config: ServeConfig = compose_config("serve", (*alone, *words), config_dirs)
        (offer,) = make_offers(config)
        self._take_services(offer.make_served(), _Services(config, offer))

    @classmethod
    def of(cls, environment: Environment, reward: RewardPolicy) -> Self:
        """Return a grader of an environment and a reward policy that were made already, such as ones under development.

        What is graded against are ``Task`` objects, with the target that the environment takes.
        """
        made = cls.__new__(cls)
        digests = Digests(compute_digest([environment.name, type(reward).__qualname__]), {})
        made._take_services(ServedEnvironment(environment.name, environment, reward, {}, digests), None)
        return made

    def _take_services(self, served: ServedEnvironment, services: _Services | None) -> None:
        self._served, self._services = served, services
        self._thread = LoopThread("gavel-grader")
        weakref.finalize(self, _close_grader, self._thread, services)

    def grade(self, task: Row, said: Said, *, rollout_index: int = 0) -> Result:
        """Grade what a policy said.

        Args:
            task: a row of ``tasks.jsonl``, or of a source of this environment as it stands in its file.
            said: the text of one reply, a ``Reply`` (which also says how it ended), or every message, the task's own
                first.
            rollout_index: which draw of the task this is, from 0.

        Returns:
            Status ``graded`` with a reward; ``judge_error`` or ``invalid_task`` with a typed failure and no reward.

        Raises:
            GavelError: a judge that is served here did not start.
        """
        return self._thread.run(self._grade_reply(task, said, rollout_index))

    async def grade_async(self, task: Row, said: Said, *, rollout_index: int = 0) -> Result:
        """Grade as ``grade`` does, from any event loop."""
        return await self._wait_result(self._grade_reply(task, said, rollout_index))

    def grade_many(self, items: Iterable[tuple[Row, Said]]) -> list[Result]:
        """Grade several at once; the results are in the order of ``items``."""
        return self._thread.run(self._grade_many(list(items)))

    async def grade_many_async(self, items: Iterable[tuple[Row, Said]]) -> list[Result]:
        """Grade as ``grade_many`` does, from any event loop."""
        return await self._wait_result(self._grade_many(list(items)))

    def close(self) -> None:
        """End the calls and whatever was started; a later grade opens the judge anew."""
        _close_grader(self._thread, self._services)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    async def _open_services(self) -> None:
        if self._services is not None:
            await self._services.open()

    async def _wait_result(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._thread.submit(work))

    async def _grade_reply(self, task: Row, said: Said, rollout_index: int) -> Result:
        await self._open_services()
        return await self._served.grade_episode(task, said, rollout_index=rollout_index)

    async def _grade_many(self, items: Sequence[tuple[Row, Said]]) -> list[Result]:
        await self._open_services()
        room = asyncio.Semaphore(_AT_ONCE)

        async def grade_one(task: Row, said: Said) -> Result:
            async with room:
                return await self._served.grade_episode(task, said)

        return await asyncio.gather(*(grade_one(task, said) for task, said in items))


def grade(task: Row, said: Said, *words: str, config_dirs: Iterable[str | Path] = ()) -> Result:
    """Grade one reply: a ``Grader`` that is opened and closed again. For more than one reply make a ``Grader``.

    Args:
        task: see ``Grader.grade``.
        said: see ``Grader.grade``.
        words: see ``Grader``.
        config_dirs: see ``Grader``.

    Raises:
        ConfigError: a word does not fit.
        GavelError: a judge that is served here did not start.
    """
    with Grader(*words, config_dirs=config_dirs) as grader:
        return grader.grade(task, said)


class _Services:
    """The services of a composition, opened at the first call in a loop; what it knows of another process is
    forgotten.
    """

    def __init__(self, config: ServeConfig, offer: Offer) -> None:
        self._config, self._offer = config, offer
        self._stack: AsyncExitStack | None = None
        self._opening = asyncio.Lock()
        self._owner = 0
        self._logs: str | None = None
        # Kept: a forked child that collected its parent's would disturb the parent's loop.
        self._elsewhere: list[AsyncExitStack] = []

    async def open(self) -> None:
        """Start the services, unless they are."""
        if self._owner != os.getpid():  # a fork keeps neither connections nor the lock's waiters
            if self._stack is not None:
                self._elsewhere.append(self._stack)
            self._owner, self._stack, self._opening = os.getpid(), None, asyncio.Lock()
        async with self._opening:
            if self._stack is None:
                self._stack = await self._start_services()

    async def close(self) -> None:
        """End the services."""
        stack, self._stack, self._owner = self._stack, None, 0
        if stack is not None:
            await stack.aclose()

    def _remove_logs(self) -> None:
        if self._logs is not None:
            shutil.rmtree(self._logs, ignore_errors=True)
        self._logs = None

    async def _start_services(self) -> AsyncExitStack:
        services, assets = list_services([self._offer]), self._config.assets
        served_here = any(service.mode == "managed" for service in services.values())
        store, stack = assets.make_store(), AsyncExitStack()
        folder = self._config.run.dir or tempfile.gettempdir()
        if served_here and not self._config.run.dir:
            self._logs = folder = self._logs or tempfile.mkdtemp(prefix="gavel-")
            stack.callback(self._remove_logs)  # not where a start fails: its error names a log there
        pool = await stack.enter_async_context(
            open_services(
                services,
                log_dir=Path(folder) / "logs",
                progress=_say_nothing,
                assets_cache=store.cache,
                mirror=store.mirror,
                offline=store.offline,
                replies=Path(assets.replies) if assets.replies else None,
            )
        )
        self._offer.set_models(pool.models)
        return stack


def _close_grader(thread: LoopThread, services: _Services | None) -> None:
    if thread.is_running:
        if services is not None:
            thread.run(services.close())
        thread.close()


def _say_nothing(line: str) -> None:
    del line


def _check_words(words: Iterable[str]) -> None:
    """Refuse a word that could decide no grade.

    Raises:
        ConfigError: names it.
    """
    for word in words:
        if (head := read_head(word)) in _WITHOUT_EFFECT:
            raise ConfigError(
                "this decides no grade",
                field=head,
                found=shorten_value(word),
                allowed="env, reward, judge, services, rubrics, judging, assets",
                remedy="remove it",
            )
