"""Scenes, and the bots that play them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Scene:
    """A line of its script is

        NAME: WORDS    what somebody types
        ~ WORDS        wait until they are seen there
        - WORDS        wait until they are seen no more
        =              show the place once all answers stand, as who typed last sees it
        *              show it as it is now
        + TEXT         something else that happens: see `events`
        $ COMMAND      what is typed where the bot runs, and what that prints
        > WORDS        the lines of the bot's log that have them

    Attributes:
        where: the channel, made for it; nothing for direct messages.
    """

    name: str
    platform: Literal["slack", "discord"]
    where: str
    script: str


@dataclass(frozen=True)
class Setup:
    """A bot, and the scenes that are played with it.

    Attributes:
        settings: what it runs with beside the model and the tokens; an empty one takes one of these away.
    """

    scenes: tuple[Scene, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
