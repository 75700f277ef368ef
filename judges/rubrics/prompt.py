"""A rubric of one prompt: a template, how its slots are written, and how the reply is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gavel.judges.form_types import RubricForm
from gavel.judges.neutralise import Neutraliser, find_hostile
from gavel.judges.rubrics.template import Template
from gavel.judges.types import Control, RubricConfig, Verdict
from gavel.models.codec import compute_digest
from gavel.models.types import Message, ResponseFormat, Sampling

FORMAT = "prompt-rubric/1"
"""Goes into every digest; raised when this module changes what is sent or how it is read."""


@dataclass(frozen=True, slots=True)
class PromptRubric:
    """Sends one user message. ``prepare`` turns the slots into the template's values, ``reader`` reads the reply's
    text, ``judged`` is the slot with the text under judgement; ``neutraliser`` cleans every slot (None: exact bytes are
    sent). ``form`` is what a rubric of a file was made of, ``attacks`` the attacks of its own (None: those that fit its
    slots). See ``judges.types.Rubric`` for the rest."""

    profile: str
    targets: tuple[str, ...]
    slots: tuple[str, ...]
    labels: tuple[str, ...]
    sampling: Sampling
    response_format: ResponseFormat | None
    digest: str
    controls: tuple[Control, ...]
    template: Template
    prepare: Callable[[Mapping[str, str]], Mapping[str, str]]
    reader: Callable[[str], Verdict]
    judged: str
    neutraliser: Neutraliser | None = None
    form: RubricForm | None = None
    attacks: tuple[Control, ...] | None = None

    def render(self, slots: Mapping[str, str]) -> tuple[Message, ...]:
        """Fill the template in one pass.

        Raises:
            InputError: a slot is missing or unknown.
        """
        if self.neutraliser is None:
            return (Message("user", self.template.fill(self.prepare(slots))),)
        cleaned = {name: self.neutraliser.clean_text(text) for name, text in slots.items()}
        return (Message("user", self.neutraliser.join_parts(self.template.fill_parts(self.prepare(cleaned)))),)

    @property
    def guards_tokens(self) -> bool:
        """Whether special tokens are neutralised; see ``TokenGuarding``."""
        return self.neutraliser is not None

    def guard_tokens(self, tokens: tuple[str, ...]) -> PromptRubric:
        """Return the rubric that neutralises these tokens too; see ``TokenGuarding``."""
        return self if self.neutraliser is None else replace(self, neutraliser=self.neutraliser.with_tokens(tokens))

    def parse(self, text: str) -> Verdict:
        """Read a complete reply.

        Raises:
            Unparseable: the reply is off the contract.
        """
        return self.reader(text)

    def flags(self, slots: Mapping[str, str]) -> tuple[str, ...]:
        """Name what is hostile in the texts to be judged."""
        text = "\n".join(slots[name] for name in self.form.hostile) if self.form is not None else slots[self.judged]
        return find_hostile(text) if self.neutraliser is None else self.neutraliser.find_flags(text)


def make_sampling(config: RubricConfig, *, max_response_tokens: int, temperature: float) -> Sampling:
    """Return the sampling of a configured rubric; what the config leaves open is the profile's default."""
    return Sampling(
        temperature=temperature if config.temperature is None else config.temperature,
        top_p=config.top_p,
        max_response_tokens=max_response_tokens if config.max_response_tokens is None else config.max_response_tokens,
        reasoning_effort=config.reasoning_effort,
    )


def compute_rubric_digest(
    profile: str, version: str, text: Any, sampling: Sampling, response_format: ResponseFormat | None
) -> str:
    """Return the digest of a rubric: the text, how it is written and read (``version``), the sampling and the response
    format.
    """
    return compute_digest([FORMAT, profile, version, text, sampling, response_format])
