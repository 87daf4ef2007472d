"""The pacer: the budgets of a platform, shared with other workers."""

from collections.abc import Hashable, Sequence
from hashlib import blake2b

from channels.rate_limits.limiter import Budget, Window
from channels.rate_limits.share import ROUNDS
from core.workers.rate_limit_sharing import Use, Uses

#: How many budgets may lie idle before they are thrown away.
_IDLE = 1000


class Pacer:
    """Budgets by key: all that share a limit of the platform share a key.

    Args:
        speed: how many times faster than the platform's the windows run; for a sandbox whose clock does, too.
    """

    def __init__(self, *, speed: float = 1.0) -> None:
        self._speed = speed
        self._budgets: dict[Hashable, Budget] = {}
        self._others: Sequence[Uses] = ()
        self._rounds = 0  # how often the others have told what they use, since there are any

    def budget(self, key: Hashable, window: Window) -> Budget:
        found = self._budgets.get(key)
        if found is None:
            if len(self._budgets) >= _IDLE:
                self._budgets = {key: budget for key, budget in self._budgets.items() if not budget.is_idle}
            found = self._budgets[key] = Budget(window, speed=self._speed)
            self._share(key, found)
        return found

    def tell(self) -> dict[str, Use]:
        """What the other workers are to know of what this one uses."""
        uses = {_name(key): budget.tell() for key, budget in self._budgets.items()}
        return {name: use for name, use in uses.items() if use != Use()}

    def share(self, others: Sequence[Uses]) -> None:
        """Leave to other workers what is theirs.

        Args:
            others: what each of them tells.
        """
        self._others, self._rounds = others, self._rounds + 1 if others else 0
        for key, budget in self._budgets.items():
            self._share(key, budget)

    @property
    def left(self) -> float:
        """The part that is left, at least, of each budget's window: from 0 to 1."""
        return min((budget.left for budget in self._budgets.values()), default=1.0)

    def _share(self, key: Hashable, budget: Budget) -> None:
        uses = [other.get(_name(key), Use()) for other in self._others]
        budget.share(uses, is_new=self._rounds <= ROUNDS)


def _name(key: Hashable) -> str:
    """What all workers call a budget. It is kept in the database, and a key may hold what is good without a token, such
    as an address at which somebody may be answered: so it is nothing that could be read.
    """
    return blake2b(repr(key).encode(), digest_size=12).hexdigest()
