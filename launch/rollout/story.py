"""One row's whole story: prompt, reply, checks with reasons, judge prompt and raw verdict, reward arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gavel.envs.types import Result
from gavel.judges.bindings import Binding
from gavel.judges.types import StoredAnswer
from gavel.models.codec import to_plain
from gavel.models.errors import make_visible
from gavel.models.service import get_display_name
from gavel.models.types import Receipt

SHOW = "show_sensitive=true"
"""What unfolds a transcript on the command line."""


def tell_story(
    result: Result, answers: Iterable[StoredAnswer], bindings: Mapping[str, Binding], note: str | None = None
) -> RenderableType:
    """Return the story of one attempt for a console; texts are shown as they are, without markup, control characters
    written out.

    Args:
        result: the attempt.
        answers: the row's answered questions.
        bindings: the judges by name.
        note: what the transcript is about, if it is to stay folded; None shows it.
    """
    parts: list[RenderableType] = [
        Rule(_make_text(f"{result.task_id} · rollout {result.rollout_index} · attempt {result.attempt}"))
    ]
    parts += _show_transcript(result, note)
    shown: dict[str, str] = {}
    for answer in answers:
        parts += _show_question(answer, bindings, shown, note)
    parts += [_show_outcome(result), *_show_reward(result), _show_calls(result.receipts)]
    return Group(*parts)


def _show_transcript(result: Result, note: str | None) -> Iterator[RenderableType]:
    messages = result.transcript.messages
    if note is None:
        yield from (_make_panel(message.role, message.content) for message in messages)
    else:
        yield _make_panel("content note", f"{note}\n[… {len(messages)} messages folded; {SHOW} shows them …]", "yellow")


def _make_panel(title: str, text: str, style: str = "") -> Panel:
    return Panel(
        _make_text(text or "(empty)"), title=_make_text(title), title_align="left", border_style=style or "dim"
    )


def _make_text(text: str, style: str = "") -> Text:
    return Text(make_visible(text), style=style)


def _show_question(
    answer: StoredAnswer, bindings: Mapping[str, Binding], shown: dict[str, str], note: str | None
) -> Iterator[RenderableType]:
    """Yield a question and its answer; ``shown`` are the slots that stand above already, by name."""
    if not answer.rubric_digest:  # a simulator's words, which stand in the transcript
        return
    binding = bindings.get(answer.binding)
    slots = {name: _show_slot(name, text, shown, note) for name, text in answer.slots.items()}
    if binding is not None and binding.rubric.digest == answer.rubric_digest:
        for message in binding.rubric.render(slots):
            yield _make_panel(
                f"judge prompt · {answer.binding} · {message.role}", _fold_prompt(message.content, slots), "cyan"
            )
    else:
        yield _make_panel(f"judge slots · {answer.binding} (the rubric has changed since)", str(slots), "cyan")
    yield _make_panel(f"judge reply · {answer.binding}", answer.raw, "cyan")


_KEPT_LINES = 6
"""Lines of a rubric's fixed text that stay in sight on each side of the fold."""


def _show_slot(name: str, text: str, shown: dict[str, str], note: str | None) -> str:
    """Fold a text of several lines that must stay folded, or that stands above already: many questions may be about one
    text.
    """
    lines, before = len(text.splitlines()), shown.get(name)
    if note is not None and lines > 1:
        return f"[… {name}: {lines} lines folded; {SHOW} shows them …]"
    shown[name] = text
    return f"[… {name}: the {lines} lines above …]" if text == before and lines > _KEPT_LINES else text


def _fold_prompt(text: str, slots: Mapping[str, str]) -> str:
    """Fold the fixed text before the first slot: it is the same for every row, and its digest stands in the result."""
    starts = [
        place for value in slots.values() if value.strip() and (place := text.rfind(value.strip().splitlines()[0])) >= 0
    ]
    fixed = text[: min(starts, default=0)].splitlines()
    folded = len(fixed) - 2 * _KEPT_LINES
    if folded < _KEPT_LINES:
        return text
    rest = text[min(starts) :]
    note = f"[… {folded} lines of the rubric's fixed text …]"
    return (
        "\n".join([*fixed[:_KEPT_LINES], note, *fixed[-_KEPT_LINES:]])
        + ("\n" if text[min(starts) - 1] == "\n" else "")
        + rest
    )


def _show_outcome(result: Result) -> RenderableType:
    table = Table(title="outcome", title_justify="left", show_edge=False)
    for column in ("check", "passed", "score", "detail"):
        table.add_column(column, overflow="fold")
    for check in result.outcome.checks:
        passed = {True: "yes", False: "no", None: "not checked"}[check.passed]
        table.add_row(_make_text(check.name), passed, f"{check.score:g}", _make_text(check.detail))
    failure = result.outcome.failure
    head = (
        f"label: {result.outcome.label}"
        if failure is None
        else f"ungraded: {failure.kind} at {failure.stage}: {failure.reason}"
    )
    details = to_plain(dict(result.outcome.details or {}))
    lines = [_make_text(head, style="bold"), *(_make_text(f"{name}: {value}") for name, value in details.items())]
    return Group(*lines, *([table] if result.outcome.checks else []))


def _show_reward(result: Result) -> Iterator[RenderableType]:
    if result.reward is None:
        yield Text(
            "reward: none (an ungraded row has no reward; the fallback 0.0 is averaged into nothing)", style="bold"
        )
        return
    terms = " + ".join(f"{name} {value:g}" for name, value in result.reward.components.items())
    yield _make_text(
        f"reward: {result.reward.value:g} = {terms}" if terms else f"reward: {result.reward.value:g}", style="bold"
    )


def _show_calls(receipts: tuple[Receipt, ...]) -> RenderableType:
    table = Table(title="calls", title_justify="left", show_edge=False)
    for column in ("role", "service", "model", "finish", "tokens in/out", "seconds", "attempts", "call id"):
        table.add_column(column, overflow="fold")
    for receipt in receipts:
        usage = receipt.usage
        tokens = f"{usage.prompt_tokens}/{usage.completion_tokens}" if usage else "?"
        how = "cache" if receipt.cache_hit else "shared" if receipt.shared else str(len(receipt.attempts))
        cells = (
            receipt.role,
            get_display_name(receipt.service),
            receipt.served_model or receipt.requested_model,
            receipt.finish_reason or "-",
            tokens,
            f"{receipt.latency_s:.2f}",
            how,
            receipt.call_id,
        )
        table.add_row(*(_make_text(cell) for cell in cells))
    return table
