"""What a zygote forks here: victims. To import it puts the points into all that is imported after it."""

from tests.chaos import points
from tests.chaos.victim import live

__all__ = ["live"]

points.install()
