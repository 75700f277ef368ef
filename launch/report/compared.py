"""``compare.html``: how runs differ, and the same task under each beside each other, those whose label changed first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gavel.launch.comparing.identities import graded_by, short_names
from gavel.launch.comparing.paired import Comparison
from gavel.launch.report.detail import Stories
from gavel.launch.report.entry import Entry
from gavel.launch.report.overview import notes_of
from gavel.launch.report.page import MOST_BYTES, MOST_ROWS, ROOM, encode, render
from gavel.launch.report.source import RunSource
from gavel.models.codec import record

MOST_PAIRS = 1_000
"""Rows whose texts are in the file."""
Key = tuple[str, str, int]


@record
class Compared:
    """One row under each run; None where a run does not have it. ``flip`` says that its label is not everywhere the same."""

    number: int
    task: str
    rollout: int
    asked: str
    labels: tuple[str | None, ...]
    rewards: tuple[float | None, ...]
    flip: bool


def comparison_page(found: Comparison, paths: Sequence[Path], names: Sequence[str], notes: Sequence[str], intervals: str) -> bytes:
    """Return the page of a comparison, at most ``MOST_BYTES``; the first run is the base, ``intervals`` says of what kind they are."""
    sources = [RunSource.open(path) for path in paths]
    for source in sources:
        source.refresh()
    sides = [{(entry.task_id, entry.task_digest, entry.rollout_index): entry for entry in source.entries} for source in sources]
    about = [notes_of(source) for source in sources]
    note, content_note = (next((one[place] for one in about if one[place]), "") for place in (0, 1))
    keys = sorted(dict.fromkeys(key for side in sides for key in side), key=lambda key: _worth([side.get(key) for side in sides]))
    rows = [_row(number, key, [side.get(key) for side in sides], texts=not content_note) for number, key in enumerate(keys[:MOST_ROWS])]
    about_runs = {"names": names, "short": short_names(names), "judges": [_judge(source) for source in sources]}
    head = encode({**about_runs, "found": found, "rows": rows, "notes": notes, "intervals": intervals})
    stories = [Stories.of(source) for source in sources]
    pairs = _pairs(stories, sides, keys[:MOST_PAIRS], MOST_BYTES - ROOM - len(head))
    title = " and ".join(short_names(names))
    small = {"name": title, "note": note, "content_note": content_note, "facts": {}, "checks": []}
    blocks = {
        "comparison": head, "overview": encode(small), "heads": encode([one.heads for one in stories]),
        "meta": encode({"live": False, "rows": len(rows), "stories": len(pairs), "run": str(paths[0])}),
    }  # fmt: skip
    return render(None, [*blocks.items(), *pairs], title=f"{title} · gavel")


def _judge(source: RunSource) -> str:
    return graded_by(source.path, source.manifest)


def _row(number: int, key: Key, entries: Sequence[Entry | None], *, texts: bool) -> Compared:
    asked = next((entry.asked for entry in entries if entry is not None), "")
    labels = tuple(None if entry is None else entry.label for entry in entries)
    rewards = tuple(None if entry is None else entry.reward for entry in entries)
    return Compared(number, key[0], key[2], asked if texts else "", labels, rewards, _flipped(entries))


def _flipped(entries: Sequence[Entry | None]) -> bool:
    return len({entry.label for entry in entries if entry is not None}) > 1


def _worth(entries: Sequence[Entry | None]) -> tuple[Any, ...]:
    """Order rows: changed labels first, then the greater difference of rewards, then as they came."""
    rewards = [entry.reward for entry in entries if entry is not None and entry.reward is not None]
    first = next(entry for entry in entries if entry is not None)
    return (not _flipped(entries), -(max(rewards) - min(rewards)) if rewards else 0.0, first.number)


def _pairs(stories: Sequence[Stories], sides: Sequence[Mapping[Key, Entry]], keys: Sequence[Key], room: int) -> list[tuple[str, bytes]]:
    blocks: list[tuple[str, bytes]] = []
    for number, key in enumerate(keys):
        block = encode([teller.story(side[key]) if key in side else None for teller, side in zip(stories, sides, strict=True)])
        if len(block) <= room:
            room -= len(block) + 80
            blocks.append((f"pair-{number}", block))
    return blocks
