"""The two-host engine computes what one process computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kimi_infra.deploy import site
from kimi_infra.lab import layout
from kimi_infra.observe import answer
from tests.lab import operator
from tests.lab.conftest import Converged

pytestmark = pytest.mark.lab

TOLERANCE = 1e-3
"""Natural-log units; float32 sums of two ranks are added in another order than those of one."""
TOKENS = 40


def test_tokens_and_log_probabilities_equal_those_of_one_process(converged: Converged) -> None:
    """Greedy: the same token ids, some text, log-probabilities within float tolerance."""
    assert converged.first.code == 0
    engine = _engine()
    process = _one_process()
    assert engine["token_ids"] == process["token_ids"]
    assert engine["text"].strip()
    assert engine["logprobs"] == pytest.approx(process["logprobs"], abs=TOLERANCE)


def _engine() -> dict[str, Any]:
    found = site.read_ready(operator.INVENTORY)
    deployment = site.deployment(found, None)
    endpoint = site.endpoint(found.inventory, deployment, site.SecretStore(environ=os.environ))
    options = {"temperature": 0, "max_tokens": TOKENS, "logprobs": True, "return_token_ids": True}
    asked = answer.ask(endpoint, answer.QUESTION, options=options, timeout=120)
    choice: Any = asked.response["choices"]
    return {
        "text": asked.text,
        "token_ids": choice[0]["token_ids"],
        "logprobs": [token["logprob"] for token in choice[0]["logprobs"]["content"]],
    }


def _one_process() -> dict[str, Any]:
    """Run the same model in one process of the same image, on the head's host beside the engine."""
    found = site.read_ready(operator.INVENTORY)
    reference = site.deployment(found, None).image.reference
    program = (Path(__file__).parent / "one_process.py").read_text()
    request = json.dumps({"model": layout.MODEL_PATH, "question": answer.QUESTION, "tokens": TOKENS})
    printed = operator.on_host(
        operator.HEAD,
        *("docker", "run", "--rm", "--interactive", "--pull", "never", "--network", "none"),
        *("--volume", f"{layout.SHARED_PATH}:{layout.SHARED_PATH}:ro"),
        *("--entrypoint", "python", reference, "-", f"'{request}'"),
        stdin=program,
    )
    result: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return result


def test_the_real_engine_keeps_the_contract_of_the_stub(converged: Converged) -> None:
    """What the fast tests believe of an engine's API holds for vLLM: the same tests, pointed at it."""
    assert converged.first.code == 0
    found = site.read_ready(operator.INVENTORY)
    endpoint = site.endpoint(
        found.inventory, site.deployment(found, None), site.SecretStore(environ=os.environ)
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-k",
            "real",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:tests.sockets",
            "tests/contract",
        ],
        cwd=operator.ROOT,
        env={
            **os.environ,
            "KIMI_ENGINE_URL": endpoint.url,
            "KIMI_ENGINE_MODEL": endpoint.model,
            "KIMI_ENGINE_KEY": endpoint.key or "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
