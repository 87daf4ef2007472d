"""The buttons of messages, for those who wait until they are there."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sandbox.discord import DiscordSandbox
from sandbox.discord import Message as DiscordMessage
from sandbox.slack import Message as SlackMessage
from sandbox.slack import SlackSandbox

M = TypeVar("M", SlackMessage, DiscordMessage)


async def with_button(
    sandbox: SlackSandbox | DiscordSandbox, label: str, messages: Callable[[], Sequence[M]]
) -> tuple[M, str]:
    """The last of `messages` that has the button, and what pressing it sends, once there is one."""

    def found() -> tuple[M, str] | None:
        return next(((one, one.buttons[label]) for one in reversed(messages()) if label in one.buttons), None)

    there = await sandbox.wait_for(found)
    assert there is not None
    return there
