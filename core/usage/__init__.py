"""Usage: meter of model calls, prices, spending, limits per person and place."""

from typing import Literal

#: Dimension of a usage report.
SpendingDimension = Literal["person", "place", "model", "day"]
