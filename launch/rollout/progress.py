"""The progress line of a run: rate, time left, failures, and where the running rows stand.

Plain lines when not a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gavel.launch.rollout.collector import RowCounts

_PLAIN_EVERY_S = 10.0
_LIVE_EVERY_S = 0.25


def format_progress(counts: RowCounts, elapsed_s: float) -> str:
    """Return one line: ended/planned, rows per second, time left, mean reward, ungraded by kind, rows at the policy and
    the judge.
    """
    rate = counts.ended / elapsed_s if elapsed_s > 0 else 0.0
    left = _format_clock((counts.planned - counts.ended) / rate) if rate > 0 else "?"
    parts = [f"{counts.ended}/{counts.planned} rows", f"{rate:.1f}/s", f"{left} left"]
    if counts.graded:
        parts.append(f"reward {counts.rewards / counts.graded:.3f}")
    if counts.ungraded:
        parts.append("ungraded " + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.ungraded.items())))
    if counts.running:
        judged = sum(watch.stage == "judge" for watch in counts.running)
        parts.append(f"at the policy {len(counts.running) - judged}, at the judge {judged}")
    return " · ".join(parts)


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextlib.asynccontextmanager
async def show_progress(console: Console, counts: Callable[[], RowCounts]) -> AsyncIterator[None]:
    """Show the progress of ``counts()`` while the body runs."""
    begun = time.monotonic()

    def make_line() -> str:
        return format_progress(counts(), time.monotonic() - begun)

    async def show_plain() -> None:
        while True:
            await asyncio.sleep(_PLAIN_EVERY_S)
            console.print(make_line(), highlight=False, soft_wrap=True)

    async def show_live() -> None:
        with Live(console=console, transient=True, auto_refresh=False) as display:
            while True:
                display.update(Text(make_line(), overflow="ellipsis", no_wrap=True), refresh=True)
                await asyncio.sleep(_LIVE_EVERY_S)

    shown = asyncio.create_task(show_live() if console.is_terminal else show_plain())
    try:
        yield
    finally:
        shown.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await shown
        console.print(make_line(), highlight=False, soft_wrap=True)
