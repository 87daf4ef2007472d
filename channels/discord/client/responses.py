"""Responses to interactions by their tokens.

Discord: docs.discord.com/developers/interactions/receiving-and-responding. An interaction must be acknowledged within
3 seconds; its token expires after 15 minutes. Responses do not count in the global rate limit of the bot.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import discord
from discord.http import Route, handle_message_parameters

from channels.base import Button, File, Priority
from channels.discord.client.api import NO_MENTIONS, DiscordApi, SentMessage
from channels.discord.client.components import make_view
from channels.discord.client.files import to_discord_files
from channels.rate_limits.limiter import RateLimiter, Window

#: Usual rate limit of the messages that are sent, or edited, by one token.
TOKEN_WINDOW = Window(calls=5, seconds=5.25)

#: Discord's id for the response to an interaction, in place of a message id.
RESPONSE_ID = "@original"

#: Flags of a message that only the user sees, without link previews.
_EPHEMERAL_FLAGS = discord.MessageFlags(ephemeral=True, suppress_embeds=True)


class InteractionResponder:
    """Sends and edits the response to one interaction, and its follow-up messages.

    Discord: the interaction's token allows one response and 5 follow-up messages within 15 minutes. The results and
    errors of the methods are those of `DiscordApi.call`.

    Args:
        address: an address with the `application` id and the decrypted `token`.
    """

    def __init__(self, api: DiscordApi, client: discord.Client, address: Mapping[str, Any]) -> None:
        self._api = api
        self._client = client
        self._application = str(address["application"])
        self._token = str(address["token"])

    @property
    def post_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("posts of", self._token), TOKEN_WINDOW)

    @property
    def edit_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("edits of", self._token), TOKEN_WINDOW)

    async def post_message(
        self, text: str, controls: Sequence[Button] = (), *, priority: Priority, has_slot: bool = False
    ) -> SentMessage | None:
        """Post a follow-up message that only the author of the interaction sees."""
        content = {"content": text, "view": make_view(controls), "flags": _EPHEMERAL_FLAGS}
        return await self._send("follow-up", "", content, priority, has_slot=has_slot)

    async def edit_message(
        self, message: str, text: str, controls: Sequence[Button], *, priority: Priority, has_slot: bool = False
    ) -> SentMessage | None:
        """Replace the text and the buttons of a follow-up message, or of the response (`RESPONSE_ID`)."""
        content = {"content": text, "view": make_view(controls)}
        return await self._send("answer", message, content, priority, has_slot=has_slot)

    async def answer(self, text: str, file: File | None = None, buttons: Sequence[Button] = ()) -> int:
        """Set or replace the text, the file and the buttons of the response; return the id of its message."""
        files = [file] if file else []
        content = {"content": text, "view": make_view(buttons)}
        message = await self._send("answer", RESPONSE_ID, content, Priority.FINAL, files=files)
        assert message is not None, "only a stream update may be dropped"
        return message.id

    async def set_files(self, message: str, files: Sequence[File]) -> None:
        """Replace all attachments of a follow-up message, or of the response (`RESPONSE_ID`)."""
        await self._send("attach", message, {}, Priority.FINAL, files=files)

    async def send_ephemeral(self, text: str, buttons: Sequence[Button] = ()) -> None:
        """Send a follow-up message that only the author of the interaction sees."""
        await self.post_message(text, buttons, priority=Priority.FINAL)

    async def delete_message(self, message: str) -> None:
        async def send() -> None:
            await self._client.http.request(self._route("DELETE", message))

        await self._api.call("delete", send, self.edit_limiter)

    async def _send(
        self,
        name: str,
        message: str,
        content: Mapping[str, Any],
        priority: Priority,
        *,
        files: Sequence[File] | None = None,
        has_slot: bool = False,
    ) -> SentMessage | None:
        """Edit a message, or post one if `message` is empty; files that are None stay as they are."""
        limiter, method = (self.edit_limiter, "PATCH") if message else (self.post_limiter, "POST")

        async def send() -> SentMessage:
            attachments: Any = discord.utils.MISSING if files is None else to_discord_files(files)
            query: dict[str, Any] = {} if message else {"params": {"wait": "true"}}
            with handle_message_parameters(allowed_mentions=NO_MENTIONS, attachments=attachments, **content) as body:
                query |= {"form": body.multipart, "files": body.files} if body.files else {"json": body.payload}
                message_data = await self._client.http.request(self._route(method, message), **query)
            return SentMessage(int(message_data["id"]), message_data["content"])

        return await self._api.call(name, send, limiter, priority=priority, has_slot=has_slot)

    def _route(self, method: str, message: str) -> Route:
        path = "/webhooks/{webhook_id}/{webhook_token}" + ("/messages/{message_id}" if message else "")
        application = int(self._application)
        token = self._token
        return Route(method, path, webhook_id=application, webhook_token=token, message_id=message)
