"""What does not go together: each refusal names the two things that conflict and what works instead.

A fault's place is a field of :class:`~kimi_infra.domain.inventory.Choice`, for example ``features[0]``.
"""

from kimi_infra.planning.refusals.checks import faults
from kimi_infra.planning.refusals.commands import after
from kimi_infra.planning.refusals.reservations import notes

__all__ = ["after", "faults", "notes"]
