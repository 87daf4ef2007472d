"""Options of all tests: `--hypothesis-profile thorough` tries more examples."""

import os
import signal

from hypothesis import settings

# A shell that starts the tests with `&` ignores these signals, and so would each process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile("quick")


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of test processes: three per core, since tests mostly wait."""
    return (os.cpu_count() or 1) * 3
