"""What the requests to one service look like: the names of fields, the fields it refuses, the form of a response
format.

A form begins with what the config says and the table of models knows. Where a server refuses a request in plain words
(``learn_form``), the form is changed so that the same request passes without what was refused; each lesson is a note in
the receipts of the calls after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gavel.models.calls.quirks import find_quirk
from gavel.models.service import Service

MAX_TOKENS, MAX_COMPLETION_TOKENS = "max_tokens", "max_completion_tokens"
LIMITS = frozenset((MAX_TOKENS, MAX_COMPLETION_TOKENS, "max_output_tokens"))
FORMATS = ("response_format", "text")
"""Where a response format stands in a body, by API."""

BY_CONFIG, BY_MODEL, BY_SERVER = "the config leaves it out", "the model or the API refuses it", "the server refused it"


@dataclass(frozen=True, slots=True)
class RequestForm:
    """How requests are written. ``omit`` maps fields that are never sent to why; ``response_format`` is one of
    ``json_schema``, ``json_object``, ``tgi``, ``none``; ``extra_body`` holds the user's own fields, ``learned`` those
    that a server demanded."""

    max_tokens_field: str = MAX_TOKENS
    omit: Mapping[str, str] = field(default_factory=dict)
    response_format: str = "json_schema"
    format_reason: str = ""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    learned: Mapping[str, Any] = field(default_factory=dict)
    limit_learned: bool = False


@dataclass(frozen=True, slots=True)
class Lesson:
    """A changed form, and what to tell of the change."""

    form: RequestForm
    told: str


def make_form(service: Service, model: str) -> RequestForm:
    """Return the form that a service's config and its model's name give; the config's word counts before the name's."""
    quirk = find_quirk(model)
    omit = {**dict.fromkeys(quirk.drops, BY_MODEL), **dict.fromkeys(service.omit, BY_CONFIG)}
    return RequestForm(
        service.max_tokens_field or quirk.max_tokens,
        omit,
        service.response_format or "json_schema",
        BY_CONFIG if service.response_format else "",
        service.extra_body or {},
    )


_MUST_NOT_THINK = re.compile(r"enable_thinking\W+must be set to false", re.IGNORECASE)
_FORMAT = re.compile(r"response_format|json_schema|response format|text\.format", re.IGNORECASE)
_BAD_SCHEMA = re.compile(r"invalid schema|schema (?:is )?(?:invalid|malformed)", re.IGNORECASE)
_NO_ENDPOINT = re.compile(
    r"no endpoints? (?:was |were )?found that (?:can handle|supports?) the requested parameters", re.IGNORECASE
)
"""OpenRouter's word where no provider behind it takes all that is sent; a response format is what most do not."""
_WANTS_VALUE = re.compile(r"missing field\W+value\b", re.IGNORECASE)
_WANTS_WORD = re.compile(r"must contain the word\W+json|contain the word\W+json", re.IGNORECASE)
_REFUSED = re.compile(
    r"unsupported|not supported|not (?:yet )?available|unavailable|does(?: not|n't) "
    r"support|unrecogni[sz]ed|unknown|not permitted"
    r"|not allowed|unexpected|extra inputs|extra_forbidden|no longer",
    re.IGNORECASE,
)
_BOTH = re.compile(r"\bboth\b|only one|at the same time|together|mutually exclusive", re.IGNORECASE)

_NAME = r"[`'\"\[({ ]*(?:body\.)?([A-Za-z_]\w*)"
_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:unsupported|unrecogni[sz]ed|unknown|unexpected) (?:request |keyword |input |body )*"
        rf"(?:parameter|argument|field|name|key|property)s?(?: supplied| provided)?\W{{0,3}}{_NAME}",
        r"\b(\w+)[`'\"]?:? (?:parameter |argument |field |option )?(?:(?:is|are|was|has been|have been) "
        r"(?:currently |now |(?:flagged|marked) as )?"
        r"(?:not (?:yet )?(?:supported|permitted|allowed|available|accepted)|unsupported|unknown|deprecated|no "
        r"longer supported)"
        r"|(?:cannot|can not|must not|may not) be (?:set|used|given|sent|specified)\b)",
        rf"(?:parameter|argument|field|option|property)s?(?: is| are)? not (?:yet "
        rf")?(?:supported|permitted|allowed)\W{{0,3}}{_NAME}",
        rf"\b(?:parameter|argument|field|option) {_NAME}[^.]{{0,40}} not (?:valid|supported|available|allowed) "
        rf"(?:for|with|by) ",
        r"\b(\w+)[`'\"]?: extra inputs are not permitted",
        r"extra_forbidden\W+loc\W+body\W+(\w+)",
        rf"(?:does not|doesn't|do not) (?:support|accept|allow) (?:the |setting |custom )*"
        rf"(?:parameters?|arguments?|fields?|values? (?:of|for))?\W{{0,3}}{_NAME}",
    )
)
"""Words by which servers refuse a field they do not take, whatever its value."""

