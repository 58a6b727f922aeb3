"""What the gradients of a joint graph depend on, as traced: passes may drop a dependence on sizes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import attrs

__all__ = ["Dependence"]


@final
@attrs.frozen
class Dependence:
    """What gradients depend on.

    Attributes:
        tangents: for each input's gradient, the positions of the tangents that it depends on; eager PyTorch gives None where none of them
            arrives.
        components: the positions of tangents, those together whose backwards share an operator.
        differentiable: the positions of the inputs with a gradient that some gradient depends on in a way that could be differentiated
            again.
        read_slots: the positions in `slots` whose memory the backward reads: what eager PyTorch saves, so that it sees what the caller
            writes there.
    """

    tangents: tuple[tuple[int, ...], ...] = ()
    components: tuple[tuple[int, ...], ...] = ()
    differentiable: frozenset[int] = frozenset()
    read_slots: frozenset[int] = frozenset()

    def of_part(self, tangents: Sequence[int], slots: Sequence[int]) -> Dependence:
        """The same for some of the tangents and slots, by their positions among these."""
        places = {k: place for place, k in enumerate(tangents)}
        return attrs.evolve(
            self,
            tangents=tuple(tuple(places[k] for k in ks if k in places) for ks in self.tangents),
            components=tuple(tuple(places[k] for k in ks) for ks in self.components if ks[0] in places),
            read_slots=frozenset(slots.index(i) for i in self.read_slots if i in slots),
        )
