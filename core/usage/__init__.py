"""Usage: metering of model calls, prices, spending, and limits per person and place."""

from typing import Literal

#: Dimension of a usage report.
By = Literal["person", "place", "model", "day"]
