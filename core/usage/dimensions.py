"""By what the sums of what was spent are told."""

from typing import Literal

By = Literal["person", "place", "model", "day"]
