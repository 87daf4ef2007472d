"""Module that the fork server imports before it forks crashing processes.

Its import installs the hook that instruments all later imports.
"""

from tests.chaos import crash_points as points
from tests.chaos.crashing_process import run_process

__all__ = ["run_process"]

points.install()
