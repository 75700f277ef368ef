"""Questions with known answers, put to the judges of a training run: before it starts, and again while it runs.

Before: each replica grades one control of each rubric (the golden control), asked from where the trainer is. While it
runs: the whole set, every ``canary.every`` steps; a verdict that changed is drift. What was found stands in
``canaries.jsonl`` of the run folder, where the next start of the run finds what its verdicts are compared with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import orjson
import yaml

from gavel.envs.assembly import Assembly
from gavel.envs.interfaces.nemo_rl.config import PREFIX, build_parts, read_config
from gavel.judges.bindings import Binding
from gavel.judges.judge import BoundJudges
from gavel.judges.probing.canary import Canaries, CanaryReport, CanaryRules
from gavel.judges.probing.probe import CheckRow, make_grader, run_controls
from gavel.models.codec import dump, record
from gavel.models.errors import GavelError, shorten_value
from gavel.models.failures import FailureKind
from gavel.models.files import JsonLines, PersistenceError, load_lines
from gavel.models.pool import open_services
from gavel.models.service import Service

FILE = "canaries.jsonl"
POLL_S = 1.0
"""Seconds between two looks at the trainer's step."""
_SHOWN = 5


class GoldenFailed(GavelError):
    """A judge does not grade what it must be able to grade: the training does not start."""

    exit_code = 4


@record
class Round:
    """A line of ``canaries.jsonl``: one round of one binding in one attempt."""

    SCHEMA: ClassVar[str] = "gavel.canary/1"

    attempt: int
    binding: str
    report: CanaryReport


@dataclass(frozen=True, slots=True)
class _Judging:
    """The judging part of one environment: its bindings, and the services they use."""

    bindings: Mapping[str, Binding]
    services: Mapping[str, Service]


def _read_judging(config: str) -> list[_Judging]:
    values = yaml.safe_load(config)
    found = []
    for name, raw in (values.get("env") or {}).items():
        if str(name).startswith(PREFIX):
            assembly: Assembly = build_parts(read_config(raw, name=name))[0]
            asked = {key: one for key, one in assembly.bindings.items() if one.rubric.controls}
            used = {part.service for one in asked.values() for part in one.judges}
            found.append(_Judging(asked, {key: service for key, service in assembly.services.items() if key in used}))
    return [one for one in found if one.bindings]


async def ask_golden(config: str, logs: Path, say: Callable[[str], None], *, required: bool) -> None:
    """Let every replica grade the first control of each rubric.

    Args:
        config: the trainer's config, with the real addresses.
        logs: folder for what the client logs.
        say: told what was found.
        required: whether a wrong verdict stops the start; one that could not be had at all always does.

    Raises:
        GoldenFailed: says binding, address, what was expected and what came.
    """
    for judging in _read_judging(config):
        replicas = max(len(service.base_urls) for service in judging.services.values())
        for number in range(replicas):
            services = {name: _pick_server(service, number) for name, service in judging.services.items()}
            async with open_services(services, log_dir=logs, progress=say) as pool:
                judge = BoundJudges(judging.bindings, pool.get_model, fresh=True)
                for binding in (part for one in judging.bindings.values() for part in one.judges):
                    (row,) = await run_controls("control", binding.rubric.controls[:1], make_grader(binding, judge))
                    _judge_row(binding, services[binding.service], row, say, required=required)


def _pick_server(service: Service, number: int) -> Service:
    return replace(service, base_url=(service.base_urls[number % len(service.base_urls)],))


def _judge_row(
    binding: Binding, service: Service, row: CheckRow, say: Callable[[str], None], *, required: bool
) -> None:
    if row.passed:
        return
    where = f"the judge of {binding.name} at {service.base_urls[0]}"
    problem = (
        f"{where}: the golden control {row.name} must be {' or '.join(row.expected)}, and is {row.got} "
        f"({shorten_value(row.detail)})"
    )
    if required or (not row.graded and row.got != FailureKind.JUDGE_UNPARSEABLE):
        raise GoldenFailed(problem)
    say(f"note: {problem}")


@dataclass(frozen=True, slots=True)
class Watched:
    """The canaries of a run: ``ask_first`` asks them before it starts, ``watch_drift`` while it runs. Both return why
    the training must not go on; ``ask_first`` None if it may, ``watch_drift`` only then."""

    ask: Callable[[int], Coroutine[None, None, str | None]]
    step: Callable[[], int]
    every: int

    async def ask_first(self) -> str | None:
        """Ask once, as step 0."""
        return await self.ask(0)

    async def watch_drift(self) -> str:
        """Ask each time the trainer has passed another ``every`` steps."""
        done = self.step() // self.every
        while True:
            await asyncio.sleep(POLL_S)
            now = self.step() // self.every
            if now > done:
                done = now
                reason = await self.ask(now * self.every)
                if reason is not None:
                    return reason


