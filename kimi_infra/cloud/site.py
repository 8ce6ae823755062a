"""Program side: the resources of a site whose hosts are reached by SSH. Hosts are the provider's business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

import kimi_infra
from kimi_infra.cloud import outputs, stages
from kimi_infra.cloud.stages import SERVE, VERIFY, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteArgs:
    """What a site is made from."""

    inventory: pulumi.Input[str]
    """Inventory directory, relative to the Pulumi project."""
    hosts: pulumi.Input[Mapping[str, Any]] | None = None
    """Host name -> variables that win over those in hosts.yml, for example outputs of another resource.
    While they are not known, no host is contacted."""
    secrets: pulumi.Input[Mapping[str, Any]] | None = None
    """Variable that the inventory refers to by ``{env: NAME}`` -> its value."""
    consent: pulumi.Input[str] | None = None
    """``restart`` lets this stack disturb what serves."""
    on_delete: pulumi.Input[str] | None = None
    """``retain`` (the default) or ``teardown``."""

    @property
    def properties(self) -> dict[str, Any]:
        """The same as properties of a stage."""
        return {
            "inventory": self.inventory,
            "hosts": self.hosts,
            "secrets": None if self.secrets is None else pulumi.Output.secret(self.secrets),
            "consent": self.consent,
            "onDelete": self.on_delete,
        }


class StageResource(pulumi.CustomResource):
    """One stage of a site."""

    def __init__(
        self, stage: Stage, name: str, properties: Mapping[str, Any], opts: pulumi.ResourceOptions
    ) -> None:
        self.stage = stage
        own = pulumi.ResourceOptions(version=kimi_infra.__version__)
        # None marks what only the provider gives.
        every = {**dict.fromkeys(outputs.FOUND), **properties}
        super().__init__(stage.type, name, every, pulumi.ResourceOptions.merge(own, opts))

    def found(self, name: str) -> pulumi.Output[Any]:
        """Return one of :data:`kimi_infra.cloud.outputs.FOUND`."""
        value: pulumi.Output[Any] = pulumi.get(self, name)
        return value


class Site(pulumi.ComponentResource):
    """All deployments of an inventory directory on hosts that are reached by SSH.

    Each stage is a child resource: ``NAME-hosts``, ``-runtime``, ``-image``, ``-model``, ``-serve`` and
    ``-verify``, each after the one before it.
    """

    endpoints: pulumi.Output[Mapping[str, str]]
    """Deployment -> base URL of its API."""
    image_ids: pulumi.Output[Mapping[str, Mapping[str, str]]]
    """Deployment -> host -> ID of the serving image."""
    plan_hashes: pulumi.Output[Mapping[str, str]]
    """Deployment -> name of what its whole group runs."""
    restart_required: pulumi.Output[Mapping[str, str]]
    """Deployment -> why its ranks need a restart that nobody has allowed; empty when none does."""
    in_sync: pulumi.Output[bool]
    """Whether every stage was found as planned."""
    drift: pulumi.Output[Sequence[Mapping[str, str]]]
    """What differed on hosts at the last refresh: host, task, path, diff."""

    def __init__(self, name: str, args: SiteArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(stages.SITE_TYPE, name, {}, opts)
        given = args.properties
        self.stages: dict[str, StageResource] = {}
        for stage in stages.STAGES:
            self.stages[stage.word] = self._stage(stage, name, given)
        serve, every = self.stages[SERVE.word], list(self.stages.values())
        self.endpoints = serve.found("endpoints")
        self.image_ids = serve.found("imageIds")
        self.plan_hashes = serve.found("planHashes")
        self.restart_required = serve.found("restartRequired")
        self.in_sync = pulumi.Output.all(*[one.found("inSync") for one in every]).apply(all)
        self.drift = pulumi.Output.all(*[one.found("drift") for one in every]).apply(_flat)
        self.register_outputs(self.outputs)

    @property
    def outputs(self) -> dict[str, pulumi.Output[Any]]:
        """All outputs by the names that they have in state; made for ``pulumi.export``."""
        return {
            "endpoints": self.endpoints,
            "imageIds": self.image_ids,
            "planHashes": self.plan_hashes,
            "restartRequired": self.restart_required,
            "inSync": self.in_sync,
            "drift": self.drift,
        }

    def _stage(self, stage: Stage, name: str, given: Mapping[str, Any]) -> StageResource:
        before = list(self.stages.values())
        # Verified again whenever an earlier stage was applied again.
        after = {one.stage.word: one.found("applied") for one in before} if stage is VERIFY else None
        opts = pulumi.ResourceOptions(parent=self, depends_on=before[-1:])
        return StageResource(stage, f"{name}-{stage.word}", {**given, "after": after}, opts)


def _flat(several: Sequence[Sequence[Mapping[str, str]]]) -> list[Mapping[str, str]]:
    return [one for each in several for one in each or ()]
