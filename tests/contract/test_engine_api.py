"""The engine's interface as kimi_infra uses it, on the stub and, when asked, on a real vLLM.

The real one is named by KIMI_ENGINE_URL (``http://HOST:PORT``), KIMI_ENGINE_MODEL and, where it has one,
KIMI_ENGINE_KEY.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kimi_infra.hostside.rank import answer
from tests.stubs import group

STUB = Path(group.__file__).with_name("engine.py")
REAL = os.environ.get("KIMI_ENGINE_URL")
FIRST_ANSWER = 300.0
"""Seconds; a real engine compiles for its first request."""


@dataclass(frozen=True)
class Engine:
    """One engine that listens."""

    url: str
    model: str
    key: str | None

    def call(
        self, path: str, body: Any = None, *, raw: bytes | None = None, key: str | None = ""
    ) -> tuple[int, bytes]:
        """Return status and body of one request; ``key`` stands in for the right one."""
        data = raw if raw is not None or body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        used = self.key if key == "" else key
        if used:
            headers["Authorization"] = f"Bearer {used}"
        request = urllib.request.Request(f"{self.url}{path}", data=data, headers=headers)  # noqa: S310 - http of the test's own
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=FIRST_ANSWER) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def chat(self, **more: Any) -> dict[str, Any]:
        """Return an answered chat completion of at most four tokens."""
        messages = [{"role": "user", "content": "Say hello."}]
        body = {"model": self.model, "messages": messages, "max_tokens": 4, "temperature": 0, **more}
        status, content = self.call("/v1/chat/completions", body)
        assert status == 200, content
        found: dict[str, Any] = json.loads(content)
        return found


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("stub", marks=pytest.mark.fast),
        *([pytest.param("real", marks=pytest.mark.lab)] if REAL else []),
    ],
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The stub, started here, or the real one that the environment names."""
    if request.param == "real":
        yield Engine(str(REAL), os.environ["KIMI_ENGINE_MODEL"], os.environ.get("KIMI_ENGINE_KEY"))
        return
    port = group.free_port()
    words = (
        sys.executable,
        str(STUB),
        "serve",
        "/models/tiny",
        "--served-model-name",
        "tiny",
        "--port",
        str(port),
    )
    with subprocess.Popen(
        words, env={"VLLM_API_KEY": group.SECRET}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "startup complete" in line:
                break
        yield Engine(f"http://127.0.0.1:{port}", "tiny", group.SECRET)
        process.terminate()


def test_a_completion_counts_as_an_answer(engine: Engine) -> None:
    """The rank supervisor's own check takes it: a choice, and tokens counted in usage."""
    found = engine.chat()
    answer.check(200, json.dumps(found).encode())
    assert 1 <= found["usage"]["completion_tokens"] <= 4
    assert (
        found["usage"]["total_tokens"]
        == found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"]
    )
    assert found["object"] == "chat.completion"
    assert found["choices"][0]["message"]["role"] == "assistant"
    assert found["choices"][0]["finish_reason"] in ("length", "stop")


def test_token_ids_come_when_asked_for(engine: Engine) -> None:
    """``return_token_ids`` gives one id a token, and the greedy answer is the same twice."""
    first, second = (engine.chat(return_token_ids=True) for _ in range(2))
    ids = first["choices"][0]["token_ids"]
    assert len(ids) == first["usage"]["completion_tokens"]
    assert ids == second["choices"][0]["token_ids"]


def test_models_and_health_are_told(engine: Engine) -> None:
    """/health answers 200 with an empty body and without a key; /v1/models names the served model."""
    assert engine.call("/health", key=None) == (200, b"")
    status, body = engine.call("/v1/models")
    assert status == 200
    assert [model["id"] for model in json.loads(body)["data"]] == [engine.model]


def test_another_model_is_404_with_an_error_object(engine: Engine) -> None:
    """A wrong name is a client's error that says so."""
    status, body = engine.call(
        "/v1/chat/completions", {"model": "no-such-model", "messages": [{"role": "user", "content": "x"}]}
    )
    assert status == 404
    assert json.loads(body)["error"]["code"] == 404
    assert "no-such-model" in json.loads(body)["error"]["message"]


def test_garbage_is_400_with_an_error_object(engine: Engine) -> None:
    """A body that is no JSON is refused and does not disturb the engine."""
    status, body = engine.call("/v1/chat/completions", raw=b"{garbage")
    assert status == 400
    assert json.loads(body)["error"]["code"] == 400
    assert engine.chat()["choices"]


def test_a_wrong_key_is_401(engine: Engine) -> None:
    """With a key set, a completion needs it; an engine without one answers everybody."""
    status, _ = engine.call("/v1/models", key="sk-wrong")
    assert status == (401 if engine.key else 200)
