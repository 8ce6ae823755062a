"""``kimi-rank run|status|wait``: parse, call, print, exit code."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from . import answer, config, report, state, story, supervisor, unitfile

_USAGE = 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kimi-rank", description="Supervise one rank of an engine.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="main process of the unit: kimi-rank run --config PATH -- DOCKER...")
    waiting = verbs.add_parser("wait", help="wait until ready: 0 ready, 1 failed for good, 3 not in time")
    waiting.add_argument("--timeout", type=float, required=True, help="seconds")
    waiting.add_argument("--current", action="store_true", help="a run from older files does not count")
    looking = verbs.add_parser("status", help="one JSON object on standard output")
    asking = verbs.add_parser("ask", help="ask the own API for one completion, as run does")
    asking.add_argument("--seconds", type=float, required=True)
    for verb in (run, waiting, looking, asking):
        verb.add_argument("--config", type=Path, required=True, help="rank.json")
    for verb in (run, waiting, looking):
        verb.add_argument(
            "--run-dir", type=Path, default=state.RUN_DIR, help="parent of the state's directory"
        )
        verb.add_argument("--unit-file", type=Path, help="the unit's file, if not the installed one")
    return parser


def _run(options: argparse.Namespace, command: tuple[str, ...]) -> int:
    settings = config.read(options.config)
    # The questioner is this same program: -BEs as in its first line.
    ask = (sys.executable, "-BEs", sys.argv[0], "ask", "--config", str(options.config))
    seconds = ("--seconds", f"{settings.limits.first_answer:g}")
    unit_file = unitfile.of(settings.unit, options.unit_file)
    started = supervisor.Command(engine=command, ask=ask + seconds, unit_file=unit_file)
    return supervisor.run(settings, started, options.run_dir)


def _wait(options: argparse.Namespace) -> int:
    place = report.Place(options.config, options.run_dir, options.unit_file)
    code, text = report.wait(place, options.timeout, current=options.current)
    print(text)
    return code


def _ask(options: argparse.Namespace) -> int:
    try:
        answer.ask(config.read(options.config), options.seconds)
    except answer.NoAnswerError as error:
        print(error)
        return 1
    return 0


def main() -> int:
    """Run the program."""
    own = sys.argv[1:]
    command = state.command(own)
    options = _parser().parse_args(own[: own.index("--")] if "--" in own else own)
    try:
        if options.verb == "run":
            return _run(options, command)
        if options.verb == "wait":
            return _wait(options)
        if options.verb == "ask":
            return _ask(options)
    except config.ConfigError as error:
        story.say(str(error))
        return _USAGE
    print(json.dumps(report.status(report.Place(options.config, options.run_dir, options.unit_file))))
    return 0
