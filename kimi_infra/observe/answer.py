"""Ask the engine as the recipe page's own client does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from kimi_infra.domain.endpoint import Endpoint
from kimi_infra.errors import HostError

QUESTION = "Explain sparse attention in two sentences."
"""The question of the recipe page's client example (seed)."""
SAMPLING: Mapping[str, float] = {"temperature": 0.7, "top_p": 0.95}
"""The sampling of the recipe page's client example (seed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A completion."""

    text: str
    """The first choice's message."""
    response: Mapping[str, object]
    """The whole response as the API gave it."""


def ask(endpoint: Endpoint, question: str, *, options: Mapping[str, object], timeout: float) -> Answer:
    """Return one chat completion.

    Args:
        endpoint: Whom to ask.
        question: The only message, from the user.
        options: Further fields of the request, for example :data:`SAMPLING`.
        timeout: Seconds for the answer.

    Raises:
        HostError: no answer, or an answer that is not a completion.
    """
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": question}],
        **options,
    }
    headers = {"Content-Type": "application/json"}
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    request = urllib.request.Request(  # noqa: S310 -- http to an address of the inventory
        f"{endpoint.url}/v1/chat/completions", data=json.dumps(body).encode(), headers=headers
    )
    remedy = "see: kimi-infra status INVENTORY"
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310 -- as above
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        what = f"{endpoint.url} answered {error.code}: {error.read(500).decode(errors='replace')}"
        raise HostError(endpoint.host, what, remedy) from error
    except (OSError, ValueError) as error:
        raise HostError(endpoint.host, f"{endpoint.url} gave no completion: {error}", remedy) from error
    try:
        return Answer(text=str(answer["choices"][0]["message"]["content"]), response=answer)
    except (LookupError, TypeError) as error:
        raise HostError(endpoint.host, f"{endpoint.url} answered without a message", remedy) from error
