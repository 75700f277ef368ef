"""What the words of a refusal mean, as one table over providers and servers: pure data.

Statuses alone do not tell: one provider's 403 is a flagged prompt, another's a closed account; gateways wrap a refusal
into a 502 or into status 200. Sources: the providers' error pages and public reports of their messages; the tests hold
each wording by its provider.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Meaning = Literal["account", "paced", "overflow", "filtered", "unknown_model", "unfit"]


@dataclass(frozen=True, slots=True)
class Wording:
    """``pattern`` found under one of ``statuses`` means ``meaning``; 200 stands for an error object in a body that
    names no status.
    """

    meaning: Meaning
    statuses: frozenset[int]
    pattern: re.Pattern[str]


def _make_wording(meaning: Meaning, statuses: tuple[int, ...], *patterns: str) -> Wording:
    return Wording(meaning, frozenset(statuses), re.compile("|".join(patterns), re.IGNORECASE))


_WRAPPED = (200, 500, 502)
"""How gateways pass on what the provider behind them refused."""

WORDINGS: tuple[Wording, ...] = (
    # Accounts that a person must mend. The first of them are those that VERA-MH never retries.
    _make_wording(
        "account",
        (*_WRAPPED, 400, 401, 402, 403, 429),
        r"billing_hard_limit|account is not active|account_deactivated|credit balance is too low",
        r"\binvalid_api_key|invalid x-api-key|authentication_error",
        r"insufficient (?:account )?(?:balance|credits?)\b|requires more credits",
        r"\barrearage\b|overdue[- ]payment|account is in good standing",
        r"budget has been exceeded|budget_exceeded|\bexceededbudget",  # a gateway's budget for a key
        r"\b(?:account|organi[sz]ation|workspace|project|(?:api )?key)(?: [\w-]{1,60}){0,2} (?:is|was|has "
        r"been|have been)"
        r" (?:[\w,]{1,20} ){0,6}?(?:flagged|suspended|disabled|deactivated|terminated|banned|blocked)\b",
    ),
    # More than a server takes at once, not more than a model reads.
    _make_wording(
        "paced",
        (*_WRAPPED, 400, 503),
        r"too many (?:tokens|requests)\b.{0,80}?(?:\bwait\b|again (?:later|in|after)\b|retry "
        r"(?:later|in|after)\b|slow down)",
        r"too many (?:tokens|requests) (?:per|this|in (?:a|one|the last)) (?:second|minute|hour|day)",
    ),
    _make_wording(
        "paced",
        (*_WRAPPED, 503),
        r"\bqueue\b.{0,80}?(?:\bfull\b|too long|maximum|exceed)|(?:full|exceeds?|maximum)\b.{0,80}?\bqueue\b",
    ),
    # A limit of calls that comes as a broken server.
    _make_wording(
        "paced",
        _WRAPPED,
        r"\brate[ _-]?limit|\b(?:daily|hourly|per[ -]?minute|per[ -]?day) limit|\bresource_exhausted\b|\bthrottling\b",
    ),
    # A spent quota: the same words are a minute's limit at DashScope and a dead account at OpenAI; their links tell.
    _make_wording(
        "paced",
        (*_WRAPPED, 429),
        r"(?:insufficient_quota|exceeded your current quota).{0,300}(?:aliyun|alibabacloud|ai\.google\.dev)",
    ),
    _make_wording(
        "account",
        (*_WRAPPED, 400, 401, 402, 403, 429),
        r"(?:insufficient_quota|exceeded your current quota).{0,300}platform\.openai\.com",
    ),
    _make_wording("account", (400, 401, 402, 403), r"insufficient_quota"),
    _make_wording("paced", (*_WRAPPED, 429), r"insufficient_quota|exceeded your current quota"),
    _make_wording(
        "filtered",
        (*_WRAPPED, 400, 403, 422, 451),
        r"\bcontent_?filter\b|responsibleaipolicyviolation|content management policy|content filtering policy",
        r"data_?inspection_?failed|\binvalid_prompt\b|content_policy_violation|content exists "
        r"risk|\bprohibited_content\b",
        r"requires moderation|moderation (?:flag|fail|block)\w*|flagged_input|inappropriate content|safety system",
        r"\bflagged\b(?! (?:as )?(?:unsupported|unknown|unrecogni[sz]ed|deprecated|invalid|experimental|not |no "
        r"longer ))",
        r"violat\w+ (?:our |the |\w+'s )?(?:usage|content) polic",
    ),
    # One prompt, or one prompt and its limit, that no waiting makes fit.
    _make_wording("unfit", (413, 429), r"request too large|tokens must be reduced"),
    _make_wording(
        "overflow",
        (*_WRAPPED, 400, 413, 422, 503),
        r"context_length_exceeded|exceed_context_size|context_window_exceeded|model_context_window",
        r"maximum (?:context|model|prompt|input) (?:length|size|window)|context (?:length|size|window) is only",
        r"(?:exceeds?|exceeded|longer than|larger than) "
        r".{0,60}(?:(?:context|prompt)[ _-](?:length|size|window|limit)|\bmodel[ _-]length)",
        r"(?:exceeds?|exceeded) (?:the )?context|max_model_len|maximum model length",
        r"input tokens? (?:count )?.{0,24}exceeds?\b|(?:prompt|input|messages?) (?:is|are) too long",
        r"too many input tokens|too many tokens",
        r"\binputs\b.{0,3} tokens \+ .{0,3}max_new_tokens|\binputs\b.{0,3} must have less than",
        r"range of input length should be|exceeded model token limit|prompt exceeds max length",
        r"input tokens exceed the configured limit",
        r"reduce the length of the (?:messages|prompt|input)",
    ),
    _make_wording(
        "unknown_model",
        (*_WRAPPED, 400, 403, 404, 422),
        r"\bmodel_not_found\b|deploymentnotfound|not a valid model|\binvalid model(?: name| id|:)|\bunknown "
        r"model\b|no such model",
        r"\bmodel[ _]not[ _](?:exist|found)",
        r"\bmodels?[ :/=]{1,2}[`'\"\[]?[\w.:/@-]{1,120}[`'\"\]]?,? (?:do(?:es)? not exist|doesn't exist|(?:is |was "
        r")?not found)",
    ),
    # No provider behind a router takes these parameters: another form of the request may pass, and the model is there.
    _make_wording(
        "unfit",
        (*_WRAPPED, 404),
        r"no endpoints? (?:was |were )?found that (?:can handle|supports?) the requested parameters",
    ),
    # A gateway's own word for what the provider behind it will never take.
    _make_wording("unfit", (500, 502), r"\binvalid_request_error\b|\bbadrequesterror\b|\binvalid_argument\b"),
)
"""The first that fits."""

_HOSTS: tuple[tuple[re.Pattern[str], Meaning], ...] = (
    (re.compile(r"(?:^|\.)(?:aliyuncs\.com|googleapis\.com)$"), "paced"),
    (re.compile(r"(?:^|\.)openai\.com$"), "account"),
)
"""What a spent quota means at a host, where the words do not tell."""

_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota", re.IGNORECASE)

_NO_ROOM = re.compile(
    r"could not finish the message because max_tokens or model output limit was reached", re.IGNORECASE
)


def is_cut_reply(message: str) -> bool:
    """Tell whether a refusal is in truth a reply that ended at its output limit: so OpenAI answers where thinking took
    all of it.
    """
    return _NO_ROOM.search(message) is not None


def read_meaning(status: int, message: str, host: str = "") -> Meaning | None:
    """Return what a refusal means beyond its status, or None if its words say nothing that the table knows.

    Args:
        status: of the answer, or the one that the error object in a body names; 200 for an error object that names
            none.
        message: the error's words, on one line or several.
        host: the name of the host that answered; without one, a spent quota under 429 is taken for a minute's limit.
    """
    if status in (200, 429) and _QUOTA.search(message):
        known = next((meaning for pattern, meaning in _HOSTS if pattern.search(host.lower())), None)
        if known is not None:
            return known
    return next(
        (words.meaning for words in WORDINGS if status in words.statuses and words.pattern.search(message)), None
    )
