"""The identity of a call, and digests of what went over the wire; made once per plan, extended per call."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import orjson

from gavel.models.service import Service
from gavel.models.types import ChatRequest, Message, ResponseFormat, Sampling


def encode_messages(messages: Sequence[Message]) -> bytes:
    """Return the messages as canonical JSON, role and content only; sent as it is, and what the prompt digest covers.

    Raises:
        TypeError: a text holds a lone surrogate, which no JSON can carry.
    """
    return orjson.dumps([{"content": message.content, "role": message.role} for message in messages])


def compute_text_digest(data: bytes) -> str:
    """Return ``sha256:<64 hex>`` of ``data``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def call_seed(identity: str, sampling: Sampling, response_format: ResponseFormat | None) -> bytes:
    """Return the part of a call's identity that calls of one kind share."""
    return orjson.dumps([identity, sampling, response_format], option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def derive_call_id(seed: bytes, prompt_digest: str, sample: int) -> str:
    """Return 16 hex digits over a call's shared part, its prompt and its sample number."""
    return hashlib.sha256(b"%s\n%s\n%d" % (seed, prompt_digest.encode(), sample)).hexdigest()[:16]


def call_id(service: Service, request: ChatRequest) -> str:
    """Return the id of a call: equal for equal service identity, messages, sampling, response format and sample."""
    seed = call_seed(service.identity, request.sampling, request.response_format)
    return derive_call_id(seed, compute_text_digest(encode_messages(request.messages)), request.sample)
