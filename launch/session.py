"""A run from its folder to its metrics: what is owed is played, what was done stays; shared by ``rollout`` and ``regrade``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from gavel.envs.failure_policy import FailurePolicy, FailureWatch
from gavel.envs.types import Digests, RewardPolicy
from gavel.launch.assembly import Assembly, asset_store
from gavel.launch.budget import spent
from gavel.launch.collector import Collector, OwedRow
from gavel.launch.episode import Policy
from gavel.launch.journal import RowKey, RowState, read_journal
from gavel.launch.progress import progress
from gavel.launch.run_folder import PlannedRow, RunFolder, is_owed, own_messages, read_inputs, read_results
from gavel.launch.schema import AssetsConfig, BudgetConfig
from gavel.launch.tally import Tally, closing
from gavel.models.codec import digest
from gavel.models.pool import ServicePool, open_services
from gavel.models.types import Sampling

WHOLE, INCOMPLETE, STOPPED, INTERRUPTED = 0, 3, 4, 130


@dataclass(frozen=True, slots=True)
class Session:
    """What is played: ``states`` are transcripts of a parent run; ``sampling`` None asks no policy."""

    assembly: Assembly
    reward: RewardPolicy
    failure: FailurePolicy
    rows: Sequence[PlannedRow]
    concurrency: int
    sampling: Sampling | None
    config_digest: str
    assets: AssetsConfig
    budget: BudgetConfig
    states: Mapping[RowKey, RowState] = field(default_factory=dict)


async def run_session(session: Session, folder: RunFolder, console: Console) -> int:
    """Play what a run owes and write its metrics; return the exit code.

    Args:
        session: what is played.
        folder: open for writing; its inputs are planned.
        console: for progress and the closing table.

    Raises:
        GavelError: a server did not start, a row could not be stored.
    """
    begun = time.monotonic()
    tally = Tally(read_inputs(folder.path))  # every row ever planned, though this session may be of a part
    for name in ("results.jsonl", "errors.jsonl"):
        for result in read_results(folder.path, name):
            tally.add(result)
    owed = _owed(session, folder, tally)
    stopped = None
    if owed:
        console.print(f"{len(session.rows) - len(owed)} of {len(session.rows)} rows are done; {len(owed)} to do", highlight=False)
        stopped = await _play(session, folder, console, owed, tally)
    metrics = await asyncio.to_thread(tally.write, folder, session.assembly.environment, session.reward)
    console.print(closing(metrics, time.monotonic() - begun))
    console.print(f"run folder: {folder.path}", highlight=False, soft_wrap=True)
    return exit_code(tally.short(session.rows), stopped, console)


def exit_code(short: Mapping[str, int], stopped: str | None, console: Console) -> int:
    """Say what is missing, and return the exit code: 0 whole, 3 some rows ungraded or skipped, 4 stopped."""
    if stopped is not None:
        console.print(f"stopped: {stopped}; run the same command again to go on", highlight=False, soft_wrap=True, style="bold")
        return STOPPED
    if short:
        parts = ", ".join(f"{count} {name}" for name, count in short.items())
        console.print(f"incomplete: {parts}; errors.jsonl says why", highlight=False, soft_wrap=True, style="bold")
        return INCOMPLETE
    return WHOLE


def _owed(session: Session, folder: RunFolder, tally: Tally) -> list[OwedRow]:
    """Return the rows to be played: neither graded nor given up."""
    failed = tally.owed_errors()
    begun = read_journal(folder.path / "transcripts.jsonl", own_messages(session.rows), skip=tally.graded)
    owed = []
    for row in session.rows:
        if row.key in tally.graded or not is_owed(failed.get(row.key, ())):
            continue
        state = begun.get(row.key) or RowState()
        if state.messages is None and row.key in session.states:
            before = session.states[row.key]
            state.messages, state.receipts, state.answers = before.messages, before.receipts, {**before.answers, **state.answers}
        owed.append(OwedRow(row, state, len(failed.get(row.key, ())) + 1))
    return owed


async def _play(session: Session, folder: RunFolder, console: Console, owed: list[OwedRow], tally: Tally) -> str | None:
    assembly = session.assembly
    log_dir = folder.path / "logs"

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    store, replies = asset_store(session.assets), session.assets.replies
    async with open_services(
        assembly.services, log_dir=log_dir, progress=say, assets_cache=store.cache, mirror=store.mirror, offline=store.offline,
        replies=Path(replies) if replies else None,
    ) as pool:  # fmt: skip
        assembly.models.start({name: pool.model(name) for name in assembly.services})
        policy = Policy(pool.model("policy"), session.sampling) if session.sampling is not None else None
        collector = Collector(
            assembly.environment, session.reward, policy, folder, FailureWatch(session.failure),
            Digests(session.config_digest, assembly.rubric_digests), tally.add,
            spent=lambda: spent(session.budget, pool.meter) or _gone(pool),
        )  # fmt: skip
        async with progress(console, lambda: collector.counts), _beating(folder):
            stopped = await collector.collect(owed, len(owed), session.concurrency)
        died = pool.failure()
        if died is None or not (gone := _gone(pool)):
            return stopped
        say(died.report)
        return stopped or (gone if collector.counts.ungraded else None)


def _gone(pool: ServicePool) -> str | None:
    """Say that a server of ours died, or return None: it will not come back, so that no further row is begun."""
    died = pool.failure()
    return died.reason if died is not None and any(server.failure is died for server in pool.servers) else None


@contextlib.asynccontextmanager
async def _beating(folder: RunFolder) -> Any:
    """Keep the lease alive while no row ends."""

    async def beat() -> None:
        while True:
            folder.heartbeat()
            await asyncio.sleep(1.0)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def run_async(work: Callable[[], Awaitable[int]], console: Console) -> int:
    """Run ``work`` on a fresh event loop (uvloop where installed); SIGINT and SIGTERM cancel it and give 130."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner, _terminable(runner.get_loop()):
        try:
            return runner.run(_awaited(work))
        except (KeyboardInterrupt, asyncio.CancelledError):
            console.print("interrupted: everything finished is kept; run the same command again to go on", highlight=False)
            return INTERRUPTED


async def _awaited(work: Callable[[], Awaitable[int]]) -> int:
    return await work()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop  # type: ignore[no-any-return]


@contextlib.contextmanager
def _terminable(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Treat SIGTERM (a Slurm limit, a stopped container) like Ctrl-C: running calls are dropped, files are closed."""

    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    loop.add_signal_handler(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def digest_of(config_yaml: str) -> str:
    """Return the digest of a resolved config."""
    return digest(config_yaml.encode())
