"""Scenes, and the bots that play them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Scene:
    """Scene of a page.

    The lines of its script:

        NAME: TEXT     a user types this text
        ~ TEXT         wait until it is shown
        - TEXT         wait until it is not shown any more
        =              show the conversation once all answers are complete, as the last user sees it
        *              show it as it is now
        + NAME         another event: see `events`
        $ COMMAND      run an operator command, and show its output
        > TEXT         show the lines of the bot's log that contain it

    Attributes:
        where: the channel, which is created for it; empty for direct messages.
    """

    name: str
    platform: Literal["slack", "discord"]
    where: str
    script: str


@dataclass(frozen=True)
class Setup:
    """Settings of a bot, and the scenes that are played with it.

    Attributes:
        settings: its settings beside the model and the tokens; an empty value removes one.
    """

    scenes: tuple[Scene, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
