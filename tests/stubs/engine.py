"""Stub of ``vllm serve`` over several hosts: its command line, ports, exit codes and blindness.

What it copies was measured on vLLM 0.32.0 and is proven against the real one by ``tests/contract``:
a worker waits at the rendezvous (the master port) for ever and notices nothing afterwards;
the head of a formed engine holds a connection to a port of the worker's;
a late worker connects to ports of the old engine and waits;
the head listens on its API port when all ranks have joined and loaded; ``/health`` knows nothing of the
other ranks; the first request after a rank died gets a 500, and the head then exits with code 0.

Seconds: ``STUB_LOAD``, ``STUB_FIRST`` (first completion), ``STUB_STOP`` (SIGTERM to exit).
SIGUSR1 is the death of the engine core: exit code 0.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("Hello", " from", " the", " stub", ".")


def seconds(name: str, otherwise: float) -> float:
    """Return a time of the environment."""
    return float(os.environ.get(name, otherwise))


def parse(words: list[str]) -> argparse.Namespace:
    """Return the options that the stub acts on; others are accepted."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - vLLM's own default
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--master-addr", default="127.0.0.1")
    parser.add_argument("--master-port", type=int, default=29501)
    parser.add_argument("--headless", action="store_true")
    return parser.parse_known_args(words)[0]


def log(text: str) -> None:
    """Write a line as vLLM does, to standard error."""
    sys.stderr.write(f"INFO {text}\n")
    sys.stderr.flush()


def finish(code: int) -> None:
    """Exit from any thread."""
    os._exit(code)


def terminated(_number: int, _frame: Any) -> None:
    """Handle SIGTERM: vLLM takes its time."""
    threading.Timer(seconds("STUB_STOP", 0.1), finish, (0,)).start()


class Ranks:
    """The head's connections to the other ranks of its engine."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._links: list[socket.socket] = []
        self._lock = threading.Lock()
        self._served = False
        if options.nnodes > 1:
            self._gather(options)

    def _gather(self, options: argparse.Namespace) -> None:
        store = socket.create_server((options.master_addr, options.master_port), backlog=options.nnodes)
        mesh = socket.create_server((options.master_addr, 0))
        self._waiting = [store.accept()[0] for _ in range(1, options.nnodes)]
        for link in self._waiting:
            link.sendall(f"{mesh.getsockname()[1]}\n".encode())
            port = int(mesh.accept()[0].makefile().readline())
            peer = link.getpeername()[0]
            queue = socket.create_connection((peer, port), source_address=(options.master_addr, 0))
            self._links.append(queue)
        self._mesh = mesh
        threading.Thread(target=self._mislead, args=(store,), daemon=True).start()

    def _mislead(self, store: socket.socket) -> None:
        # A late worker finds an old engine's ports, connects and hears nothing more, as measured.
        while True:
            link = store.accept()[0]
            self._waiting.append(link)
            link.sendall(f"{self._mesh.getsockname()[1]}\n".encode())

    def step(self) -> None:
        """Run one step on all ranks; OSError when one is gone."""
        with self._lock:
            if not self._served:
                time.sleep(seconds("STUB_FIRST", 0.1))
            for link in self._links:
                link.sendall(b".")
                if not link.recv(1):
                    raise ConnectionResetError("Connection closed by peer")
            self._served = True


class Api(BaseHTTPRequestHandler):
    """The OpenAI-compatible interface, as far as kimi_infra uses it."""

    protocol_version = "HTTP/1.1"
    ranks: Ranks
    model: str

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own name
        """Write nothing: the journal is for transitions."""

    def do_GET(self) -> None:
        """Answer /health and /v1/models."""
        if self.path == "/health":
            self._send(200, None)
        elif self.path == "/v1/models" and self._allowed():
            self._send(200, {"object": "list", "data": [{"id": self.model, "object": "model"}]})
        elif self.path != "/v1/models":
            self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Answer /v1/chat/completions and /v1/completions."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path not in ("/v1/chat/completions", "/v1/completions"):
            self._send(404, {"detail": "Not Found"})
        elif self._allowed():
            self._complete(body)

    def _allowed(self) -> bool:
        key = os.environ.get("VLLM_API_KEY")
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            self._send(401, {"error": "Unauthorized"})
            return False
        return True

    def _complete(self, body: bytes) -> None:
        try:
            request = json.loads(body)
            asked = request["model"]
        except (ValueError, KeyError, TypeError):
            self._error(400, "the body is not a request", "Bad Request")
            return
        if asked != self.model:
            self._error(404, f"The model `{asked}` does not exist.", "NotFoundError")
            return
        try:
            self.ranks.step()
        except OSError:
            log("EngineCore encountered a fatal error.")
            self._error(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.",
                        "InternalServerError")  # fmt: skip
            threading.Timer(0.2, finish, (0,)).start()
            return
        self._send(200, completion(request, self.path.endswith("/chat/completions")))

    def _error(self, status: int, message: str, kind: str) -> None:
        self._send(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})

    def _send(self, status: int, answer: Any) -> None:
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def completion(request: dict[str, Any], chat: bool) -> dict[str, Any]:
    """Return the answer in vLLM's shape."""
    count = min(int(request.get("max_tokens") or len(WORDS)), len(WORDS))
    text = "".join(WORDS[:count])
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": "length" if count < len(WORDS) else "stop",
        "logprobs": None,
        "token_ids": list(range(count)) if request.get("return_token_ids") else None,
    }
    choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {
        "id": "chatcmpl-stub" if chat else "cmpl-stub",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [choice],
        "usage": {"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count},
    }


def serve(options: argparse.Namespace) -> None:
    """Be the head."""
    Api.ranks = Ranks(options)
    Api.model = options.served_model_name or options.model
    time.sleep(seconds("STUB_LOAD", 0.1))
    server = ThreadingHTTPServer((options.host, options.port), Api)
    log("Application startup complete.")
    server.serve_forever()


def follow(options: argparse.Namespace) -> None:
    """Be a worker: answer the head's steps, and notice nothing when they stop."""
    own = os.environ.get("VLLM_HOST_IP", "0.0.0.0")  # noqa: S104 - the kernel's choice
    log(f"world_size={options.nnodes} rank={options.node_rank} "
        f"distributed_init_method=tcp://{options.master_addr}:{options.master_port}")  # fmt: skip
    while True:
        store = socket.socket()
        store.bind((own, 0))
        if store.connect_ex((options.master_addr, options.master_port)) == 0:
            break
        store.close()
        time.sleep(0.1)
    mesh = int(store.makefile().readline())
    queue = socket.create_server((own, 0))
    hello = socket.create_connection((options.master_addr, mesh), source_address=(own, 0))
    hello.sendall(f"{queue.getsockname()[1]}\n".encode())
    link, _ = queue.accept()
    try:
        while link.recv(1):
            link.sendall(b".")
    except OSError:
        pass
    threading.Event().wait()


def main(words: list[str]) -> None:
    """Run one rank."""
    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGUSR1, lambda _number, _frame: finish(0))
    options = parse(words)
    role = follow if options.headless else serve
    threading.Thread(target=role, args=(options,), daemon=True).start()
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
