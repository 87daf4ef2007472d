"""Discord as a platform: the REST client, the texts of messages, and the surfaces of replies."""

from collections.abc import Mapping, Sequence
from typing import Any

from channels.base import MessageText, SurroundingMessages
from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import make_client
from channels.discord.client.components import MAX_MENU_OPTIONS
from channels.discord.client.responses import InteractionResponder
from channels.discord.events.downloads import DiscordDownloads
from channels.discord.events.thread_context import DiscordContextFetcher
from channels.discord.events.thread_titles import get_title_as_text
from channels.discord.replies.ephemeral import EphemeralSurface
from channels.discord.replies.reactions import make_queued_reactions
from channels.discord.replies.surface import DiscordSurface
from channels.discord.session_ids import EPHEMERAL, PLATFORM
from channels.discord.settings import DiscordSettings
from channels.platform import FetchedFile, FileCheck
from channels.replies.surface import Surface
from core.conversations.history_state import HistoryState
from core.messages.inbox_message import Attachment, InboxMessage
from core.privacy.vault import Cipher


class DiscordPlatform:
    """Discord as a `Platform`; create it inside a running event loop.

    Replies use a REST client that stays open after the adapter has stopped.
    """

    name = PLATFORM
    max_menu_options = MAX_MENU_OPTIONS

    def __init__(self, settings: DiscordSettings) -> None:
        self.settings = settings
        self.client = make_client(settings)
        self.cipher = Cipher(settings.bot_token)
        self.api = DiscordApi(self.client, silent=settings.silent)
        self.limiters = self.api.limiters
        self.queued_reactions = make_queued_reactions(self.api)
        self._downloads = DiscordDownloads(self.api, settings.api_url)
        self._context_fetcher = DiscordContextFetcher(self.api)

    async def aclose(self) -> None:
        """Close the REST client; call it after the last reply."""
        await self.api.aclose()
        await self.client.close()

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        # a reply is found by the message that it replies to
        if "token" in address:
            return EphemeralSurface(self.create_responder(address), self.queued_reactions, address)
        return self.create_message_surface(address)

    def create_message_surface(self, address: Mapping[str, Any]) -> DiscordSurface:
        return DiscordSurface(self.api, self.queued_reactions, address, ping_after=self.settings.ping_after)

    def create_responder(self, address: Mapping[str, Any]) -> InteractionResponder:
        return InteractionResponder(
            self.api, self.client, {**address, "token": self.cipher.decrypt(str(address["token"]))}
        )

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        return {**address, "side_name": name}

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        if "token" in address:
            return {**address, "side_name": message_id}
        reply_address = {key: value for key, value in address.items() if key != "root"}
        return {**reply_address, "message": message_id, "is_bot_message": True}

    def can_post(self, address: Mapping[str, Any]) -> bool:
        return "token" not in address

    async def get_locale(self, inbound: InboxMessage) -> str:
        """Return the locale of the server, or of an interaction's author; else empty.

        Discord: only a community server has a locale. A message has no locale of its author.
        """
        return str(inbound.address.get("locale", ""))

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        is_private = inbound.place.startswith((f"{PLATFORM}:dm:", f"{PLATFORM}:{EPHEMERAL}:"))
        return MessageText.from_message(
            inbound.text or get_title_as_text(inbound),
            str(inbound.address["speaker"]),
            inbound.attachments,
            is_one_to_one=is_private,
            is_forward=bool(inbound.forwarded),
            bot_name=self.api.bot_user.display_name,
            locale=await self.get_locale(inbound),
        )

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        return await self._downloads.fetch(file, check)

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        return await self._context_fetcher.fetch(messages, history)
