"""An environment of one's own, played and graded: python examples/own_environment.py.

The policy guesses a number and is told ``higher`` or ``lower``. ``gavel new env NAME`` writes such a one as a package
of its own, with configs and tests, for the commands and the trainers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import gavel

MOST_GUESSES = 5


@gavel.record
class Target:
    """The number to be found, from 1 to 20."""

    number: int


class GuessTheNumber:
    """Answers each guess until it is right or there were ``MOST_GUESSES``; all state is in the transcript."""

    name = "guess_the_number"
    info = gavel.EnvironmentInfo(policy_turns=MOST_GUESSES)

    def parse_target(self, raw: Mapping[str, Any]) -> Target:
        """Read a target."""
        return Target(int(raw["number"]))

    async def open(self, task: gavel.Task) -> gavel.Opening:
        """Begin with the task's own messages."""
        return gavel.Opening(task.messages)

    async def step(self, task: gavel.Task, transcript: gavel.Transcript) -> gavel.Observe | gavel.Finish:
        """Answer the newest guess, or end."""
        text, guesses = transcript.messages[-1].content.strip(), len(transcript.replies)
        if not text.isdecimal():  # the policy's own bad form is graded
            return _end("no_number", guesses, f"{text[:40]!r} is no number")
        if int(text) == task.target.number:
            return _end("found", guesses, f"found with guess {guesses}")
        if guesses == MOST_GUESSES:
            return _end("not_found", guesses, f"not found in {guesses} guesses")
        return gavel.Observe((gavel.Message("user", "higher" if int(text) < task.target.number else "lower"),))

    def summarize(self, results: Sequence[gavel.Result]) -> gavel.Summary:
        """Return the share of numbers that were found."""
        graded = [result for result in results if result.outcome.graded]  # a failed row is in no figure
        found = sum(result.outcome.label == "found" for result in graded)
        share = {f"{self.name}/found": gavel.Metric(found / len(graded), None, None, len(graded))} if graded else {}
        return gavel.Summary(share, {})


def _end(label: str, guesses: int, why: str) -> gavel.Finish:
    right = label == "found"
    return gavel.Finish(gavel.Outcome(label, (gavel.Check("found", right, float(right), why),), {"guesses": guesses}))


class FewGuesses:
    """1 for the first guess, less for each further one, 0 where it was not found; a pure function of the outcome."""

    bounds = (0.0, 1.0)
    ablation = None

    def reward(self, outcome: gavel.Outcome) -> gavel.Reward:
        """Return the reward."""
        guesses = (outcome.details or {})["guesses"]
        value = 1.0 - (guesses - 1) / MOST_GUESSES if outcome.label == "found" else 0.0
        return gavel.Reward(value, {outcome.label: value})


def answer_by_halves(messages: Sequence[gavel.Message]) -> str:
    """A policy: halve what is left."""
    low, high = 1, 20
    for guess, answer in zip(messages[1::2], messages[2::2], strict=False):
        low, high = (int(guess.content) + 1, high) if answer.content == "higher" else (low, int(guess.content) - 1)
    return str((low + high) // 2)


async def play(environment: GuessTheNumber, task: gavel.Task) -> tuple[gavel.Message, ...]:
    """Play an episode to its end."""
    messages = (await environment.open(task)).messages
    while True:
        text = answer_by_halves(messages)
        messages = (*messages, gavel.Message("assistant", text, gavel.Reply(text, "stop", "halves")))
        said = await environment.step(task, gavel.Transcript(messages))
        if isinstance(said, gavel.Finish):
            return messages
        messages = (*messages, *said.messages)


def main() -> None:
    """Play three tasks and grade them."""
    environment, results = GuessTheNumber(), []
    with gavel.Grader.of(environment, FewGuesses()) as grader:
        for number in (10, 3, 19):
            asked = (gavel.Message("user", "Guess my number, from 1 to 20. Say the number alone."),)
            task = gavel.Task(
                f"n-{number}", environment.name, "numbers/none", asked, environment.parse_target({"number": number}), {}
            )
            result = grader.grade(task, asyncio.run(play(environment, task)))
            results.append(result)
            print(
                result.task_id, result.outcome.label, result.reward.value if result.reward else result.outcome.failure
            )
    print({name: metric.value for name, metric in environment.summarize(results).metrics.items()})


if __name__ == "__main__":
    main()
