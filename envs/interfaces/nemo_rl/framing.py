"""Turn boundaries from the tokenizer's own chat template.

NeMo-RL appends an observation's text to the tokens as it is, so a user's turn within an episode must bring its own
headers. They are read off the template once, by rendering marked texts, and never written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gavel.models.errors import ConfigError, shorten_value
from gavel.models.records import record

_USER, _REPLY, _NEXT = "gavel-mark-one", "gavel-mark-two", "gavel-mark-three"
_BREAK = "\u200b"


@record
class Frame:
    """``end`` is the text of the token that ends an assistant's turn and ``end_id`` its id; ``before`` and ``after``
    stand around a user's text, up to where the next reply begins; ``trims``: the template strips a text's outer white
    space. ``special`` is a pattern of the texts that the tokenizer would read as control tokens; empty matches none."""

    end: str
    end_id: int
    before: str
    after: str
    trims: bool = False
    special: str = ""

    def break_controls(self, text: str) -> str:
        """Return a text whose control tokens are broken up, for it is data."""
        if not self.special:
            return text
        return re.sub(self.special, lambda found: f"{found[0][:1]}{_BREAK}{found[0][1:]}", text)

    def make_turn(self, text: str, *, ended: bool) -> str:
        """Return a user's turn as it follows a reply.

        Args:
            text: what the user says; control tokens in it are broken up, for it is data.
            ended: whether the reply's last token is ``end_id`` already; one that was cut off gets it here.
        """
        text = self.break_controls(text)
        return f"{'' if ended else self.end}{self.before}{text.strip() if self.trims else text}{self.after}"


def read_frame(tokenizer: Any) -> Frame:
    """Read the turn boundaries off a tokenizer's template.

    Thinking that stands in earlier replies stays where it is: the tokens were drawn from the policy and are trained on,
    and a prompt that drops them is another prompt. Templates that drop it when they render a whole conversation differ
    from the stream in that.

    Args:
        tokenizer: a transformers tokenizer with a chat template, its keyword arguments bound where there are any.

    Raises:
        ConfigError: there is no template, or it does not render a conversation turn by turn.
    """
    text = _render_turn(tokenizer, _NEXT)
    if [text.count(mark) for mark in (_USER, _REPLY, _NEXT)] != [1, 1, 1]:
        raise _make_error("a marked text is missing or stands there twice")
    between, after = text.split(_REPLY)[1].split(_NEXT)
    special = sorted({token for token in _list_special(tokenizer) if token.strip()}, key=len, reverse=True)
    end = next((token for token in special if between.startswith(token)), None)
    if end is None or not after:
        raise _make_error(f"no control token follows a reply: {shorten_value(between)}")
    ids = tokenizer(end, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise _make_error(f"{end} is not one token")
    trims = _render_turn(tokenizer, f" {_NEXT} ") == text
    return Frame(end, int(ids[0]), between.removeprefix(end), after, trims, _make_pattern(special))


def _render_turn(tokenizer: Any, text: str) -> str:
    said = [
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": _REPLY},
        {"role": "user", "content": text},
    ]
    try:
        return str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True))
    except Exception as failed:  # templates are programs of others and raise what they like
        raise _make_error(f"{type(failed).__name__}: {failed}") from failed


def _list_special(tokenizer: Any) -> list[str]:
    """Return the texts the tokenizer reads as tokens of their own: named special ones, and added ones marked as
    special.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return [*tokenizer.all_special_tokens, *(str(token.content) for token in added.values() if token.special)]


def _make_pattern(tokens: Sequence[str]) -> str:
    """Return one pattern for all tokens; hundreds of numbered ones become one branch, since it travels with every
    sample.
    """
    return "|".join(dict.fromkeys(re.sub(r"[0-9]+", "[0-9]+", re.escape(token)) for token in tokens))


def _make_error(found: str) -> ConfigError:
    return ConfigError(
        "this chat template cannot frame the turns of a conversation",
        field="policy.tokenizer",
        found=found,
        allowed="a template that renders user and assistant in turn, each reply followed by a control token",
        remedy="use the model's own template (policy.tokenizer.chat_template: default)",
    )
