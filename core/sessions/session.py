"""Loaded sessions, bound to a session generation and to the turn whose run appends to them."""

from typing import Any

from google.adk.events.event import Event
from google.adk.sessions import Session
from pydantic import Field

from core.sessions.history import HistoryWindow, is_user_message
from core.sessions.prompt_text import AttributedPrompt
from core.workers.fencing import FencingToken


class StoredSession(Session):
    """A loaded session.

    Attributes:
        generation: the session generation that appended events belong to.
        created_at: when the session was created, in seconds since the epoch.
        fence: the turn whose run appends to it, if there is one.
        prompt: the user messages of that turn, with their authors.
        window: the part of the history that was loaded.
    """

    generation: int = Field(default=0, exclude=True)
    created_at: float = Field(default=0.0, exclude=True)
    fence: FencingToken | None = Field(default=None, exclude=True)
    prompt: AttributedPrompt | None = Field(default=None, exclude=True)
    window: HistoryWindow = Field(default=HistoryWindow(), exclude=True)

    def get_attribution(self, event: Event) -> dict[str, Any] | None:
        """Return the authors of the prompt's parts, if `event` is the prompt."""
        first = next(iter((event.content and event.content.parts) or ()), None)
        if self.prompt is None or first is None or first.text != self.prompt.text or not is_user_message(event):
            return None
        return self.prompt.to_json()
