"""The client of the service for callers that are not asynchronous: a trainer's reward function, a notebook, a
script.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from gavel.envs.interfaces.http.client import GavelClient, Said
from gavel.envs.interfaces.http.records import GradeAnswer, Health, OpenAnswer, Refused, StepAnswer
from gavel.models.closing import Closing
from gavel.models.loop_thread import LoopThread


class SyncGavelClient(Closing):
    """What ``GavelClient`` does, call by call; safe to share between threads, also where an event loop runs already.

    Its connections stay open between calls, so make one and keep it: a trainer that grades sample by sample then pays
    for no connection. It connects anew in a child forked from its process. Use ``with``, or call ``close``; the end of
    the program closes it. Arguments, results and errors are those of ``GavelClient``.
    """

    def __init__(
        self,
        url: str,
        env: str,
        *,
        api_key: str | None = None,
        timeout: float = 900.0,
        attempts: int = 5,
        connections: int = 64,
    ) -> None:
        self._client = GavelClient(
            url, env, api_key=api_key, timeout=timeout, attempts=attempts, connections=connections
        )
        self._thread = LoopThread("gavel-client")
        weakref.finalize(self, _close_client, self._thread, self._client)

    def open(self, task: Mapping[str, Any]) -> OpenAnswer:
        """Begin an episode; see ``GavelClient.open``."""
        return self._thread.run(self._client.open(task))

    def step(self, task: Mapping[str, Any], said: Said) -> StepAnswer:
        """Return what follows the newest reply; see ``GavelClient.step``."""
        return self._thread.run(self._client.step(task, said))

    def grade(self, task: Mapping[str, Any], said: Said) -> GradeAnswer:
        """Grade a reply; see ``GavelClient.grade``."""
        return self._thread.run(self._client.grade(task, said))

    def grade_many(self, items: Iterable[tuple[Mapping[str, Any], Said]]) -> list[GradeAnswer | Refused]:
        """Grade several, in requests of a size that the service takes; see ``GavelClient.grade_many``."""
        return self._thread.run(self._client.grade_many(items))

    def health(self) -> Health:
        """Return how the service fares."""
        return self._thread.run(self._client.health())

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        _close_client(self._thread, self._client)


def _close_client(thread: LoopThread, client: GavelClient) -> None:
    if thread.is_running:
        thread.run(client.close())
        thread.close()