_ONLY_DEFAULT = re.compile(
    r"\b(\w+)[`'\"]? (?:does not support|must be|only supports?).{0,80}?only the default", re.IGNORECASE
)


def learn_form(form: RequestForm, message: str, sent: Mapping[str, Any]) -> Lesson | None:
    """Return the form under which the refused request may pass, or None where the words are not plain or nothing is
    left to change.

    Never touched: a field of ``extra_body``, which the user wrote for this very server, and a value out of range.

    Args:
        form: how the request was written.
        message: the server's words.
        sent: the request's fields besides model and messages.
    """
    found = _learn_thinking(form, message) or _learn_limit(form, message, sent) or _learn_format(form, message, sent)
    return found or _learn_refused(form, message, sent)


def _learn_thinking(form: RequestForm, message: str) -> Lesson | None:
    if not _MUST_NOT_THINK.search(message) or "enable_thinking" in form.learned or "enable_thinking" in form.extra_body:
        return None
    learned = {**form.learned, "enable_thinking": False}
    return Lesson(replace(form, learned=learned), "asked for enable_thinking=false, which is sent from now on")


def _learn_limit(form: RequestForm, message: str, sent: Mapping[str, Any]) -> Lesson | None:
    """Change the name of the output limit where the other name is advised, or where the one sent is not known."""
    if form.max_tokens_field not in sent or form.limit_learned:
        return None
    other = MAX_COMPLETION_TOKENS if form.max_tokens_field == MAX_TOKENS else MAX_TOKENS
    advised = re.search(rf"\buse\b[^.]*\b{other}\b", message, re.IGNORECASE) is not None
    if not advised and form.max_tokens_field not in set(_find_named(message)):
        return None
    return Lesson(replace(form, max_tokens_field=other, limit_learned=True), f"takes the output limit as {other}")


_FORMAT_AFTER = {"json_schema": "json_object", "json_object": "none", "tgi": "none"}


def _learn_format(form: RequestForm, message: str, sent: Mapping[str, Any]) -> Lesson | None:
    place = next((name for name in FORMATS if name in sent), None)
    wants_word = _WANTS_WORD.search(message) is not None
    nowhere = _NO_ENDPOINT.search(message) is not None
    if place is None or not (_FORMAT.search(message) or wants_word or nowhere) or _BAD_SCHEMA.search(message):
        return None
    if _WANTS_VALUE.search(message) and form.response_format == "json_schema":
        after = "tgi"
    elif wants_word or (
        place in _find_named(message) and not re.search(r"\btype\b|json_schema", message, re.IGNORECASE)
    ):
        after = "none"
    elif nowhere or _REFUSED.search(message):
        after = _FORMAT_AFTER[form.response_format]
    else:
        return None
    changed = replace(form, response_format=after, format_reason=f"{BY_SERVER} as {form.response_format}")
    return Lesson(changed, f"refused the response format {form.response_format}; from now on: {after}")


def _learn_refused(form: RequestForm, message: str, sent: Mapping[str, Any]) -> Lesson | None:
    mine = [
        name
        for name in sent
        if name not in form.extra_body and name not in form.learned and name not in LIMITS and name not in FORMATS
    ]
    refused = set(_find_refused(message, sent))
    gone = [name for name in mine if name in refused]
    if not gone:
        return None
    omit = {**form.omit, **dict.fromkeys(gone, BY_SERVER)}
    return Lesson(replace(form, omit=omit), f"refused {', '.join(gone)}, which is not sent from now on")


def _find_refused(message: str, sent: Mapping[str, Any]) -> Iterator[str]:
    words = set(re.findall(r"\w+", message))
    if {"temperature", "top_p"} <= words and {"temperature", "top_p"} <= sent.keys() and _BOTH.search(message):
        yield "top_p"
        return
    if "top_p" in words and sent.get("top_p") == 1.0:  # to cut nothing off is what happens without it too
        yield "top_p"
    yield from _find_named(message)
    yield from (found[1] for found in _ONLY_DEFAULT.finditer(message))


def _find_named(message: str) -> Iterator[str]:
    """Yield the fields that a message says are not taken; of a list (``['a', 'b']``) each."""
    for pattern in _NAMED:
        for found in pattern.finditer(message):
            yield found[1].lower()
            rest = re.match(r"(?:\W{1,4}\w+)*\W{0,2}\]", message[found.end() :]) if "[" in found[0] else None
            yield from re.findall(r"\w+", rest[0]) if rest else ()
