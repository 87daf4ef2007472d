"""What a zygote forks here: victims. To import it puts the points into all that is imported after it."""

from tests.chaos import crash_points as points
from tests.chaos.crashing_process import live

__all__ = ["live"]

points.install()
