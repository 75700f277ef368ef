"""``gavel reproduce NAME|all``: figures that others published, computed again from what they stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gavel.envs.published.figures import Figure, Study
from gavel.envs.published.files import PublishedFiles
from gavel.envs.published.studies import STUDIES
from gavel.launch.config.console import print_line
from gavel.launch.config.schema import ReproduceConfig
from gavel.models.errors import ConfigError, find_nearest
from gavel.models.pinned import AssetError

EQUAL, DIFFERENT = 0, 3
_WORDS = {True: "equal", False: "DIFFERENT", None: ""}


def run(config: ReproduceConfig, console: Console) -> int:
    """Run the verb; see ``gavel reproduce --help``. Returns 0, or 3 where a figure is not the published one, or none
    could be computed.

    A study among others whose files cannot be had is said so; it is no figure that differs.
    """
    studies = _choose_studies(config.name)
    files = PublishedFiles(
        Path(config.data).expanduser() if config.data else None,
        Path(config.assets.cache).expanduser() if config.assets.cache else None,
        offline=config.assets.offline,
    )
    table = Table("study", "figure", "published", "here", "", title_justify="left", show_edge=False)
    missing: list[str] = []
    different = 0
    for study in studies:
        try:
            figures = study.compute(files)
        except AssetError as failed:
            missing.append(f"{study.name}: its files cannot be had: {str(failed).splitlines()[0]}")
            continue
        different += sum(figure.equal is False for figure in figures)
        _add_rows(table, study, figures)
    if table.rows:
        console.print(table)
    for study in studies:
        note = f"; {study.note}" if study.note else ""
        print_line(console, f"{study.name}: published in {study.source}; data: {study.licence}{note}")
    for line in missing:
        print_line(console, line, style="bold")
    return DIFFERENT if different or not table.rows else EQUAL


def _choose_studies(name: str) -> list[Study]:
    if name == "all":
        return list(STUDIES.values())
    if name not in STUDIES:
        near = find_nearest(name, STUDIES)
        raise ConfigError(
            "there is no such study",
            field="name",
            found=name,
            allowed=f"all, {', '.join(STUDIES)}",
            remedy=f"did you mean {near[0]}?" if near else "",
        )
    return [STUDIES[name]]


def _add_rows(table: Table, study: Study, figures: Sequence[Figure]) -> None:
    for place, figure in enumerate(figures):
        table.add_row(
            study.name if place == 0 else "", figure.what, figure.published, figure.computed, _WORDS[figure.equal]
        )
