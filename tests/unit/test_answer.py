"""What is asked of the engine, whatever answers, and what of it reaches a terminal."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kimi_infra import cli
from kimi_infra.domain.endpoint import Endpoint
from kimi_infra.errors import HostError
from kimi_infra.observe import answer
from tests import planted

pytestmark = pytest.mark.fast

KEY = "canary-91fe"


def reply(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """Return a whole response."""
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def completion(message: object, tokens: object = 7) -> bytes:
    """Return the response with this message."""
    body = {"choices": [{"message": message}], "usage": {"completion_tokens": tokens}}
    return reply(json.dumps(body).encode())


def whole(peer: socket.socket) -> bytes:
    """Read a request with its body: a connection closed over unread bytes is reset."""
    data = b""
    while chunk := peer.recv(65_536):
        data += chunk
        head, found, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if found and length and len(body) >= int(length[1]):
            break
    return data


@contextmanager
def server(response: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Answer each connection with these bytes; gives the port, and what was received."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                peer, _ = listener.accept()
                with peer:
                    request = whole(peer)
                    if request == b"end":
                        return
                    received.append(request)
                    # Whoever has seen enough may close before the end.
                    with suppress(ConnectionError):
                        peer.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield port, received
        finally:
            with socket.create_connection(("127.0.0.1", port)) as last:
                last.sendall(b"end")
            thread.join()


def asked(port: int) -> answer.Answer:
    """Ask what listens there."""
    endpoint = Endpoint(host="tray-a", address="127.0.0.1", port=port, model="kimi", key=KEY)
    return answer.ask(endpoint, "Well?", options={}, timeout=10)


def test_the_key_goes_to_the_engine_and_to_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment neither sees the request nor gives its answer."""
    with (
        server(completion({"content": "proxy"})) as (proxy, seen),
        server(completion({"content": "hi"})) as (
            port,
            received,
        ),
    ):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert asked(port).text == "hi"
        assert seen == []
        assert f"Authorization: Bearer {KEY}".encode() in received[0]


def test_a_redirect_is_not_followed() -> None:
    """The key goes nowhere else."""
    with server(completion({"content": "elsewhere"})) as (other, seen):
        moved = reply(
            b"", "307 Temporary Redirect", f"Location: http://127.0.0.1:{other}/v1/chat/completions"
        )
        with server(moved) as (port, _), pytest.raises(HostError, match="answered 307"):
            asked(port)
        assert seen == []


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        reply(b"\xff\xfe{"),
        reply(b"[" * 100_000),
        reply(b"{}"),
        reply(b"[]"),
        reply(b"null"),
        reply(b'{"choices": []}'),
        reply(b'{"choices": [{"message": {"content": "hi"}}]}'),
        completion(None),
        completion("hi"),
        completion([]),
        completion({"content": 1}),
        completion({"content": ["hi"]}),
        completion({"content": "hi"}, tokens=None),
        completion({"content": "hi"}, tokens="7"),
        reply(b"no such model", "404 Not Found"),
    ],
    ids=lambda response: response[-30:],
)
def test_whatever_answers_is_a_completion_or_an_error_of_the_host(response: bytes) -> None:
    """Another protocol, half an answer and another shape are told with the host and without the key."""
    with (
        server(response) as (port, _),
        pytest.raises(HostError, match=f"^tray-a: http://127.0.0.1:{port} ") as e,
    ):
        asked(port)
    assert KEY not in str(e.value)


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "hi"}, "hi", ""),
        ({"content": None}, "", ""),
        ({}, "", ""),
        ({"content": None, "reasoning": "hm"}, "", "hm"),
        ({"content": None, "reasoning": None, "reasoning_content": "hm"}, "", "hm"),
        ({"content": "hi", "reasoning_content": "hm"}, "hi", "hm"),
    ],
)
def test_a_message_without_content_is_no_text(message: object, text: str, reasoning: str) -> None:
    """Null is not the word None; what a reasoning parser took out is told apart; the API counts tokens."""
    with server(completion(message)) as (port, _):
        found = asked(port)
    assert (found.text, found.reasoning, found.tokens) == (text, reasoning, 7)


def ask(
    directory: Path, port: int, *arguments: str, key: str = "{env: KIMI_API_KEY}"
) -> tuple[int, str, str]:
    """Run `kimi-infra ask` with an inventory whose head listens on a port of this machine."""
    inventory = planted.laid("base", directory)
    hosts = inventory / "hosts.yml"
    hosts.write_text(hosts.read_text().replace("ansible_host: 192.0.2.11", "ansible_host: 127.0.0.1"))
    deployment = inventory / "deployment.yml"
    text = deployment.read_text().replace("port: 8000", f"port: {port}")
    deployment.write_text(text.replace("{env: KIMI_API_KEY}", key))
    done = CliRunner().invoke(cli.app, ["ask", str(inventory), *arguments], env={"KIMI_API_KEY": KEY})
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({"content": "one\ntwo\tthree"}, "one\ntwo\tthree\n"),
        ({"content": "深い é"}, "深い é\n"),
        ({"content": "\x1b]0;x\x07\r\ud800\u202e"}, "\\x1b]0;x\\x07\\r\\ud800\\u202e\n"),
        ({"content": None, "reasoning": "hm\x1b"}, "[no answer, reasoning only, 7 tokens]\nhm\\x1b\n"),
        ({"content": None}, "[no text: the completion's 7 tokens are neither answer nor reasoning]\n"),
    ],
)
def test_what_does_not_print_is_escaped(tmp_path: Path, message: object, shown: str) -> None:
    """Lines and tabs stay; nothing steers the terminal, and lone surrogates end in no traceback."""
    with server(completion(message)) as (port, _):
        assert ask(tmp_path, port) == (0, shown, "")


def test_a_refusal_of_the_engine_is_escaped_too(tmp_path: Path) -> None:
    """An error's text comes from outside as well: exit code 1."""
    with server(reply(b"\x1b[2J", "500 Oops")) as (port, _):
        code, out, error = ask(tmp_path, port)
    assert (code, out) == (1, "")
    assert "answered 500: \\x1b[2J" in error


@pytest.mark.parametrize(
    "options",
    [
        *(["--timeout", value] for value in ("0", "-1", "nan", "inf", "1e300", "86401")),
        *(["--temperature", value] for value in ("nan", "inf", "-0.1", "2.1")),
        ["\udcff"],
    ],
    ids=str,
)
def test_an_option_out_of_bounds_is_refused(tmp_path: Path, options: list[str]) -> None:
    """Exit code 2 names the option; nothing was asked."""
    with server(completion({"content": "hi"})) as (port, received):
        code, out, error = ask(tmp_path, port, *options)
        assert received == []
    assert (code, out) == (2, "")
    assert "Invalid value" in error
    assert "is not from" in error or "UTF-8" in error


@pytest.mark.parametrize("options", [["--temperature", "0"], ["--temperature", "2"], ["--timeout", "86400"]])
def test_the_bounds_themselves_are_taken(tmp_path: Path, options: list[str]) -> None:
    """The greedy answer, the hottest and a day."""
    with server(completion({"content": "hi"})) as (port, _):
        assert ask(tmp_path, port, *options) == (0, "hi\n", "")
