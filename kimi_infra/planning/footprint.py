"""A model's bytes on each rank: published, or derived from figures that are published for a whole engine.

What is derived is named so wherever it is shown, and gives back exactly the figure that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from kimi_infra.domain.capacity import Sharding
from kimi_infra.domain.recipe import CacheFacts

GB = 10**9
UTILISATION = Fraction("0.92")
"""Part of an accelerator's memory that an engine takes unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Figures of a whole engine and of the whole model, as they are published."""

    memory: int
    """Bytes of one accelerator of the engine that was measured: one replica, all flags at their defaults."""
    tensor: int
    """Its tensor-parallel size."""
    tokens: int
    """Tokens that it held."""
    context: int
    """DCP size of the second measurement."""
    sharded_tokens: int
    """Tokens that it held with that."""
    parameters: int
    active: int
    """Parameters that one token meets."""
    experts: int
    """Routed experts."""
    chosen: int
    """Routed experts that one token meets."""

    @property
    def common(self) -> Fraction:
        """Parameters that are no routed expert's: every token meets all of them."""
        met = Fraction(self.chosen, self.experts)
        return (self.active - self.parameters * met) / (1 - met)


MODEL = "moonshotai/Kimi-K3.1-Pro"
PUBLISHED: Mapping[str, Published] = {
    MODEL: Published(
        memory=268 * GB,  # sibling: public taxonomy, b300: 2144 GB a node of 8
        tensor=8,
        tokens=2_600_000,  # seed: recipe page, Long context: 8x B300, FP8 KV; so are the next two
        context=8,
        sharded_tokens=18_500_000,
        parameters=2_800_000_000_000,  # seed: announcement; so is the next
        active=104_000_000_000,
        experts=896,  # seed: recipe page, Overview; so is the next
        chosen=16,
    )
}
"""By model: what a capacity is derived from where no number of bytes is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """A model's bytes, published or derived; None where they are neither."""

    facts: CacheFacts
    published: Published | None

    def token(self, latent: str, index: str) -> int | None:
        """Return the bytes of cache that a token takes in all layers."""
        parts = self.facts.latent_bytes.get(latent), self.facts.index_bytes.get(index)
        return None if parts[0] is None or parts[1] is None else self.facts.layers * (parts[0] + parts[1])

    def weights(self, sharding: Sharding) -> Fraction | None:
        """Return the bytes of weights on one rank."""
        whole, split = Fraction(self.facts.weights_bytes), sharding.tensor * sharding.pipeline
        if sharding.data == 1:
            return whole / split
        if self.published is None:
            return None
        common = 2 * self.published.common  # BF16
        return common / split + (whole - common) / sharding.ranks

    @property
    def state(self) -> Fraction | None:
        """Bytes over all ranks that each sequence takes whatever its length."""
        if self.facts.state_layers == 0 or self.facts.state_bytes is not None:
            return Fraction(self.facts.state_layers * (self.facts.state_bytes or 0))
        return None if self.published is None else self._unsplit(self.published) * self.published.tensor

    @property
    def beside(self) -> Fraction | None:
        """Bytes on one rank that are neither weights nor cache."""
        if self.published is None or self.state is None:
            return None
        measured = self.published
        state = self.state / measured.tensor
        cache = measured.tokens * (self._default_token + state / self.facts.context)
        return measured.memory * UTILISATION - Fraction(self.facts.weights_bytes, measured.tensor) - cache

    @property
    def contradicted(self) -> bool:
        """Whether the published figures cannot be those of this model."""
        return any(size is not None and size < 0 for size in (self.state, self.beside))

    @property
    def _default_token(self) -> int:
        latent, index = (
            next(iter(each.values())) for each in (self.facts.latent_bytes, self.facts.index_bytes)
        )
        return self.facts.layers * (latent + index)

    def _unsplit(self, measured: Published) -> Fraction:
        # The same bytes of cache hold few contexts whole and many split: n1 (t + s) = n2 (t / dcp + s).
        few, many = measured.tokens, measured.sharded_tokens
        left = few - Fraction(many, measured.context)
        return self.facts.context * self._default_token * left / (many - few)
