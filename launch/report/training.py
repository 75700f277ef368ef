"""The report of a training run: its curve, its first steps against its last, what was not graded."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gavel.launch.comparing.curves import WINDOW, summarize_reward
from gavel.launch.comparing.ledgers import LedgerSample
from gavel.launch.comparing.pictures import CURVE, draw_runs
from gavel.launch.comparing.runs import Named, read_training_runs
from gavel.launch.comparing.tables import CURVES, format_csv, format_markdown, list_notes, make_curve_rows
from gavel.launch.comparing.training import TrainedRun, compare_training
from gavel.launch.comparing.trait_changes import find_trait_changes
from gavel.launch.runs.files import write_whole

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    + (
        "table{border-collapse:collapse}td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid "
        "#8884}svg{background:#fff}"
    )
)


def write_training(path: Path, file: Path, form: str = "html") -> int:
    """Write the report of a training run; return its number of steps.

    Raises:
        ConfigError: the run has not done a step.
        InputError: its ledger is damaged.
    """
    (run,) = read_training_runs([Named(path)], traits=True)
    data = _FORMS[form](run)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, data)
    return len({sample.step for sample in run.samples})


def _make_table(run: TrainedRun) -> tuple[Sequence[str], list[tuple[str, ...]], list[str]]:
    found = compare_training([run], window=WINDOW)
    return (
        CURVES[3:],
        [row[3:] for row in make_curve_rows(found)],
        [*summarize_reward(run.samples, WINDOW, run.bounds), *list_notes(found), *describe_traits(run.samples)],
    )


def describe_traits(samples: Sequence[LedgerSample]) -> list[str]:
    """Say of each trait of the replies how it moved; what is to be looked at comes first and says so."""
    found = sorted(find_trait_changes(samples), key=lambda change: not change.beyond)
    return [("look at the replies: " if change.beyond else "") + change.describe() for change in found]


def _format_markdown(run: TrainedRun) -> bytes:
    columns, rows, lines = _make_table(run)
    return "\n".join(
        [f"# {run.name}", "", *(f"- {line}" for line in lines), "", *format_markdown(columns, rows), ""]
    ).encode()


def _format_html(run: TrainedRun) -> bytes:
    columns, rows, lines = _make_table(run)
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    said = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    name = html.escape(run.name)
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name} · gavel</title><style>{_STYLE}</style>'
        f"<h1>{name}</h1><p>Rewarded by {html.escape(run.reward)}, seed {run.seed}.</p><ul>{said}</ul>{_draw_svg(run)}"
        f"<table><tr>{head}</tr>{cells}</table></html>\n"
    )
    return page.encode()


def _draw_svg(run: TrainedRun) -> str:
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / CURVE
        if not draw_runs(picture, {run.name: run.samples}):
            return "<p>The curve needs matplotlib (extra <code>report</code>).</p>"
        text = picture.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def _format_csv(run: TrainedRun) -> bytes:
    columns, rows, _ = _make_table(run)
    return format_csv(columns, rows)


_FORMS: Mapping[str, Callable[[TrainedRun], bytes]] = {"html": _format_html, "md": _format_markdown, "csv": _format_csv}
