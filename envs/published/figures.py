"""What a published figure is, and what it comes to here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gavel.envs.published.files import PublishedFiles
from gavel.models.codec import record


@record
class Figure:
    """One figure: as ``published``, and as ``computed`` here, both in the published form; ``equal`` within its
    rounding, None where nothing was published that it could be held against: ``published`` is then empty, or of another
    kind.
    """

    what: str
    published: str
    computed: str
    equal: bool | None


@dataclass(frozen=True, slots=True)
class Study:
    """What was published at one place: ``source`` says where the figure stands, ``licence`` under what its data are,
    and ``note`` what a reader of the figures must know.
    """

    name: str
    source: str
    licence: str
    compute: Callable[[PublishedFiles], Sequence[Figure]]
    note: str = ""


def make_figure(what: str, published: object, computed: object) -> Figure:
    """Return a figure that is equal where both read the same."""
    return Figure(what, str(published), str(computed), str(published) == str(computed))


def make_count(what: str, published: tuple[int, int], computed: tuple[int, int]) -> Figure:
    """Return a share of whole numbers: ``77/294 = 26.19 %``."""
    return make_figure(
        what, *(f"{count}/{total} = {100 * count / total:.2f} %" for count, total in (published, computed))
    )
