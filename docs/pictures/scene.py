"""Scenes: scripted conversations with the real bot, shown on the pages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Scene:
    """Scripted conversation with the bot, shown on a page.

    The lines of its script:

        NAME: TEXT     a user types this text
        ~ TEXT         wait until the conversation shows this text
        - TEXT         wait until it no longer shows this text
        =              show the conversation once all answers are complete, as the last user sees it
        *              show the conversation at once
        + NAME         cause another event: see `events.EVENTS`
        $ COMMAND      run an operator command, and show its output
        > TEXT         show the lines of the bot's log that contain this text

    Attributes:
        channel: the channel, which is created for the scene; "" for direct messages.
    """

    name: str
    platform: Literal["slack", "discord"]
    channel: str
    script: str


@dataclass(frozen=True)
class Setup:
    """Settings of a bot, and the scenes that are played with it.

    Attributes:
        settings: the bot's settings except the model and the tokens; "" removes a setting.
    """

    scenes: tuple[Scene, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
