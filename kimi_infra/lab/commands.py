"""The verbs of `kimi-infra lab`: parse, call, print."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from typing import Annotated

import typer

from kimi_infra.errors import KimiInfraError
from kimi_infra.lab import api

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

_MIB = 1 << 20


@app.command()
def up() -> None:
    """Build, start and describe the lab; harmless when all is up."""
    with _refusals():
        info = api.up(typer.echo)
    _print(info)


@app.command()
def build() -> None:
    """Build what the lab is made of and start nothing; done at once when all is there."""
    with _refusals():
        api.build(typer.echo)


@app.command()
def env() -> None:
    """Print shell lines that point pulumi to the lab's own backend: eval "$(kimi-infra lab env)"."""
    with _refusals():
        found = api.pulumi_environment()
    for name, value in found.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


@app.command()
def down(
    *,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete disks, keys and the inventory.")
    ] = False,
) -> None:
    """Stop everything that the lab has started."""
    with _refusals():
        api.down(purge=purge, report=typer.echo)
    typer.echo("the lab is down")


@app.command()
def status() -> None:
    """Show what runs; exit code 1 unless everything does."""
    with _refusals():
        info = api.status()
    _print(info)
    if info.state_bytes:
        typer.echo(f"disk:      {info.state_bytes // _MIB} MiB in {info.state}")
    if info.cache_bytes:
        typer.echo(f"           {info.cache_bytes // _MIB} MiB in {info.cache}")
    if not info.up:
        raise typer.Exit(1)


@app.command()
def reset(
    hosts: Annotated[
        list[str] | None, typer.Argument(help="Hosts; all when none is named.", metavar="HOST")
    ] = None,
) -> None:
    """Give hosts back as delivered: new disks, same keys and addresses."""
    with _refusals():
        info = api.reset(hosts, report=typer.echo)
    _print(info)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def ssh(
    host: Annotated[str, typer.Argument(metavar="HOST")],
    command: Annotated[list[str] | None, typer.Argument(help="A command; a login shell without one.")] = None,
) -> None:
    """Log in to a host, or run a command on it, as the user ops."""
    # Words behind the host are taken as they are, a separating -- included.
    words = (command or [])[1:] if command and command[0] == "--" else command or []
    with _refusals():
        argv = api.ssh_argv(host, words)
    os.execvp(argv[0], argv)  # noqa: S606 - takes our place, so that exit code and terminal are ssh's own


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KimiInfraError as error:
        typer.echo(f"kimi-infra lab: {error}", err=True)
        raise typer.Exit(1) from error


def _print(info: api.LabInfo) -> None:
    for host in info.hosts:
        state = f"boot {host.boot_id}" if host.boot_id else "does not answer" if host.running else "down"
        typer.echo(f"{host.name}:     {host.address or '-':15} {state}")
    typer.echo(f"bridge:    {info.bridge or 'none'} {info.subnet or ''}".rstrip())
    typer.echo(f"registry:  {info.registry or 'down'}")
    typer.echo(f"apt cache: {info.apt_cache or 'down'}")
    if info.image:
        typer.echo(f"image:     {info.image}")
    if (info.inventory / "hosts.yml").exists():
        typer.echo(f"inventory: {info.inventory}")
