"""The part of a limit that is this worker's: workers share it by how many replies each of them shows."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from core.workers.rate_limit_sharing import Use

#: This part of what is allowed is for workers that have no reply as yet.
_FEW = 8

#: How often the others must have been told, and have told what they made of it, before a larger part may be used.
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class _Known:
    """What was known when the others were told, and what they were told."""

    mine: Use
    others: Sequence[Use]

    def parts(self, calls: int) -> list[int]:
        """What of so many calls is whose, this worker's first: of each as much as it has of all replies, but for a few
        that are there for who has none as yet.
        """
        uses, few = (self.mine, *self.others), calls // _FEW
        live = sum(use.live for use in uses)
        idle = max(1, few // len(self.others) if live else calls // len(uses))
        return [max(1, (calls - few) * use.live // live) if use.live else idle for use in uses]

    def rest(self, calls: int) -> int:
        """What is left for this worker of its part. Who had more replies a while ago may have used more than its part:
        that is missing from the parts of all others, of each as large a share as of the rest.
        """
        parts = self.parts(calls)
        workers = [(use.used, part) for use, part in zip((self.mine, *self.others), parts, strict=True)]
        share = 1.0
        while over := [(used, part) for used, part in workers if used > share * part]:
            workers = [worker for worker in workers if worker not in over]
            calls -= sum(used for used, _ in over)
            share = max(0.0, min(share, calls / sum(part for _, part in workers))) if workers else 0.0
        return int(share * parts[0])


class Part:
    """What of a limit this worker may use, by what all of them have told.

    A smaller part is used at once, a larger one only when the others have had the time to make theirs smaller.
    """

    def __init__(self) -> None:
        self._others: Sequence[Use] = ()
        self._told = deque[_Known](maxlen=ROUNDS)

    def share(self, others: Sequence[Use], mine: Use, *, is_new: bool) -> None:
        """Leave to the others what is theirs; nothing, if there are none.

        Args:
            others: what each of them tells.
            mine: what this worker uses, though the others are not told as yet.
            is_new: whether nothing is known of them but that they are there, if this comes first.
        """
        if not others:
            self._told.clear()
        elif not self._told:
            known = [Use(live=1)] * len(others) if is_new else others
            self._told.extend(repeat(_Known(mine, known), ROUNDS))
        self._others = others

    def tell(self, mine: Use) -> None:
        """The others are told what this worker uses."""
        if self._others:
            self._told.append(_Known(mine, self._others))

    def of(self, calls: int) -> int:
        """What is this worker's of so many calls that all together may make in a window."""
        return min((known.rest(calls) for known in self._known), default=calls)

    def of_left(self, calls: int) -> int:
        """What is this worker's of so many calls that are left of a window."""
        return min((known.parts(calls)[0] for known in self._known), default=calls) if calls > 0 else calls

    @property
    def _known(self) -> Iterator[_Known]:
        """What the others were told, and what they have told since."""
        if self._others:
            yield from self._told
            yield _Known(self._told[-1].mine, self._others)
