"""One real completion from the head's own API, asked in a process of its own."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from . import config

_MAX_BODY = 1 << 20


class NoAnswerError(Exception):
    """No completion came back; the message says what did."""


def api_key(secret_env: str | None) -> str | None:
    """VLLM_API_KEY of a docker env file (NAME=VALUE lines, no quoting); None when it has none."""
    if secret_env is None or not Path(secret_env).exists():
        return None
    for line in Path(secret_env).read_text(encoding="utf-8").splitlines():
        name, found, value = line.partition("=")
        if found and name == "VLLM_API_KEY" and value:
            return value
    return None


def check(status: int, body: bytes) -> None:
    """Raise :class:`NoAnswerError` unless this is an answered chat completion with tokens in it."""
    if status != http.client.OK:
        raise NoAnswerError(f"HTTP status {status}")
    try:
        data: Any = json.loads(body)
        tokens = data["usage"]["completion_tokens"]
        complete = bool(data["choices"]) and isinstance(tokens, int) and tokens > 0
    except (ValueError, KeyError, TypeError) as error:
        raise NoAnswerError("status 200 without a completion") from error
    if not complete:
        raise NoAnswerError("a completion without a token")


def ask(settings: config.Config, seconds: float) -> None:
    """Ask for a few tokens; returns when they came, raises :class:`NoAnswerError` otherwise."""
    request = {
        "model": settings.model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 4,
        "temperature": 0,
    }
    headers = {"Content-Type": "application/json"}
    key = api_key(settings.secret_env)
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    # http.client knows neither proxies nor redirects, so the key goes to this host only.
    connection = http.client.HTTPConnection("127.0.0.1", settings.api_port, timeout=seconds)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(request), headers)
        response = connection.getresponse()
        check(response.status, response.read(_MAX_BODY))
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"no answer: {type(error).__name__}") from error
    finally:
        connection.close()
