"""What all tests of the channels stand on."""

from tests.channels.discord.conftest import nothing_stays_and_nobody_waits

__all__ = ["nothing_stays_and_nobody_waits"]