@asynccontextmanager
async def prepare_canaries(
    config: str,
    run: Path,
    attempt: int,
    rules: CanaryRules | None,
    baselines: Mapping[str, Mapping[str, str]],
    say: Callable[[str], None],
) -> AsyncIterator[Watched | None]:
    """Have the canaries of a run ready to be asked; None where none are wanted or nothing judges.

    Args:
        config: the trainer's config, with the real addresses.
        run: the run folder.
        attempt: the number of this start.
        rules: when, and what drift is too much.
        baselines: by binding, the label of each canary when the judge was qualified.
        say: told every round.
    """
    judging = _read_judging(config) if rules is not None else []
    if rules is None or not judging:
        yield None
        return
    known = {**baselines, **_read_first_labels(run)}
    async with AsyncExitStack() as stack:
        asked: list[tuple[str, Canaries]] = []
        for one in judging:
            pool = await stack.enter_async_context(open_services(one.services, log_dir=run / "logs", progress=say))
            judge = BoundJudges(one.bindings, pool.get_model, fresh=True)
            asked += [
                (key, Canaries(binding, judge, rules, baseline=known.get(key))) for key, binding in one.bindings.items()
            ]

        file = stack.enter_context(closing(JsonLines(run / FILE)))

        async def ask_canaries(step: int) -> str | None:
            return await _ask_round(asked, step, file, attempt, say)

        yield Watched(ask_canaries, StepTail(run / "ledger" / "steps.jsonl"), rules.every)


async def _ask_round(
    asked: list[tuple[str, Canaries]], step: int, file: JsonLines, attempt: int, say: Callable[[str], None]
) -> str | None:
    reasons = []
    for name, canary in asked:
        report = await canary.ask_due(step)
        if report is None:
            continue
        try:
            file.append(dump(Round(attempt, name, report)))
        except PersistenceError as failed:
            say(f"canaries: this round is not kept: {failed}")
        text = describe_round(name, report)
        if report.exceeded or report.changed or report.ungraded:
            say(f"DRIFT: {text}" if report.exceeded else f"canaries: {text}")
        if report.stop:
            reasons.append(text)
    return "the judge is not the one it was: " + "; ".join(reasons) if reasons else None


def describe_round(binding: str, report: CanaryReport) -> str:
    """Say in a line what a round found."""
    total = len(report.labels) + len(report.ungraded)
    if report.drift is None:
        kinds = ", ".join(sorted(set(report.ungraded.values())))
        return f"{binding}, step {report.step}: none of {total} canaries was graded ({kinds})"
    changed = [f"{name} was {before}, is {now}" for name, (before, now) in report.changed.items()]
    more = [f"and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
    ungraded = [f"{len(report.ungraded)} ungraded"] if report.ungraded else []
    rest = "; ".join([*changed[:_SHOWN], *more, *ungraded])
    return f"{binding}, step {report.step}: {len(changed)} of {len(report.labels)} verdicts changed" + (
        f" ({rest})" if rest else ""
    )


class StepTail:
    """Returns the newest training step of a ledger, reading only what is new; 0 before the first."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._step = path, 0, 0

    def __call__(self) -> int:
        """Read on; a line that is not whole yet is left for the next time."""
        with (
            suppress(OSError),
            self._path.open("rb") as file,
        ):  # nothing there yet, or the file server is away for a moment
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._take_line(line)
        return self._step

    def _take_line(self, line: bytes) -> None:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            return
        if isinstance(row, dict) and row.get("split") == "train":
            self._step = max(self._step, int(row.get("step") or 0))


def read_rounds(run: Path) -> list[Round]:
    """Return what ``canaries.jsonl`` holds; a line that a kill left torn is passed over."""
    return load_lines(Round, run / FILE)


def _read_first_labels(run: Path) -> dict[str, dict[str, str]]:
    """Return the first label of each canary: what an earlier start of this run compared with."""
    known: dict[str, dict[str, str]] = {}
    for one in read_rounds(run):
        labels = known.setdefault(one.binding, {})
        for name, label in one.report.labels.items():
            labels.setdefault(name, one.report.changed[name][0] if name in one.report.changed else label)
    return known
