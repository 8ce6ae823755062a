"""What a run of Ansible is asked to do; goes to the run's own process as a line on its stdin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One run of one playbook."""

    root: str
    """Folder that holds ansible.cfg, playbooks and roles."""
    playbook: str
    """Relative to :attr:`root`."""
    inventory: str
    """The inventory directory."""
    check: bool
    """Say what would change, change nothing."""
    tags: tuple[str, ...] = ()
    """Only tasks with one of these; all when empty."""
    variables: Mapping[str, object] = field(default_factory=dict)
    """Extra variables; none is secret."""
    hosts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Host name -> variables that win over those in hosts.yml."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The run's whole environment before Ansible's own settings; may hold secrets."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that no event may hold."""
    wanted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Action -> fields of its result that are to be reported."""
    seconds: float | None = None
    """Limit for the whole run."""

    def dump(self) -> str:
        """Return the request as one line of JSON, without its end."""
        return json.dumps(asdict(self))


def load(line: str) -> Request:
    """Return the request of a line."""
    fields = json.loads(line)
    for name in ("tags", "secrets"):
        fields[name] = tuple(fields[name])
    fields["wanted"] = {action: tuple(names) for action, names in fields["wanted"].items()}
    return Request(**fields)
