"""What vLLM itself says against a command, without a model, a GPU or a network.

Runs in the serving image's Python, started by :mod:`tests.parser.client`; no import of ours.
Standard input takes one JSON object a line, file descriptor 3 answers with one JSON line each:
``{"argv": [MODEL, FLAG, ...], "env": {...}}`` with vLLM's complaints and its reading of the layout,
``{"vocabulary": true}`` with every name that this build knows.
vLLM's own logs go to standard output and error.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import inspect
import io
import json
import os
import re
import sys
import time
import types
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import pydantic
from vllm import envs
from vllm.config.attention import AttentionConfig, IndexerKVDType
from vllm.config.kv_transfer import KVTransferConfig
from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import simple_cpu_offload_connector
from vllm.engine import arg_utils
from vllm.entrypoints.cli import serve
from vllm.entrypoints.launchers.launcher import validate_api_server_args
from vllm.model_executor import model_loader
from vllm.platforms import current_platform
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.version import __version__

ANSWERS = 3
_OFFLOAD_KEY = re.compile(r"""extra_config(?:\.get\(|\[)\s*"(\w+)\"""")


class LayoutKnownError(Exception):
    """vLLM has gone as far as it can without the model: the parallel layout stands."""

    def __init__(self, parallel: Any) -> None:
        super().__init__()
        self.parallel = parallel


class Examination:
    """One command, asked layer by layer."""

    def __init__(self) -> None:
        self.complaints: list[dict[str, str]] = []
        self.layout: dict[str, object] | None = None

    @contextlib.contextmanager
    def layer(self, name: str) -> Iterator[None]:
        """Turn what vLLM raises into a complaint."""
        try:
            yield
        except LayoutKnownError as known:
            self.layout = facts(known.parallel)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - vLLM refuses with whatever is at hand
            told = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            self.complaints.append({"layer": name, "text": told})


class Server:
    """vLLM's command line, put together once as vllm/entrypoints/cli/main.py does."""

    def __init__(self) -> None:
        self.command: Any = FlexibleArgumentParser(prog="vllm")
        self.subcommand: Any = serve.ServeSubcommand()
        subparsers = self.command.add_subparsers(required=False, dest="subparser")
        self.options: Any = self.subcommand.subparser_init(subparsers)

    def examine(self, argv: list[str], env: dict[str, str]) -> dict[str, object]:
        """Everything that vLLM says against a command."""
        began = time.perf_counter()
        found = Examination()
        with environment(env):
            with found.layer("environment"):
                examine_environment(env)
            with found.layer("arguments"):
                args = self.parse(["serve", *argv])
                self.examine_parsed(args, found)
        seconds = time.perf_counter() - began
        return {"complaints": found.complaints, "layout": found.layout, "seconds": seconds}

    def parse(self, words: list[str]) -> Any:
        """Parse as ``vllm`` does; argparse prints its message and exits, so both are caught."""
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            try:
                return self.command.parse_args(words)
            except SystemExit as ended:
                message = printed.getvalue().rpartition("error: ")[2].strip()
                raise ValueError(message or f"exits with {ended.code}") from None

    def examine_parsed(self, args: Any, found: Examination) -> None:
        """Ask the layers behind the parser."""
        valid = False
        with found.layer("serve"):
            self.subcommand.validate(args)
            valid = True
        for transfer in transfers(args.kv_transfer_config, found):
            with found.layer("connector"):
                KVConnectorFactory.get_connector_class(transfer)
        with found.layer("speculation"):
            examine_speculation(args.speculative_config or {})
        if valid:
            with found.layer("engine"):
                self.subcommand.cmd(args)


@contextlib.contextmanager
def environment(env: dict[str, str]) -> Iterator[None]:
    """The process's environment with vLLM's own variables of a command."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in env.items() if name.startswith("VLLM_")})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def examine_environment(env: dict[str, str]) -> None:
    """Refuse an unknown variable, which vLLM by itself only warns about, and read the others' values."""
    current_platform.validate_environ(hard_fail=True)
    for name in env.keys() & envs.environment_variables.keys():
        try:
            envs.environment_variables[name]()
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def transfers(config: Any, found: Examination) -> list[Any]:
    """The KV connectors of a command, those inside of MultiConnector too."""
    if config is None:
        return []
    connectors = [config]
    for child in config.kv_connector_extra_config.get("connectors", ()):
        with found.layer("connector"):
            # So does vllm/distributed/kv_transfer/kv_connector/v1/multi_connector.py.
            connectors.append(KVTransferConfig(**child, engine_id=config.engine_id))
    return connectors


def examine_speculation(given: dict[str, object]) -> None:
    """Check keys and values of --speculative-config; vLLM waits with that until it has both models."""
    fields: Any = SpeculativeConfig.__pydantic_fields__
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in fields:
            raise ValueError(f"{key}: no field of SpeculativeConfig")
        try:
            pydantic.TypeAdapter(kind_of(fields[name])).validate_python(value)
        except pydantic.ValidationError as error:
            raise ValueError(f"{key}: {error.errors()[0]['msg']}, got {value!r}") from None


def kind_of(field: Any) -> Any:
    """A field's type with its limits."""
    return functools.reduce(lambda kind, limit: Annotated[kind, limit], field.metadata, field.annotation)


def stop_at_the_model() -> None:
    """Let vLLM's own start run up to where it would read the model.

    A headless node takes vLLM's own way; of a node with an API only the checks are left.
    """
    arguments: Any = arg_utils
    arguments.maybe_override_with_speculators = models_as_given
    arguments.EngineArgs.create_model_config = any_model
    arguments.EngineArgs.create_speculative_config = layout_known
    entry: Any = serve
    entry.run_multi_api_server = start_api
    entry.run_server = start_api
    entry.uvloop = types.SimpleNamespace(run=lambda _done: None)
    # The CPU wheel comes without the program that VLLM_USE_RUST_FRONTEND asks for.
    envs.environment_variables["VLLM_RUST_FRONTEND_PATH"] = lambda: "vllm-rs"


def models_as_given(
    *, model: str, tokenizer: str, vllm_speculative_config: object, **_rest: object
) -> tuple[str, str, object]:
    """Take the command's word for it; vLLM would ask a hub what the model is."""
    return model, tokenizer, vllm_speculative_config


def any_model(engine_args: Any) -> Any:
    """What vLLM asks of a model before it has a layout; Kimi is a mixture of experts."""
    return types.SimpleNamespace(
        model=engine_args.model,
        model_weights="",
        tokenizer=engine_args.tokenizer,
        hf_config=None,
        hf_text_config=None,
        get_sliding_window=lambda: None,
        runner_type="generate",
        is_chunked_prefill_supported=True,
        is_prefix_caching_supported=True,
        is_attention_free=False,
        is_moe=True,
        skip_tokenizer_init=False,
    )


def layout_known(engine_args: Any, target_model_config: object, target_parallel_config: Any) -> None:
    """Stand in for what create_engine_config does next, and end it there."""
    del target_model_config
    engine_args.create_load_config()
    AttentionConfig.validate_backend_before(engine_args.attention_backend)
    raise LayoutKnownError(target_parallel_config)


def start_api(args: Any) -> None:
    """Do what a node with an API does before it loads anything."""
    validate_api_server_args(args)
    engine_args: Any = arg_utils.AsyncEngineArgs.from_cli_args(args)
    try:
        engine_args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
    except LayoutKnownError as known:
        # Asserted later by vllm/entrypoints/cli/serve.py and vllm/v1/engine/utils.py.
        if not known.parallel.local_engines_only and known.parallel.data_parallel_rank:
            raise ValueError(
                f"data-parallel rank {known.parallel.data_parallel_rank} would have an API, "
                "but under vLLM's own balancing only rank 0 has one"
            ) from None
        raise


def facts(parallel: Any) -> dict[str, object]:
    """What vLLM made of the parallel flags."""
    rank = parallel.data_parallel_rank
    return {
        "world_size": parallel.world_size,
        "local_world_size": parallel.local_world_size,
        "node_rank_within_dp": parallel.node_rank_within_dp,
        "data_parallel_size": parallel.data_parallel_size,
        "data_parallel_ranks": list(range(rank, rank + parallel.data_parallel_size_local)),
        "own_balancing": not parallel.local_engines_only,
        "data_parallel_address": f"{parallel.data_parallel_master_ip}:{parallel.data_parallel_rpc_port}",
        "master_address": f"{parallel.master_addr}:{parallel.master_port}" if parallel.nnodes > 1 else None,
    }


def vocabulary(options: Any) -> dict[str, object]:
    """Every name that this build knows."""
    defaults = {field.name: field.default for field in dataclasses.fields(arg_utils.AsyncEngineArgs)}
    offload = inspect.getsource(simple_cpu_offload_connector)
    return {
        "version": __version__,
        "gpu_memory_utilization": defaults["gpu_memory_utilization"],
        "options": {name: choices(action) for action in options._actions for name in action.option_strings},
        "names": {
            "environment": list(envs.environment_variables),
            "tool parser": list(ToolParserManager.list_registered()),
            "reasoning parser": list(ReasoningParserManager.list_registered()),
            "connector": list(KVConnectorFactory._registry),
            # Any other key of kv_connector_extra_config is ignored in silence.
            "offload key": _OFFLOAD_KEY.findall(offload),
            "load format": list(model_loader._LOAD_FORMAT_TO_MODEL_LOADER),
            "attention backend": list(AttentionBackendEnum.__members__),
            "attention key": [field.name for field in dataclasses.fields(AttentionConfig)],
            "indexer dtype": list(get_args(IndexerKVDType)),
            "speculative method": list(words_of(SpeculativeMethod)),
            "speculative key": list(SpeculativeConfig.__pydantic_fields__),
        },
    }


def choices(action: argparse.Action) -> list[str] | None:
    """The values that an option takes, None where the parser takes any."""
    return None if action.choices is None else [str(choice) for choice in action.choices if choice]


def words_of(literal: Any) -> Iterator[str]:
    """The words of a Literal, and of those inside of it."""
    for arg in get_args(literal):
        if isinstance(arg, str):
            yield arg
        else:
            yield from words_of(arg)


def main() -> None:
    """Answer until standard input ends."""
    server = Server()
    stop_at_the_model()
    with os.fdopen(ANSWERS, "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            question = json.loads(line)
            if "vocabulary" in question:
                answer = vocabulary(server.options)
            else:
                answer = server.examine(question["argv"], question["env"])
            answers.write(f"{json.dumps(answer)}\n")
            answers.flush()


if __name__ == "__main__":
    main()
