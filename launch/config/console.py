"""The console every verb writes to: what is not ours can never steer the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from gavel.models.errors import make_visible

_LOG_WIDTH = 160


class SafeConsole(Console):
    """A console that writes control characters out (``\\x1b``), wherever in a text, a table or a title they stand; its
    own colours and cursor movements are no part of a text and stay."""

    def on_broken_pipe(self) -> None:
        """Whoever read the output has gone: the command's own boundary gives the exit code, not rich's."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as usual; texts of segments are written out."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(make_visible(segment.text), segment.style)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text of a string; written out first, because a ``Text`` drops some control characters silently."""
        return super().render_str(make_visible(text), **options)


def make_console(*, terminal: bool) -> Console:
    """Return the console for standard output.

    A log or a pipe has no width: lines are never broken there, tables get room for a path.
    """
    if terminal:
        return SafeConsole(highlight=False)
    return SafeConsole(highlight=False, soft_wrap=True, width=_LOG_WIDTH)


def print_line(console: Console, line: str, style: str | None = None) -> None:
    """Print one line as it is."""
    console.print(line, highlight=False, soft_wrap=True, markup=False, style=style)
