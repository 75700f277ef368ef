"""Replies of several runs to the same tasks against each other: what is asked, and the figures of the verdicts.

A win rate is (wins + ties / 2) / verdicts, with an interval clustered by task. Strengths are those of Bradley and Terry
(1952), fitted by Hunter's MM algorithm (2004), a tie as half a win of each; half a win is added to each side of every
two that met, so that one who never lost has a strength as well. Their intervals are percentiles over draws of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from gavel.envs.slot_texts import fill_slots
from gavel.envs.statistics import compute_mean, compute_share, encode_names
from gavel.envs.types import Metric, Task, Transcript
from gavel.judges.bindings import Binding
from gavel.judges.form_types import PairForm, RubricForm
from gavel.judges.pairs.rules import FIRST, PAIR_SCORES, SECOND, TIE, PairVerdict
from gavel.models.codec import compute_digest, record
from gavel.models.errors import ConfigError, shorten_value
from gavel.models.failures import Failure
from gavel.models.statistics import Floats
from gavel.models.types import Receipt

_STEPS, _PRIOR = 200, 0.5


@dataclass(frozen=True, slots=True)
class Contestant:
    """A run's replies by (task id, rollout): each with its task; ``unanswered`` counts planned rows without one."""

    name: str
    replies: Mapping[tuple[str, int], tuple[Task, Transcript]]
    unanswered: int = 0


@dataclass(frozen=True, slots=True)
class Duel:
    """Two replies to one task, with the texts that the judge is asked about; ``key`` names the question."""

    key: str
    task_id: str
    rollout_index: int
    first: str
    second: str
    slots: Mapping[str, str]


@record
class DuelLine:
    """A duel as stored: who won by the rubric's rule (None with a ``failure``), what each order said of the two."""

    SCHEMA: ClassVar[str] = "gavel.duel/1"

    key: str
    task_id: str
    rollout_index: int
    first: str
    second: str
    winner: PairVerdict | None
    orders: tuple[PairVerdict, PairVerdict] | None
    position_flip: bool
    failure: Failure | None
    receipts: tuple[Receipt, ...]


@record
class DuelCount:
    """Two contestants: verdicts by who won, how many pairs flipped by place, how many have no verdict; ``win_rate`` is
    the first one's.
    """

    first: str
    second: str
    wins: int
    ties: int
    losses: int
    ungraded: int
    win_rate: Metric | None
    position_flips: Metric | None


@record
class DuelFigures:
    """All pairs, and each contestant's strength: log-odds of beating the first one named, 0 for that one."""

    pairs: tuple[DuelCount, ...]
    strengths: Mapping[str, Metric]


def list_duels(contestants: Sequence[Contestant], form: RubricForm, pair: PairForm, binding: Binding) -> list[Duel]:
    """Return every two contestants' replies to one task, rollout by rollout.

    Raises:
        ConfigError: a task is not the same in both.
        TaskError: the rubric needs a text that a task lacks.
    """
    return [
        duel
        for one, other in combinations(contestants, 2)
        for key in one.replies
        if key in other.replies
        for duel in [_make_duel(one, other, key, form, pair, binding)]
    ]


def _make_duel(
    one: Contestant, other: Contestant, key: tuple[str, int], form: RubricForm, pair: PairForm, binding: Binding
) -> Duel:
    (task, mine), (same, theirs) = one.replies[key], other.replies[key]
    if task.messages != same.messages:
        raise ConfigError(
            "a task of one name is not the same in both",
            field="runs",
            found=f"{key[0]}: {' and '.join(shorten_value(one.messages[-1].content) for one in (task, same))}",
            remedy="compare runs of the same tasks",
        )
    rival = form.sources[pair.second]
    text = fill_slots(form, task, theirs, {rival: ""})[pair.first]
    slots = fill_slots(form, task, mine, {rival: text})
    digest = compute_digest([binding.digest, slots])
    return Duel(digest, *key, one.name, other.name, slots)


