"""The runs that a load shape is made of, in order: what each sends, how, and what was wanted of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .arrivals import Arrivals
    from .conversation import Conversation
    from .hit_rate import HitRate
    from .plan import Session


@dataclass(frozen=True)
class Step:
    """One run: its plan's sessions, and the settings of the replay that no option may change."""

    name: str
    sessions: Sequence[Session]
    blocks: str
    """Plans of one such name have the same blocks, so that a run may find what another one sent."""
    settings: dict[str, Any]
    measured: bool = True
    wanted: dict[str, float] = field(default_factory=dict)

    def write_plan(self, out: Path) -> Any:
        """Write the plan down beside the step's run; the plan as a run."""
        return trace.write(self.sessions, out / f"{self.name}-plan", self.blocks)


def of_conversations(shapes: dict[str, Conversation]) -> list[Step]:
    """A run for each profile: as many users at work at once as there are, conversation after conversation."""
    return [
        Step(
            name=f"conversation-{profile}",
            sessions=shape.sessions(),
            blocks=f"conversation-{profile}",
            # Users share the system prompt, a user's conversations the user's prefix, and passes nothing.
            settings={"agents": shape.users, "cache_sharing": "system"},
        )
        for profile, shape in shapes.items()
    ]


def of_hit_rates(shapes: Sequence[HitRate], agents: int, token: str) -> list[Step]:
    """For each rate a run that fills the cache, and one that is measured. `token` is this load's alone."""
    steps = []
    for shape in shapes:
        filling, measured = shape.sessions()
        name = f"hit-rate-{shape.rate_pct:g}"
        # Without salts, both find the same blocks; the token keeps those of other loads away.
        shared = {"cache_sharing": "recorded"}
        if filling:
            settings = {"agents": min(agents, len(filling)), **shared}
            steps.append(Step(f"{name}-fill", filling, f"{name}-{token}", settings, measured=False))
        wanted = {"hit_rate_pct": shape.rate_pct}
        steps.append(Step(name, measured, f"{name}-{token}", {"agents": agents, **shared}, wanted=wanted))
    return steps


def of_arrivals(shape: Arrivals, rates: Sequence[float]) -> list[Step]:
    """A run for each rate, requests arriving at random."""
    sessions = shape.sessions()
    return [
        Step(
            name=f"arrivals-{rate:g}",
            sessions=sessions,
            blocks=f"arrivals-{rate:g}",
            settings={
                "arrivals": f"poisson:{rate:g}",
                "trajectories": len(sessions),
                "seed": shape.seed,
                "cache_sharing": "system",
            },
            wanted={"requests_per_s": rate},
        )
        for rate in rates
    ]
