"""What a sweep prints: a finding that many points share once, of dry runs what differs, of a rescoring one line for
each point.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gavel.launch.config.console import print_line
from gavel.launch.runs.sweep_index import SweepPoint
from gavel.models.errors import format_findings
from gavel.models.files import read_object

_FRAME = re.compile(r"[\s━─│┃╇┼]+")
_HERE = "POINT"


@dataclass(slots=True)
class Told:
    """What was said of the points so far. ``quiet``: each point gets one line, read from its metrics; ``dry``: the
    first point is shown whole, of the others what differs from it."""

    console: Console
    folder: Path
    count: int
    dry: bool
    quiet: bool
    _first: list[str] = field(default_factory=list)
    _found: dict[tuple[str, ...], list[tuple[SweepPoint, tuple[str, ...]]]] = field(default_factory=dict)

    @contextlib.contextmanager
    def show_point(self, point: SweepPoint) -> Iterator[Console]:
        """Give the console a point may write to; what it wrote is then shown, in part, or not."""
        if not self.quiet:
            print_line(self.console, f"\n{self._make_head(point)}", style="bold")
        if not (self.dry or self.quiet):
            yield self.console
            return
        try:
            with self.console.capture() as caught:
                yield self.console
        finally:
            if not self.quiet:
                self._show_text(point, caught.get())

    def _make_head(self, point: SweepPoint) -> str:
        return f"[{point.index + 1} of {self.count}] {' '.join(point.overrides)}"

    def _show_text(self, point: SweepPoint, text: str) -> None:
        lines = Text.from_ansi(text).plain.splitlines()
        if not lines:
            return  # it was refused before it showed anything
        if not self._first:
            self._first = [_make_key(line, point.name) for line in lines]
            self.console.file.write(text)
            return
        changed = list(list_changes(self._first, lines, [_make_key(line, point.name) for line in lines]))
        for line in changed or ["the same as the first, in a folder of its own"]:
            print_line(self.console, line)

    def add_findings(self, point: SweepPoint, findings: Sequence[str]) -> None:
        """Take what keeps a point from being started; ``close_output`` tells it."""
        key = tuple(finding.replace(point.name, _HERE) for finding in findings)
        self._found.setdefault(key, []).append((point, tuple(findings)))
        print_line(self.console, f"{format_findings(len(findings))}, told at the end")

    def show_failed(self, point: SweepPoint, why: str) -> None:
        """Say that a point failed."""
        print_line(
            self.console, f"{self._make_head(point)}: failed: {why}" if self.quiet else f"this point failed: {why}"
        )

    def show_done(self, point: SweepPoint) -> None:
        """Say in one line what a rescored point came to."""
        if self.quiet:
            print_line(self.console, f"{self._make_head(point)}: {describe_result(self.folder / point.name)}")

    def close_output(self) -> None:
        """Tell the findings, each set of them once."""
        for points in self._found.values():
            numbers, findings = [point.index + 1 for point, _ in points], points[0][1]
            head = (
                f"points {format_ranges(numbers)}: the same {format_findings(len(findings))}"
                if len(numbers) > 1
                else (f"point {numbers[0]}: {format_findings(len(findings))}")
            )
            print_line(self.console, f"\n{head}; not started", style="bold")
            print_line(self.console, "\n\n".join(findings))


def _make_key(line: str, name: str) -> str:
    """Return a line without its point's name and the frame of a table, whose width may differ."""
    return _FRAME.sub(" ", line.replace(name, _HERE)).strip()


def list_changes(before: Sequence[str], after: Sequence[str], keys: Sequence[str]) -> Iterator[str]:
    """Yield ``- line`` and ``+ line`` where ``after`` (by its ``keys``) differs from ``before``."""
    for what, low, high, start, end in SequenceMatcher(None, before, keys, autojunk=False).get_opcodes():
        if what != "equal":
            yield from (f"- {line}" for line in before[low:high] if line)
            yield from (f"+ {after[place].strip()}" for place in range(start, end) if keys[place])


def format_ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ``1-3, 5``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def describe_result(run: Path) -> str:
    """Return what the metrics of a run say in one line."""
    if not (metrics := read_object(run / "metrics.json")):
        return "no metrics"
    rows, reward = metrics["rows"], metrics["reward"]
    missing = f", {rows['ungraded']} ungraded" if rows["ungraded"] else ""
    if reward is None:
        return f"no row is graded{missing}"
    interval = "" if reward["low"] is None else f" [{reward['low']:.3f}, {reward['high']:.3f}]"
    return f"mean reward {reward['value']:.3f}{interval}, {rows['graded']} graded{missing}"
