"""The options of the VERA-MH environment."""

from __future__ import annotations

from gavel.envs.types import EnvironmentInfo
from gavel.envs.vera_mh.conversation import compute_utterance_limit
from gavel.models.codec import record
from gavel.models.errors import ConfigError
from gavel.models.types import Sampling


@record
class SimulatorConfig:
    """A model that plays personas: ``service`` is declared under ``services``; what is None is not sent."""

    service: str
    temperature: float | None = None
    top_p: float | None = None
    max_response_tokens: int | None = None
    reasoning_effort: str | None = None

    @property
    def sampling(self) -> Sampling:
        """How its words are drawn."""
        return Sampling(self.temperature, self.top_p, self.max_response_tokens, reasoning_effort=self.reasoning_effort)


@record
class VeraMhConfig:
    """``binding`` names the judge. ``simulators`` are those a task may name, in the order in which tasks are made.
    ``max_turns`` counts utterances of both sides. ``max_total_words`` ends a conversation by its length.
    ``chatbot_prompt`` goes into the tasks that are made (None: upstream's, empty: no system message); elsewhere None
    stands for the task's own, and tasks with other instructions than those that are set are refused. ``parse_retries``
    is how often a question is asked again where the judge's reply cannot be read."""

    binding: str = "vera_mh"
    simulators: tuple[SimulatorConfig, ...] = (
        SimulatorConfig("simulator_gpt"),
        SimulatorConfig("simulator_claude", max_response_tokens=1024),
    )
    max_turns: int = 30
    max_total_words: int | None = None
    chatbot_prompt: str | None = None
    parse_retries: int = 8

    @property
    def called_services(self) -> tuple[str, ...]:
        """The services this environment calls besides the judge."""
        return tuple(simulator.service for simulator in self.simulators)

    @property
    def info(self) -> EnvironmentInfo:
        """What the environment needs.

        The persona speaks first: a task holds the chatbot's instructions only. All conversations of a persona are
        alike. What a provider's filter left of a chatbot's words was said, as upstream has it. The recommended profile
        declares its simulators whether they are called or not.
        """
        return EnvironmentInfo(
            policy_turns=self.policy_turns,
            speaks_first=True,
            clusters="persona",
            binding=self.binding,
            called_services=self.called_services,
            spare_services=tuple(simulator.service for simulator in VeraMhConfig().simulators),
        )

    @property
    def utterance_limit(self) -> int:
        """Utterances at most; the chatbot has the last word."""
        return compute_utterance_limit(self.max_turns)

    @property
    def policy_turns(self) -> int:
        """Replies of the chatbot at most: what a trainer's own limit on turns must allow."""
        return self.utterance_limit // 2

    def check_config(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigError: names the key.
        """
        if not self.simulators:
            raise ConfigError("no simulator is named", field="env.simulators", allowed="a list of {service: NAME}")
        if len(set(self.called_services)) != len(self.simulators):
            raise ConfigError(
                "a simulator is named twice", field="env.simulators", found=", ".join(self.called_services)
            )
        for key, least in (("max_turns", 1), ("parse_retries", 0), ("max_total_words", 1)):
            if (value := getattr(self, key)) is not None and value < least:
                raise ConfigError("out of range", field=f"env.{key}", found=str(value), allowed=f"at least {least}")
