"""A run from its folder to its metrics: what is owed is played, what was done stays; shared by ``rollout`` and
``regrade``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shlex
import threading
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from gavel.envs.episode import EpisodeState, Policy
from gavel.envs.failure_policy import FailurePolicy, FailureWatch
from gavel.envs.play import EpisodePlayer
from gavel.envs.types import Digests, Result, RewardPolicy
from gavel.launch.assembly.assemble import Assembly, make_asset_store
from gavel.launch.assembly.qualification import describe_qualification
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import AssetsConfig, BudgetConfig, ExportConfig
from gavel.launch.report.trackers.start import export_run
from gavel.launch.rollout.budget import find_spent
from gavel.launch.rollout.collector import Collector, OwedRow
from gavel.launch.rollout.deadline import Deadline
from gavel.launch.rollout.progress import show_progress
from gavel.launch.rollout.tally import CALLS, CALLS_OF_CHILD, RunTally, make_closing_table
from gavel.launch.runs.folder import RunFolder, is_owed, read_results
from gavel.launch.runs.inputs import PlannedRow, read_inputs, read_own_messages
from gavel.launch.runs.journal import RowKey, read_journal
from gavel.launch.runs.origin import refuse_programs
from gavel.launch.runs.rereading import Rereader
from gavel.launch.runs.signals import cancel_by_signals
from gavel.launch.runs.stored import describe_fault
from gavel.models.calls.contact import check_served_models
from gavel.models.codec import compute_digest
from gavel.models.errors import GavelError, RecordError
from gavel.models.pool import ServicePool, open_services
from gavel.models.service import Price, Service
from gavel.models.types import Sampling
from gavel.models.vllm.server import ServerDied

WHOLE, INCOMPLETE, STOPPED, INTERRUPTED = 0, 3, 4, 130


@dataclass(frozen=True, slots=True)
class Session:
    """What is played.

    ``states`` are transcripts of the ``parent`` run; ``sampling`` None asks no policy; ``persistent`` tries rows once
    more that were given up; ``certificates`` is where the judges' qualification is looked up; ``report`` writes
    ``report.html`` at the end; ``deadline`` is when it is to be over; ``export`` where its figures are shown besides;
    ``looked`` says that the servers were asked already whether they serve the models; ``untrusted`` are names of
    services that a folder made elsewhere brought; ``prices`` are those of the services by name; ``planned`` is the
    run's whole plan where it was just made, and so need not be read back.
    """

    assembly: Assembly
    reward: RewardPolicy
    failure: FailurePolicy
    rows: Sequence[PlannedRow]
    concurrency: int
    sampling: Sampling | None
    config_digest: str
    assets: AssetsConfig
    budget: BudgetConfig
    states: Mapping[RowKey, EpisodeState] = field(default_factory=dict)
    parent: Path | None = None
    persistent: bool = False
    report: bool = True
    certificates: Path = Path("certificates")
    deadline: Deadline | None = None
    export: ExportConfig | None = None
    looked: bool = False
    untrusted: frozenset[str] = frozenset()
    prices: Mapping[str, Price] = field(default_factory=dict)
    planned: Sequence[PlannedRow] = ()


async def check_external_services(services: Mapping[str, Service], tell: Callable[[str], None]) -> int:
    """See that the external services serve what is asked of them; tell where nothing listens. Returns 0.

    Raises:
        ConfigError: a server does not serve the model, or a URL lacks its ``/v1``.
    """
    for line in await check_served_models(services):
        tell(line)
    return WHOLE


async def run_session(session: Session, folder: RunFolder, console: Console) -> int:
    """Play what a run owes and write its metrics; return the exit code.

    Args:
        session: what is played.
        folder: open for writing; its inputs are planned.
        console: for progress and the closing table.

    Raises:
        GavelError: a server did not start, a row could not be stored.
    """
    with _keep_lease(folder):  # reading many rows back, and their report, may take longer than a lease lives
        return await _run_session(session, folder, console)


async def _run_session(session: Session, folder: RunFolder, console: Console) -> int:
    begun = time.monotonic()
    planned = session.planned or read_inputs(folder.path)  # every row ever planned; this session may be of a part
    tally = RunTally(planned, session.assembly.environment, session.prices)
    for line in await _load_rows(session, folder, planned, tally):
        print_line(console, line, style="bold")
    owed = _list_owed(session, folder, tally)
    stopped = None
    if owed:
        print_line(
            console,
            f"{len(owed)} of {len(session.rows)} rows to do, {sum(row.key in tally.graded for row in session.rows)} "
            f"are graded",
        )
        stopped = await _play_rows(session, folder, console, owed, tally)
    metrics = await asyncio.to_thread(tally.write_metrics, folder, session.assembly.environment, session.reward)
    calls = CALLS if session.parent is None else CALLS_OF_CHILD
    seconds = time.monotonic() - begun if owed else None
    console.print(make_closing_table(metrics, seconds, calls, session.assembly.environment.info.clusters))
    for line in (
        *tally.list_reasons(),
        *tally.list_remarks(session.assembly.environment),
        *describe_qualification(session.assembly.bindings, session.certificates),
    ):
        print_line(console, line)
    if session.report:
        print_line(console, await asyncio.to_thread(write_report, folder.path))
    child = f" (child of {session.parent})" if session.parent else ""
    print_line(console, f"run folder: {folder.path}{child}")
    for one in await export_run(folder.path, session.export or ExportConfig()):
        print_line(console, one.line)
    if session.deadline is not None and session.deadline.near:
        print_line(
            console,
            f"{stopped}; not begun: {describe_left(session.rows, tally.graded)}; run the same command again to go on",
            style="bold",
        )
        stopped = None
    if stopped is not None:
        for line in tally.list_advice():
            print_line(console, line)
    return exit_code(
        tally.count_missing(session.rows), stopped, console, _count_given_up(session, tally), _try_again(folder)
    )


async def _load_rows(session: Session, folder: RunFolder, planned: Sequence[PlannedRow], tally: RunTally) -> list[str]:
    """Take every stored row, its reward made again; return what there is to say of outcomes that are not what is stored
    beside them.

    Raises:
        InputError: a line, a row's place or a reward is not as it was written.
    """
    digests = {row.key: row.task_digest for row in planned}
    rereader: Rereader | None = None
    faults: list[RecordError] = []
    for name in ("results.jsonl", "errors.jsonl"):
        for result in read_results(folder.path, name, session.reward, digests):
            tally.add_row(result)
            if result.status == "graded":
                rereader = rereader or Rereader.from_run(
                    folder.path, folder.manifest, planned, session.assembly, session.reward
                )
                await rereader.find_faults(result, str(folder.path / name), faults.append)
    if not faults:
        return []
    path = shlex.quote(str(folder.path))
    return [
        f"{len(faults)} facts of stored rows are not what their stored replies come to, the first: "
        f"{describe_fault(faults[0])}",
        f"all of them: gavel verify {path}; to grade every row anew: gavel regrade {path} only=all",
    ]


_NAMED = 5


def describe_left(rows: Sequence[PlannedRow], graded: Container[RowKey]) -> str:
    """Name the first rows that have no grade, and count the others."""
    names = [f"{row.task.task_id} (rollout {row.rollout_index})" for row in rows if row.key not in graded]
    more = f" and {len(names) - _NAMED} more rows" if names[_NAMED:] else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def write_report(path: Path) -> str:
    """Write ``report.html``; say where it is, or why it is not: a report that fails must not fail a run that is
    done.
    """
    from gavel.launch.report.write import write_report

    file = path / "report.html"
    try:
        write_report(path, file)
    except (GavelError, OSError) as failed:
        return f"report: not written: {failed}"
    return f"report: {file} (open it in a browser)"


def _count_given_up(session: Session, tally: RunTally) -> int:
    failed = tally.list_owed_errors()
    return sum(row.key not in tally.graded and not is_owed(failed.get(row.key, ())) for row in session.rows)


def _try_again(folder: RunFolder) -> str:
    """Return the command that tries the rows of this run once more that are given up, whatever failed: policy,
    simulator or judge.
    """
    path = shlex.quote(str(folder.path))
    return f"gavel rollout {path} retry=given_up" if folder.manifest.kind == "rollout" else f"gavel regrade {path}"


def exit_code(
    short: Mapping[str, int], stopped: str | None, console: Console, given_up: int = 0, again: str = ""
) -> int:
    """Say what is missing and what helps; return the exit code: 0 whole, 3 some rows ungraded or skipped, 4 stopped."""
    if stopped is not None:
        print_line(console, f"stopped: {stopped}; run the same command again to go on", style="bold")
        return STOPPED
    if not short:
        return WHOLE
    why = "; errors.jsonl says why" if set(short) - {"missing"} else ""
    print_line(
        console, f"incomplete: {', '.join(f'{count} {name}' for name, count in short.items())}{why}", style="bold"
    )
    if given_up:
        print_line(console, f"{given_up} of them are given up (3 attempts, or no attempt can help); once more: {again}")
    return INCOMPLETE


def _list_owed(session: Session, folder: RunFolder, tally: RunTally) -> list[OwedRow]:
    """Return the rows to be played: neither graded nor, unless the session is persistent, given up."""
    failed = tally.list_owed_errors()
    begun = read_journal(folder.path / "transcripts.jsonl", read_own_messages(session.rows), skip=tally.graded)
    owed = []
    for row in session.rows:
        if row.key in tally.graded or not (session.persistent or is_owed(failed.get(row.key, ()))):
            continue
        state = begun.get(row.key) or EpisodeState()
        if state.messages is None and row.key in session.states:
            before = session.states[row.key]
            state.messages, state.receipts, state.over = before.messages, before.receipts, before.over
            state.answers = {**before.answers, **state.answers}
        owed.append(OwedRow(row, state, len(failed.get(row.key, ())) + 1))
    return owed


async def _play_rows(
    session: Session, folder: RunFolder, console: Console, owed: list[OwedRow], tally: RunTally
) -> str | None:
    assembly = session.assembly
    log_dir = folder.path / "logs"

    refuse_programs(
        folder.path, {name: service for name, service in assembly.services.items() if name in session.untrusted}
    )
    if not session.looked:
        await check_external_services(assembly.services, lambda line: print_line(console, line, style="bold"))
    store, replies, deadline = make_asset_store(session.assets), session.assets.replies, session.deadline

    def end_row(result: Result) -> None:
        tally.add_row(result)
        if deadline is not None:
            deadline.record_row(result.timing.total_s)

    async with open_services(
        assembly.services,
        log_dir=log_dir,
        progress=lambda line: print_line(console, line),
        assets_cache=store.cache,
        mirror=store.mirror,
        offline=store.offline,
        replies=Path(replies) if replies else None,
    ) as pool:
        assembly.models.set_models({name: pool.get_model(name) for name in assembly.services})
        policy = _make_policy(session, pool)
        collector = Collector(
            EpisodePlayer(
                assembly.environment, session.reward, Digests(session.config_digest, assembly.rubric_digests)
            ),
            policy,
            folder,
            FailureWatch(session.failure),
            end_row,
            spent=lambda: (
                _find_over(session.budget, pool)
                or (deadline.find_reached(collector.counts.compute_oldest) if deadline else None)
            ),
        )
        async with show_progress(console, lambda: collector.counts):
            stopped = await collector.collect_rows(owed, len(owed), session.concurrency)
        if passed := collector.counts.skipped:
            again = f"gavel rollout {shlex.quote(str(folder.path))}"
            print_line(
                console, f"passed over: {passed}, for no finished transcript is stored; to go on with them: {again}"
            )
        died = _find_dead(pool)
        if died is None:
            return stopped
        print_line(console, died.report)
        return stopped or (died.reason if collector.counts.ungraded else None)


def _make_policy(session: Session, pool: ServicePool) -> Policy | None:
    if session.sampling is None:
        return None
    return Policy(pool.get_model("policy"), session.sampling, session.assembly.environment.info.keeps_filtered)


def _find_over(budget: BudgetConfig, pool: ServicePool) -> str | None:
    """Say why no further row may be begun, or return None."""
    died = _find_dead(pool)
    return find_spent(budget, pool.meter) if died is None else died.reason


def _find_dead(pool: ServicePool) -> ServerDied | None:
    """Return why a service of ours is gone for good, or None; an external one may come back."""
    died = pool.find_failure()
    return died if died is not None and any(server.failure is died for server in pool.servers) else None


@contextlib.contextmanager
def _keep_lease(folder: RunFolder) -> Iterator[None]:
    """Keep the lease alive, whether rows end or not; a thread does it, so that work which holds the event loop up lets
    no lease lapse.
    """
    over = threading.Event()

    def renew_regularly() -> None:
        while not over.wait(1.0):
            with contextlib.suppress(OSError, GavelError):  # a full disk: the next row says so
                folder.renew_lease()

    thread = threading.Thread(target=renew_regularly, name="gavel-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


GOES_ON = "interrupted: everything finished is kept; run the same command again to go on"
BEGINS_ANEW = "interrupted: run the same command again; it begins anew"


def run_async(work: Callable[[], Awaitable[int]], console: Console, interrupted: str = GOES_ON) -> int:
    """Run ``work`` on a fresh event loop (uvloop where installed); SIGINT and SIGTERM cancel it, say ``interrupted``
    and give 130.
    """
    with collect_rarely(), asyncio.Runner(loop_factory=_choose_loop_factory()) as runner:
        try:
            return runner.run(_await_work(work))
        except (KeyboardInterrupt, asyncio.CancelledError):
            console.print(interrupted, highlight=False)
            return INTERRUPTED


_RARELY = (50_000, 20, 100)


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Let the garbage collector look at what is there never and at young objects less often: a run makes many and few
    are cycles. Within such a block another one sets aside what was made since, such as a plan.

    Worth a tenth to a fifth of the rows per second in ``benchmarks/rollout_throughput.py``, and a third of a start in
    ``benchmarks/scale.py``.
    """
    before = gc.get_threshold()
    if before == _RARELY:
        gc.freeze()
        yield
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def _await_work(work: Callable[[], Awaitable[int]]) -> int:
    with cancel_by_signals():
        return await work()


def _choose_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop  # type: ignore[no-any-return]


def compute_config_digest(config_yaml: str) -> str:
    """Return the digest of a resolved config."""
    return compute_digest(config_yaml.encode())
