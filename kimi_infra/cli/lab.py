"""``kimi-infra lab``: two hosts for trying things out."""

from __future__ import annotations

import typer

from kimi_infra.lab import commands

app = typer.Typer(help="Two real systemd hosts on this machine.", no_args_is_help=True, add_completion=False)
app.add_typer(commands.app)
