"""A rubric of one prompt: a template, how its slots are written, and how the reply is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gavel.judges.template import Template
from gavel.judges.types import Control, RubricConfig, Verdict
from gavel.models.codec import digest
from gavel.models.types import Message, ResponseFormat, Sampling

FORMAT = "prompt-rubric/1"
"""Goes into every digest; raised when this module changes what is sent or how it is read."""


@dataclass(frozen=True, slots=True)
class PromptRubric:
    """Sends one user message. ``prepare`` turns the slots into the template's values, ``reader`` reads the reply's text, ``flagger``
    names what is hostile in the slots; see ``judges.types.Rubric`` for the rest."""

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
    flagger: Callable[[Mapping[str, str]], tuple[str, ...]]

    def render(self, slots: Mapping[str, str]) -> tuple[Message, ...]:
        """Fill the template in one pass.

        Raises:
            InputError: a slot is missing or unknown.
        """
        return (Message("user", self.template.fill(self.prepare(slots))),)

    def parse(self, text: str) -> Verdict:
        """Read a complete reply.

        Raises:
            Unparseable: the reply is off the contract.
        """
        return self.reader(text)

    def flags(self, slots: Mapping[str, str]) -> tuple[str, ...]:
        """Name what is hostile in the texts to be judged."""
        return self.flagger(slots)


def sampling(config: RubricConfig, *, max_response_tokens: int, temperature: float) -> Sampling:
    """Return the sampling of a configured rubric; what the config leaves open is the profile's default."""
    return Sampling(
        temperature=temperature if config.temperature is None else config.temperature,
        top_p=config.top_p,
        max_response_tokens=max_response_tokens if config.max_response_tokens is None else config.max_response_tokens,
        reasoning_effort=config.reasoning_effort,
    )


def rubric_digest(profile: str, version: str, text: str, sampling: Sampling, response_format: ResponseFormat | None) -> str:
    """Return the digest of a rubric: the text, how it is written and read (``version``), the sampling and the response format."""
    return digest([FORMAT, profile, version, text, sampling, response_format])
