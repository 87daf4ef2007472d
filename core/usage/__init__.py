"""Usage: meter of model calls, prices, spending, limits per person and place."""

from typing import Literal

#: Column of `spending` by which a usage report groups its sums.
SpendingDimension = Literal["user", "channel", "model", "day"]
