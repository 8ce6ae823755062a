"""The keys of hosts.yml and deployment.yml; the reference page is generated from here."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from kimi_infra.config.values import (
    AbsolutePath,
    Ask,
    ByteSize,
    CertificateFile,
    Consent,
    Digest,
    Duration,
    EngineAddress,
    EngineWords,
    GivenByName,
    HostKey,
    ImageName,
    KeyFile,
    Line,
    LinesByName,
    Name,
    Nodes,
    OffloadPolicyWord,
    OpenByteSize,
    Parallelism,
    ParallelSize,
    Rank,
    Secret,
    Sha256,
    SshAddress,
    SshWords,
    TcpPort,
    User,
)

_DIGEST = (
    "give the manifest digest of this image for the hosts' architecture"
    " (docker buildx imagetools inspect {name})"
)


class HostModel(BaseModel):
    """Variables of a host, given at the host or at a group above it.

    Any other ``ansible_*`` variable is left to Ansible.
    """

    ansible_host: SshAddress | None = Field(
        default=None, description="Where SSH reaches the host; its name in hosts.yml when absent."
    )
    ansible_user: User = Field(description="SSH user, with sudo.")
    ansible_port: TcpPort = Field(default=22, description="SSH port.")
    ansible_ssh_private_key_file: KeyFile | None = Field(
        default=None, description="Private key for SSH; the choice of the operator's ssh when absent."
    )
    ansible_ssh_common_args: SshWords | None = Field(
        default=None, description="Options of ssh, for example of a jump host; host keys stay pinned."
    )
    host_key: HostKey = Field(
        description="Public SSH key of the host (type and base64 text), pinned in every connection."
    )
    engine_address: EngineAddress = Field(
        description="The host's own address in the network that carries the engine; one family a group."
    )
    node_rank: Rank = Field(
        description="Rank of the host in its group, of a prefill/decode cluster in its pool,"
        " without gaps; 0 is the head."
    )


class ImageModel(BaseModel):
    """The serving image."""

    name: ImageName = Field(description="Repository and tag.")
    digest: Annotated[Digest | None, Ask(_DIGEST)] = Field(
        default=None,
        description="Manifest digest for the hosts' architecture; needed before anything is applied.",
    )
    registry_ca: CertificateFile | None = Field(
        default=None, description="PEM file of the registry's own certificate authority."
    )


class ApiModel(BaseModel):
    """The head's HTTP interface."""

    port: TcpPort = Field(
        default=8000,
        description="Port of the OpenAI-compatible API on the head; of a prefill/decode cluster"
        " the router's, 30000 when absent.",
    )
    key: Secret | None = Field(
        default=None, description="API key; without one the API is open to whoever reaches the port."
    )


class PortsModel(BaseModel):
    """Ports between the hosts."""

    master: TcpPort = Field(default=29501, description="vLLM's ``--master-port`` on the head.")
    supervisor: TcpPort = Field(
        default=29560, description="Port on which the head's rank supervisor meets the workers'."
    )


class OffloadModel(BaseModel):
    """The host-memory tier of the KV cache."""

    policy: OffloadPolicyWord = Field(
        default="off",
        description="``measured`` sizes the tier from memory that is free with the engines up,"
        " ``fixed`` takes ``per_rank``.",
    )
    reserve: ByteSize = Field(default=64 << 30, description="Memory of each host that the tier never takes.")
    per_rank: OpenByteSize | None = Field(
        default=None, description="Host memory that each accelerator pins; of policy ``fixed`` alone."
    )


class PoolModel(BaseModel):
    """One pool; its hosts are the child group of its name."""

    parallelism: Parallelism | None = Field(
        default=None, description="How the pool's accelerators share the model; the recipe's when absent."
    )


class PoolsModel(BaseModel):
    """The two pools of a prefill/decode cluster (strategy ``pd_cluster``)."""

    prefill: PoolModel = Field(default_factory=PoolModel, description="The pool that reads prompts.")
    decode: PoolModel = Field(default_factory=PoolModel, description="The pool that writes answers.")


class TimeoutsModel(BaseModel):
    """Longer deadlines than the plan's own; a shorter one changes nothing."""

    engine_ready: Duration | None = Field(
        default=None, description="From the start of the engine to its listening."
    )
    first_answer: Duration | None = Field(
        default=None, description="From an engine that listens to an answered completion."
    )


class DeploymentModel(BaseModel):
    """One engine on one group of hosts."""

    name: Name = Field(description="Part of the names of units, containers and directories on the hosts.")
    group: Line = Field(
        description="Group of hosts.yml that serves; for strategy ``pd_cluster`` with the child groups"
        " ``prefill`` and ``decode``."
    )
    model: Line = Field(description="Model id of a recipe, also the served name.")
    hardware: Line = Field(description="Hardware profile of the hosts.")
    strategy: Line = Field(description="Strategy of the recipe.")
    nodes: Nodes | None = Field(default=None, description="Number of hosts in the group, as a check.")
    variant: Line = Field(default="default", description="Variant of the recipe.")
    features: list[Line] | None = Field(
        default=None, description="Features in the order of their flags; the recipe's own list when absent."
    )
    feature_modes: LinesByName = Field(
        default_factory=dict, description="Mode of features that work in several ways, by feature."
    )
    preset: Line | None = Field(
        default=None,
        description="Tuned configuration of the recipe, for its own hardware and strategy;"
        " ``baseline`` is none.",
    )
    dcp: ParallelSize | None = Field(
        default=None,
        description="Decode context parallelism: ranks that share one KV cache; off when absent.",
    )
    pools: PoolsModel = Field(default_factory=PoolsModel, description="The pools of strategy ``pd_cluster``.")
    values: GivenByName = Field(
        default_factory=dict,
        description="What the recipe needs and nobody has published, by the names that the plan asks for.",
    )
    advanced_args: EngineWords = Field(
        default_factory=list,
        description="Further words for every engine's command, taken before the features'.",
    )
    accept_preview: bool = Field(
        default=False, description="Consent to hardware that is published as not tuned and not verified."
    )
    image: ImageModel = Field(description="The serving image.")
    model_path: AbsolutePath = Field(description="Directory of the weights, the same on all hosts.")
    model_sha256: Sha256 | None = Field(
        default=None, description="Content hash of the weights; without it only their presence is checked."
    )
    api: ApiModel = Field(default_factory=ApiModel, description="The head's HTTP interface.")
    hub_token: Secret | None = Field(default=None, description="Token for the model hub.")
    ports: PortsModel = Field(default_factory=PortsModel, description="Ports between the hosts.")
    mounts: list[AbsolutePath] = Field(
        default_factory=list,
        description="Further directories that the engine sees, read-only, same path.",
    )
    offload: OffloadModel = Field(
        default_factory=OffloadModel, description="The host-memory tier of the KV cache."
    )
    timeouts: TimeoutsModel = Field(default_factory=TimeoutsModel, description="Longer deadlines.")
    allow: list[Consent] = Field(
        default_factory=list, description="Consent to disturb a host that serves: ``restart``, ``reboot``."
    )


class DeploymentFile(BaseModel):
    """deployment.yml as a whole."""

    deployments: list[DeploymentModel] = Field(description="One entry an engine.")
