"""The stages of a site: which resource type runs which role. Types and inputs live in state for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PACKAGE = "kimi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One role of the site's playbooks as a resource."""

    role: str
    """The Ansible role, and the tag by which a playbook is limited to it."""
    word: str
    """Last part of the resource's name."""
    playbook: str
    """The playbook that holds the role."""
    teardown: bool
    """Whether playbooks/teardown.yml has anything to do for the role."""

    @property
    def type(self) -> str:
        """Pulumi's type token: the role's name in its spelling of names."""
        return f"{PACKAGE}:index:{''.join(part.title() for part in self.role.split('_'))}"


SERVE = Stage(role="vllm_serve", word="serve", playbook="serve.yml", teardown=True)
VERIFY = Stage(role="node_verify", word="verify", playbook="verify.yml", teardown=False)
STAGES = (
    Stage(role="host_base", word="hosts", playbook="prepare.yml", teardown=True),
    Stage(role="container_runtime", word="runtime", playbook="prepare.yml", teardown=True),
    Stage(role="serving_image", word="image", playbook="prepare.yml", teardown=True),
    Stage(role="model_store", word="model", playbook="prepare.yml", teardown=False),
    SERVE,
    VERIFY,
)
"""In the order in which hosts need them."""
BY_TYPE: Mapping[str, Stage] = {stage.type: stage for stage in STAGES}
SITE_TYPE = f"{PACKAGE}:index:Site"
"""The component that holds them."""


def of_urn(urn: str) -> Stage:
    """Return the stage of a resource by its URN, ``urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME``.

    Raises:
        KeyError: the provider has no such type.
    """
    return BY_TYPE[urn.split("::")[2].rpartition("$")[2]]


def site_of_urn(urn: str) -> tuple[str, str]:
    """Return what identifies the site of a stage's URN: the types above it, and its name.

    Raises:
        KeyError: the provider has no such type.
    """
    return urn.split("::")[2].rpartition("$")[0], name_of_urn(urn).removesuffix(f"-{of_urn(urn).word}")


def name_of_urn(urn: str) -> str:
    """Return a resource's name."""
    return urn.split("::", maxsplit=3)[3]
