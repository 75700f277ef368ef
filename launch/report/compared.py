"""``compare.html``: how runs differ, and the same task under each beside each other, those whose label changed
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gavel.launch.comparing.identities import describe_grading, shorten_names
from gavel.launch.comparing.paired import Comparison
from gavel.launch.report.detail import Stories
from gavel.launch.report.entry import ReportEntry
from gavel.launch.report.overview import read_notes
from gavel.launch.report.page import MOST_BYTES, MOST_ROWS, ROOM, encode_script, render_page
from gavel.launch.report.source import RunSource
from gavel.models.codec import record

MOST_PAIRS = 1_000
"""Rows whose texts are in the file."""
Key = tuple[str, str, int]


@record
class Compared:
    """One row under each run; None where a run does not have it.

    ``flip`` says that its label is not everywhere the same.
    """

    number: int
    task: str
    rollout: int
    asked: str
    labels: tuple[str | None, ...]
    rewards: tuple[float | None, ...]
    flip: bool


def make_comparison_page(
    found: Comparison, paths: Sequence[Path], names: Sequence[str], notes: Sequence[str], intervals: str
) -> bytes:
    """Return the page of a comparison, at most ``MOST_BYTES``; the first run is the base, ``intervals`` says of what
    kind they are.
    """
    sources = [RunSource.open_run(path) for path in paths]
    for source in sources:
        source.refresh()
    sides = [
        {(entry.task_id, entry.task_digest, entry.rollout_index): entry for entry in source.entries}
        for source in sources
    ]
    about = [read_notes(source) for source in sources]
    note, content_note = (next((one[place] for one in about if one[place]), "") for place in (0, 1))
    keys = sorted(
        dict.fromkeys(key for side in sides for key in side),
        key=lambda key: _rank_row([side.get(key) for side in sides]),
    )
    rows = [
        _make_row(number, key, [side.get(key) for side in sides], texts=not content_note)
        for number, key in enumerate(keys[:MOST_ROWS])
    ]
    about_runs = {
        "names": names,
        "short": shorten_names(names),
        "judges": [_describe_judge(source) for source in sources],
    }
    head = encode_script({**about_runs, "found": found, "rows": rows, "notes": notes, "intervals": intervals})
    stories = [Stories.from_source(source) for source in sources]
    pairs = _make_pairs(stories, sides, keys[:MOST_PAIRS], MOST_BYTES - ROOM - len(head))
    title = " and ".join(shorten_names(names))
    small = {"name": title, "note": note, "content_note": content_note, "facts": {}, "checks": []}
    blocks = {
        "comparison": head,
        "overview": encode_script(small),
        "heads": encode_script([one.heads for one in stories]),
        "meta": encode_script({"live": False, "rows": len(rows), "stories": len(pairs), "run": str(paths[0])}),
    }
    return render_page(None, [*blocks.items(), *pairs], title=f"{title} · gavel")


def _describe_judge(source: RunSource) -> str:
    return describe_grading(source.path, source.manifest)


def _make_row(number: int, key: Key, entries: Sequence[ReportEntry | None], *, texts: bool) -> Compared:
    asked = next((entry.asked for entry in entries if entry is not None), "")
    labels = tuple(None if entry is None else entry.label for entry in entries)
    rewards = tuple(None if entry is None else entry.reward for entry in entries)
    return Compared(number, key[0], key[2], asked if texts else "", labels, rewards, _is_flipped(entries))


def _is_flipped(entries: Sequence[ReportEntry | None]) -> bool:
    return len({entry.label for entry in entries if entry is not None}) > 1


def _rank_row(entries: Sequence[ReportEntry | None]) -> tuple[Any, ...]:
    """Order rows: changed labels first, then the greater difference of rewards, then as they came."""
    rewards = [entry.reward for entry in entries if entry is not None and entry.reward is not None]
    first = next(entry for entry in entries if entry is not None)
    return (not _is_flipped(entries), -(max(rewards) - min(rewards)) if rewards else 0.0, first.number)


def _make_pairs(
    stories: Sequence[Stories], sides: Sequence[Mapping[Key, ReportEntry]], keys: Sequence[Key], room: int
) -> list[tuple[str, bytes]]:
    blocks: list[tuple[str, bytes]] = []
    for number, key in enumerate(keys):
        block = encode_script(
            [teller.make_story(side[key]) if key in side else None for teller, side in zip(stories, sides, strict=True)]
        )
        if len(block) <= room:
            room -= len(block) + 80
            blocks.append((f"pair-{number}", block))
    return blocks
