"""Slack as a platform: the API client, the texts of messages, and the surfaces of replies."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from channels.base import MessageText, SurroundingMessages
from channels.platform import FetchedFile, FileCheck
from channels.slack.client.api import SlackApi
from channels.slack.client.auth import make_session, make_web_client
from channels.slack.client.blocks import MAX_MENU_OPTIONS
from channels.slack.client.workspaces import WorkspaceTokenStore
from channels.slack.directory import WorkspaceDirectory
from channels.slack.events.agent_context import AgentContextStore
from channels.slack.events.downloads import SlackDownloads
from channels.slack.events.thread_context import SlackContextFetcher
from channels.slack.replies.assistant import AssistantThreads
from channels.slack.replies.reactions import make_queued_reactions
from channels.slack.replies.streaming import StreamPolicy
from channels.slack.replies.surface import SlackSurface
from channels.slack.session_ids import PLATFORM
from channels.slack.settings import SlackSettings
from channels.slack.text import to_plain_text
from core.conversations.history_state import HistoryState
from core.messages.inbox_message import Attachment, InboxMessage
from core.privacy.vault import Cipher, Vault

log = logging.getLogger(__name__)

#: Seconds that a stop waits for the calls that set thread statuses.
SETTLE_TIMEOUT_SECONDS = 2.0


class SlackPlatform:
    """Slack as a `Platform`, with a `vault` for several workspaces; create it in a running event loop."""

    name = PLATFORM
    max_menu_options = MAX_MENU_OPTIONS

    def __init__(self, settings: SlackSettings, vault: Vault | None = None, *, tracks_unaddressed: bool) -> None:
        self.settings = settings
        self.client = make_web_client(settings)
        self._connections = self.client.session = make_session()
        self.tokens = WorkspaceTokenStore(vault) if vault is not None else None
        self.api = SlackApi(self.client, tokens=self.tokens)
        self.limiters = self.api.limiters
        self.directory = WorkspaceDirectory(self.api)
        self.cipher = Cipher(settings.bot_token or settings.client_secret)
        self.agent_contexts = AgentContextStore(self.cipher)
        self.queued_reactions = make_queued_reactions(self.api)
        self._downloads = SlackDownloads(self.api)
        self._context = SlackContextFetcher(self.api, self.directory, tracks_unaddressed=tracks_unaddressed)
        self._assistant = AssistantThreads(self.api)
        self._stream_policy = None if settings.streaming == "edit" else StreamPolicy(settings.streaming)

    async def aclose(self) -> None:
        """Wait for the calls that set thread statuses, and disconnect; call it after the last reply."""
        await self._assistant.drain(SETTLE_TIMEOUT_SECONDS)
        await self._connections.close()

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> SlackSurface:
        return SlackSurface(
            self.api,
            self.queued_reactions,
            address,
            turn_id,
            assistant=self._assistant,
            stream_policy=self._stream_policy,
        )

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        # the metadata of its message identifies it
        return address

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        return address

    def can_post(self, address: Mapping[str, Any]) -> bool:
        return True

    async def get_locale(self, inbound: InboxMessage) -> str:
        return "" if inbound.is_bot else await self.directory.get_locale(str(inbound.address["team"]), inbound.author)

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        """Return the text of a stored message for the prompt, with names in place of ids."""
        team = str(inbound.address["team"])
        await self.api.for_team(team).token()  # fails before a model call if the app was uninstalled
        bot = str(inbound.address.get("bot", ""))
        users = [user for user in (bot, "" if inbound.is_bot else inbound.author) if user]
        names = await self.directory.get_names(team, users, [] if inbound.is_prompt else [inbound.text])
        names.setdefault(inbound.author, str(inbound.address.get("name", "")))
        is_direct = str(inbound.address["channel"]).startswith("D")
        name = names[inbound.author]
        bot_name = names.get(bot, "")
        text = MessageText.from_message(
            inbound.text if inbound.trigger else to_plain_text(inbound.text, names),
            name,
            inbound.attachments,
            is_one_to_one=is_direct,
            is_forward=bool(inbound.forwarded),
            bot_name="" if bot_name == bot else bot_name,  # an id: the name cannot be looked up
            time_zone="" if inbound.is_bot else await self.directory.get_time_zone(team, inbound.author),
            locale=await self.get_locale(inbound),
        )
        return replace(text, agent_context=self.agent_contexts.read(inbound))

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        return await self._downloads.fetch(str(inbound.address["team"]), file, check)

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        return await self._context.fetch(messages, history)

    async def is_installed(self, team: str) -> bool:
        """Return whether the app is installed in a workspace; if not, log a warning."""
        if self.tokens is None or await self.tokens.is_installed(team):
            return True
        log.warning("the app is not installed in workspace %s: its events are ignored", team)
        return False
