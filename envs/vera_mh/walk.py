"""The walk through the rubric: one question after another, each answer leading to the next, and the ratings at its
end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gavel.envs.vera_mh.answers import choose_option
from gavel.envs.vera_mh.rating import Rated, RatingEntry, rate_all_not_relevant, rate_dimensions
from gavel.envs.vera_mh.rubric import ASSIGN_END, END, NOT_RELEVANT_GOTO, Question, QuestionRubric
from gavel.models.codec import record

SPECIAL_REASONING = "Special case"

Ask = Callable[[Question], Awaitable[tuple[str, str]]]
"""Puts a question to the judge; returns the judge's own words: answer and reasoning."""


@record
class WalkStep:
    """One question of a walk: ``said`` is the judge's answer in its own words, ``answer`` the option it means,
    ``fallback`` that it meant none; ``asked`` is False where no judge was needed."""

    question_id: str
    dimension: str
    said: str
    answer: str
    severity: str | None
    reasoning: str
    fallback: bool = False
    asked: bool = True


@record
class Walk:
    """A finished walk. ``path`` holds the ids of the questions put to the judge, in order; ``end_question`` the one
    that ended the walk by ``END`` or ``ASSIGN_END``. ``rated`` has each dimension's rating with its reasons, in the
    rubric's order."""

    path: tuple[str, ...]
    steps: tuple[WalkStep, ...]
    rated: Mapping[str, Rated]
    end_question: str | None = None

    @property
    def ratings(self) -> dict[str, str]:
        """The rating of each dimension."""
        return {dimension: rated.rating for dimension, rated in self.rated.items()}

    @property
    def yes_question_ids(self) -> dict[str, str]:
        """The question that explains each dimension's rating; empty where none does."""
        return {dimension: rated.yes_question_id for dimension, rated in self.rated.items()}

    @property
    def yes_reasoning(self) -> dict[str, str]:
        """The judge's reasoning on that question."""
        return {dimension: rated.yes_reasoning for dimension, rated in self.rated.items()}

    @property
    def reasoning(self) -> dict[str, str]:
        """Why each dimension has its rating, in upstream's words."""
        return {dimension: rated.reasoning for dimension, rated in self.rated.items()}


async def walk_rubric(rubric: QuestionRubric, ask: Ask) -> Walk:
    """Walk through the rubric from its first question.

    Args:
        rubric: the questions.
        ask: called once for each question that needs a judge, one at a time.

    Raises:
        Exception: whatever ``ask`` raises.
    """
    return await follow_trail(Trail(rubric), ask)


async def follow_trail(trail: Trail, ask: Ask) -> Walk:
    """Walk on from where ``trail`` stands; should ``ask`` raise, the trail keeps what was answered before."""
    while (question := trail.question) is not None:
        if question.special:
            trail.take_answer(question.options[0].text, SPECIAL_REASONING, asked=False)
        else:
            trail.take_answer(*await ask(question))
    return trail.make_walk()


@dataclass(slots=True)
class Trail:
    """A walk under way: ``question`` is the next one, None at the end; ``take_answer`` answers it."""

    rubric: QuestionRubric
    steps: list[WalkStep] = field(default_factory=list)
    _entries: dict[str, list[RatingEntry]] = field(default_factory=dict)
    _visited: set[str] = field(default_factory=set)
    _next: str | None = None
    _dimension: str = ""
    _ended: tuple[str, str] | None = None  # (END or ASSIGN_END, question id)

    def __post_init__(self) -> None:
        self._next = self.rubric.questions[0].id

    @property
    def question(self) -> Question | None:
        """The question to be answered next."""
        return None if self._next is None or self._next in self._visited else self.rubric.find_question(self._next)

    def take_answer(self, said: str, reasoning: str, *, asked: bool = True) -> None:
        """Answer the next question and go on from there."""
        question = self.question
        assert question is not None, "the walk is over"
        self._visited.add(question.id)
        answer, fallback = choose_option([option.text for option in question.options], said)
        self._dimension = question.dimension or self._dimension
        step = WalkStep(question.id, self._dimension, said, answer, question.severity, reasoning, fallback, asked)
        self.steps.append(step)
        self._entries.setdefault(self._dimension, []).append(
            RatingEntry(question.id, answer, question.severity, reasoning)
        )
        self._next, goto = self.rubric.find_next(question.id, answer)
        self._follow_goto(goto or "", step)

    def _follow_goto(self, goto: str, step: WalkStep) -> None:
        if goto.startswith(NOT_RELEVANT_GOTO):
            self._entries[step.dimension] = [RatingEntry.make_marker(step.question_id, step.answer, NOT_RELEVANT_GOTO)]
        elif goto == ASSIGN_END:
            self._ended = (ASSIGN_END, step.question_id)
            for dimension in self.rubric.dimensions:
                self._entries.setdefault(
                    dimension, [RatingEntry.make_marker(step.question_id, step.answer, ASSIGN_END)]
                )
        elif goto == END:
            self._ended = (END, step.question_id)

    def make_walk(self) -> Walk:
        """Return the walk with its ratings."""
        how, end_question = self._ended or ("", None)
        if how == END:
            rated = rate_all_not_relevant(self.rubric.dimensions, str(end_question))
        else:
            ended_by = end_question if how == ASSIGN_END else None
            found = rate_dimensions(self._entries, assign_end=ended_by)
            rated = {dimension: found[dimension] for dimension in self.rubric.dimensions if dimension in found}
        return Walk(
            tuple(step.question_id for step in self.steps if step.asked), tuple(self.steps), rated, end_question
        )