def compute_figures(lines: Sequence[DuelLine], names: Sequence[str], *, draws: int, seed: int) -> DuelFigures:
    """Return the figures of duels.

    Args:
        lines: the newest line of each duel.
        names: the contestants, the base first.
        draws: of tasks, for the intervals of strengths.
        seed: of the draws.
    """
    pairs = tuple(
        _count_pair([line for line in lines if (line.first, line.second) == both], *both)
        for both in combinations(names, 2)
    )
    return DuelFigures(pairs, _compute_strengths([line for line in lines if line.winner], names, draws, seed))


def _count_pair(lines: Sequence[DuelLine], first: str, second: str) -> DuelCount:
    known = [(line, line.winner) for line in lines if line.winner is not None]
    clusters = encode_names(line.task_id for line, _ in known)
    winners = [winner for _, winner in known]
    return DuelCount(
        first,
        second,
        winners.count(FIRST),
        winners.count(TIE),
        winners.count(SECOND),
        len(lines) - len(known),
        compute_mean([PAIR_SCORES[winner] for winner in winners], clusters, bounds=(0.0, 1.0)) if known else None,
        compute_share([line.position_flip for line, _ in known], clusters) if known else None,
    )


def _compute_strengths(lines: Sequence[DuelLine], names: Sequence[str], draws: int, seed: int) -> dict[str, Metric]:
    """Return each contestant's strength; nobody who met nobody has one."""
    if not lines:
        return {}
    place = {name: index for index, name in enumerate(names)}
    tasks = encode_names(line.task_id for line in lines)
    count, size = int(tasks.max()) + 1, len(names)
    wins = np.zeros((count, size, size))
    for task, line in zip(tasks, lines, strict=True):
        score = PAIR_SCORES[line.winner] if line.winner is not None else 0.0
        wins[task, place[line.first], place[line.second]] += score
        wins[task, place[line.second], place[line.first]] += 1.0 - score
    whole = wins.sum(axis=0)
    met = whole + whole.T > 0
    value = fit_strengths(whole + _PRIOR * met)
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws)
    drawn = np.tensordot(weights, wins, axes=1)
    spread = fit_strengths(drawn + _PRIOR * met)
    low, high = np.quantile(spread, (0.025, 0.975), axis=0) if count > 1 else (None, None)
    return {
        name: Metric(
            float(value[index]),
            None if low is None else float(low[index]),
            None if high is None else float(high[index]),
            int(whole[index].sum() + whole[:, index].sum()),
        )
        for name, index in place.items()
        if met[index].any()
    }


def fit_strengths(wins: Floats) -> Floats:
    """Return log-strengths, shape (…, k), that of the first 0.

    Args:
        wins: shape (…, k, k): how often the row beat the column, above 0 for any two that met.
    """
    met = wins + np.swapaxes(wins, -1, -2)
    won = wins.sum(axis=-1)
    strength: Floats = np.ones(won.shape)
    for _ in range(_STEPS):
        below = (met / (strength[..., :, None] + strength[..., None, :])).sum(axis=-1)
        strength = np.where(below > 0, won / np.where(below > 0, below, 1.0), 1.0)
        strength = strength / np.exp(np.log(strength).mean(axis=-1, keepdims=True))
    logs: Floats = np.log(strength)
    return logs - logs[..., :1]


def iter_rows(figures: DuelFigures) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the table of pairs, as ``COLUMNS`` names them."""
    for one in figures.pairs:
        yield (
            one.first,
            one.second,
            *map(str, (one.wins, one.ties, one.losses)),
            format_metric(one.win_rate),
            format_metric(one.position_flips),
            str(one.ungraded),
        )


COLUMNS = ("first", "second", "wins", "ties", "losses", "win rate of the first", "flips by place", "ungraded")


def format_metric(metric: Metric | None) -> str:
    """Return a figure with its interval: ``0.62 [0.48, 0.74]``; empty where there is none."""
    if metric is None:
        return ""
    if metric.low is None or metric.high is None:
        return f"{metric.value:.3f}"
    return f"{metric.value:.3f} [{metric.low:.3f}, {metric.high:.3f}]"
