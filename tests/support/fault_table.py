"""What each fault must come to in a rollout, as one table; ``docs/failures.md`` shows it.

python -m tests.support.fault_table        # writes the marked section of the page anew
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.faults import UNFINISHED, Fault

PAGE = Path(__file__).parents[2] / "docs" / "failures.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
HEADER = "| what the server does | kind, if it lasts | again within the call | where it is the policy's reply |"


@dataclass(frozen=True)
class Expected:
    """``kind`` the row ends with where the fault lasts; ``again``: the call is tried again; ``policy``: what becomes of
    it in a policy's reply, None = the same, a label = it is graded so, ``own`` = it is graded like any text, or another
    kind. ``trips``: no later call of the run is tried."""

    fault: Fault
    words: str
    kind: str
    again: bool
    policy: str | None = None
    trips: bool = False

    @property
    def name(self) -> str:
        """A name of its own."""
        return f"{self.fault.name}+retry_after" if self.fault.retry_after else self.fault.name


OWN = "own"
LABELS = ("truncated", "no_answer")
_AGAIN, _REFUSED, _ACCOUNT = "provider_unavailable", "judge_failed", "provider_quota_exhausted"
_DROP, _LATE, _UNREAD = "transport_peer_drop", "transport_timeout", "judge_unparseable"


def _row(
    name: str, words: str, kind: str, *, again: bool, policy: str | None = None, trips: bool = False, **fault: str
) -> Expected:
    return Expected(Fault(name, **fault), words, kind, again, policy, trips)  # type: ignore[arg-type]


TABLE: tuple[Expected, ...] = (
    _row("429", "429, until the `deadline`", _AGAIN, again=True),
    _row(
        "429",
        "429 with `Retry-After`, which is waited for, until the `deadline`",
        _AGAIN,
        again=True,
        retry_after="0.2",
    ),
    _row("500", "500", _AGAIN, again=True),
    _row("502", "502", _AGAIN, again=True),
    _row("503", "503", _AGAIN, again=True),
    _row("504", "504", _AGAIN, again=True),
    _row("408", "408", _LATE, again=True),
    _row("409", "409", _AGAIN, again=True),
    _row("425", "425", _AGAIN, again=True),
    _row("slow_headers", "no headers within the time of a try", _LATE, again=True),
    _row("stalled_body", "half a body, then nothing", _LATE, again=True),
    _row("reset_before", "reset before the body", _DROP, again=True),
    _row("close_before", "connection closed before any byte", _DROP, again=True),
    _row("reset_mid_body", "reset in the middle of the body", _DROP, again=True),
    _row("cut_body", "body shorter than promised", _DROP, again=True),
    _row("wrong_content_type", "a page of HTML under 200", _AGAIN, again=True),
    _row("error_body_200", "an error object under 200", _AGAIN, again=True),
    _row("empty_choices", "no choices", _AGAIN, again=True),
    _row("empty_body", "an empty body", _AGAIN, again=True),
    _row("invalid_utf8", "bytes that are no UTF-8", _AGAIN, again=True),
    _row("nan_body", "NaN in the JSON", _AGAIN, again=True),
    _row("not_json", "no JSON", _AGAIN, again=True),
    _row("cut_json", "JSON cut off", _AGAIN, again=True),
    _row("two_documents", "two JSON documents", _AGAIN, again=True),
    _row("wrong_shape", "JSON that is no object", _AGAIN, again=True),
    _row("null_content", "content null", _UNREAD, again=True, policy="no_answer"),
    _row("empty_content", "an empty text", _UNREAD, again=True, policy="no_answer"),
    _row("reasoning_only", "the verdict in the reasoning field only", _UNREAD, again=True, policy="no_answer"),
    _row("unclosed_think", "a thinking block that never closes", _UNREAD, again=True, policy="no_answer"),
    _row("length", "finish reason `length`", _UNREAD, again=True, policy="truncated"),
    _row("length_counted", "the same, the tokens of the thinking counted", _UNREAD, again=True, policy="truncated"),
    _row("length_in_reasoning", "the same in the reasoning field", _UNREAD, again=True, policy="truncated"),
    _row("length_in_think", "the same inside a thinking block", _UNREAD, again=True, policy="truncated"),
    _row("no_room", "400: the reply was cut at its limit before it began", _UNREAD, again=True, policy="truncated"),
    _row(
        "model_length",
        "finish reason `model_length`, `max_tokens`, …: the same",
        _UNREAD,
        again=True,
        policy="truncated",
    ),
    _row("tool_calls", "finish reason `tool_calls`: nobody gave it a tool", _UNREAD, again=True, policy="no_answer"),
    *(
        _row(f"finish_{word}", f"finish reason `{word}`: the engine gave up", _AGAIN, again=True)
        for word in UNFINISHED[:-2]
    ),
    _row("finish_something_new", "a finish reason nobody knows", _AGAIN, again=True),
    _row("finish_missing", "no finish reason", _AGAIN, again=True),
    _row("content_filter", "finish reason `content_filter`", "gavel:content_filtered", again=False, policy="no_answer"),
    _row("nan_score", "NaN as a score", _UNREAD, again=True, policy=OWN),
    _row("inf_score", "1e400 as a score", _UNREAD, again=True, policy=OWN),
    _row("two_objects", "the verdict twice", _UNREAD, again=True, policy=OWN),
    _row("400", "400", _REFUSED, again=False, policy=_AGAIN),
    _row("context_length", "400: the prompt is too long", "gavel:context_overflow", again=False),
    _row("flagged", "400: the prompt is flagged", "gavel:content_filtered", again=False),
    _row("budget", "400: a gateway's budget is spent", _ACCOUNT, again=False, trips=True),
    _row("wrong_model", "another model under the name", "gavel:identity_mismatch", again=False, policy=OWN),
    _row("huge", "a reply of 10 MB", _AGAIN, again=False),
    _row("401", "401", _ACCOUNT, again=False, trips=True),
    _row("403", "403", _ACCOUNT, again=False, trips=True),
    _row("404", "404: no such model", _AGAIN, again=False, trips=True),
    _row("quota", "429: quota spent", _ACCOUNT, again=False, trips=True),
    _row("billing", "400: billing limit", _ACCOUNT, again=False, trips=True),
)
HARMLESS = ("ok", "text", "duplicate_id", "no_model")
"""What the fault server can play besides: right replies."""

PASSING = tuple(row for row in TABLE if not row.trips)
TRIPPING = tuple(row for row in TABLE if row.trips)


def of_policy(row: Expected) -> Expected:
    """Return what becomes of the fault in a policy's call: ``kind`` is a label where its reply is graded."""
    if row.policy is None:
        return row
    return Expected(row.fault, row.words, row.policy, again=False)


def section() -> str:
    """Return the page's table."""
    return "\n".join([HEADER, "|---|---|---|---|", *(_line(row) for row in TABLE)])


def _line(row: Expected) -> str:
    again = "no; no later call is tried" if row.trips else "yes" if row.again else "no"
    policy = {None: "the same", OWN: "graded like any text"}.get(row.policy, f"`{row.policy}`, no other try")
    if row.policy in LABELS:
        policy = f"graded `{row.policy}`"
    return f"| {row.words} | `{row.kind}` | {again} | {policy} |"


def main() -> None:
    """Write the page's section."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{section()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
