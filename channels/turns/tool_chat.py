"""Chat context of a turn: reactions and further messages of its tools."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from channels.base import Priority
from channels.platform import Platform
from channels.replies.chunk_planner import ChunkPlanner
from channels.replies.surface import Surface
from core.errors import ChatError, SurfaceError
from core.messages.inbox_message import storable_text

#: Limits of one run of the agent.
MAX_REACTIONS, MAX_POSTS = 3, 3


class TurnChat:
    """Lets the tools of a turn react to the user's message and post further messages: a `ChatContext`.

    A turn may add at most `MAX_REACTIONS` reactions and post at most `MAX_POSTS` messages; further calls raise
    `ChatError`. A call that the platform refuses counts too.
    """

    def __init__(self, platform: Platform, address: Mapping[str, Any], time_zone: str) -> None:
        self.time_zone = time_zone
        self._platform = platform
        self._address = address
        self._reactions = 0
        self._posts = 0

    async def add_reaction(self, emoji: str) -> None:
        if self._reactions == MAX_REACTIONS:
            raise ChatError(f"a turn may add at most {MAX_REACTIONS} reactions")
        self._reactions += 1
        try:
            await self._platform.create_surface(self._address).add_reaction(emoji)
        except SurfaceError as error:
            raise ChatError(f"the reaction {emoji!r} cannot be added: {error}") from error

    async def post_message(self, text: str) -> None:
        if self._posts == MAX_POSTS:
            raise ChatError(f"a turn may post at most {MAX_POSTS} messages beside its reply")
        surface = self._create_side_surface()
        planner = ChunkPlanner(surface.limits)
        planner.feed(storable_text(text))
        chunks = planner.plan(Priority.FINAL).chunks
        if len(chunks) != 1:
            problem = "is too long for one message: shorten or divide it" if chunks else "is empty"
            raise ChatError(f"the text {problem}")
        self._posts += 1
        try:
            await surface.post_message(chunks[0].text)
        except SurfaceError as error:
            raise ChatError(f"the message cannot be posted: {error}") from error

    def _create_side_surface(self) -> Surface:
        """Return a surface for a message that stays if the reply is deleted or shown again."""
        name = uuid4().hex
        return self._platform.create_surface(self._platform.side_message_address(self._address, name), turn_id=name)
