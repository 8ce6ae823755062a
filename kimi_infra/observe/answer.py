"""Ask the engine as the recipe page's own client does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kimi_infra.domain.endpoint import Endpoint
from kimi_infra.errors import HostError

QUESTION = "Explain sparse attention in two sentences."
"""The question of the recipe page's client example (seed)."""
SAMPLING: Mapping[str, float] = {"temperature": 0.7, "top_p": 0.95}
"""The sampling of the recipe page's client example (seed)."""

_BYTES_MAX = 1 << 26
"""Of a response; log-probabilities of a long answer are some megabytes."""
_SHOWN = 500
"""Bytes of a refusal that a message repeats."""
_REMEDY = "see: kimi-infra status INVENTORY"
_REASONING = ("reasoning", "reasoning_content")
"""vLLM's field of a message for what its reasoning parser took out, by its new and its old name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A completion."""

    text: str
    """The first choice's message; empty when the engine came to no answer."""
    reasoning: str
    """What a reasoning parser took out of the message; empty without one."""
    tokens: int
    """Completion tokens by the API's own count, reasoning included."""
    response: Mapping[str, object]
    """The whole response as the API gave it."""


def ask(endpoint: Endpoint, question: str, *, options: Mapping[str, object], timeout: float) -> Answer:
    """Return one chat completion.

    Args:
        endpoint: Whom to ask.
        question: The only message, from the user.
        options: Further fields of the request, for example :data:`SAMPLING`.
        timeout: Seconds without a byte after which the engine counts as silent.

    Raises:
        HostError: no answer, or an answer that is not a completion.
    """
    request = {"model": endpoint.model, "messages": [{"role": "user", "content": question}], **options}
    headers = {"Content-Type": "application/json"}
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    # http.client knows neither proxies nor redirects, so the key goes to this host only.
    connection = http.client.HTTPConnection(endpoint.address, endpoint.port, timeout=timeout)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(request), headers)
        response = connection.getresponse()
        status, body = response.status, response.read(_BYTES_MAX)
    except (OSError, http.client.HTTPException, ValueError) as error:
        what = f"{endpoint.url} gave no completion: {type(error).__name__}: {error}"
        raise HostError(endpoint.host, what, _REMEDY) from error
    finally:
        connection.close()
    if status != http.client.OK:
        what = f"{endpoint.url} answered {status}: {body[:_SHOWN].decode(errors='replace')}"
        raise HostError(endpoint.host, what, _REMEDY)
    try:
        return _completion(json.loads(body))
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        what = f"{endpoint.url} answered 200 without a completion: {type(error).__name__}: {error}"
        raise HostError(endpoint.host, what, _REMEDY) from error


def _completion(response: Any) -> Answer:
    message = response["choices"][0]["message"]
    if not isinstance(message, dict):
        raise TypeError("the message is not an object")
    tokens = response["usage"]["completion_tokens"]
    if not isinstance(tokens, int) or isinstance(tokens, bool):
        raise TypeError("completion_tokens is not a number")
    reasoning = (_text(message, name) for name in _REASONING)
    return Answer(
        text=_text(message, "content"),
        reasoning=next(filter(None, reasoning), ""),
        tokens=tokens,
        response=response,
    )


def _text(message: Mapping[str, object], name: str) -> str:
    """Return a text that may be null or missing."""
    value = message.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    return value
