"""Answers to interactions: to commands and presses, by the token that came with each.

Discord: docs.discord.com/developers/interactions/receiving-and-responding. An interaction must be acknowledged within 3
seconds; then its token is good for a quarter of an hour. What is answered is outside of the bot's other limits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import discord
from discord.http import Route, handle_message_parameters

from channels.base import Button, File, Priority
from channels.discord.client.api import NO_MENTIONS, DiscordApi, Said
from channels.discord.client.components import view_of
from channels.discord.client.files import sent
from channels.rate_limits.limiter import RateLimiter, Window

#: What is commonly seen of the messages of one token.
MESSAGES = Window(calls=5, seconds=5.25)

#: The first answer, by the name that Discord has for it.
ORIGINAL = "@original"

#: Discord: only the asker sees the message; it shows no previews of links.
_FLAGS = discord.MessageFlags(ephemeral=True, suppress_embeds=True)


class Token:
    """What one interaction allows, whoever goes on with it, for a quarter of an hour: an answer and 5 more messages,
    seen by the asker alone.

    Args:
        address: the `application` and the `token`.
    """

    def __init__(self, api: DiscordApi, client: discord.Client, address: Mapping[str, Any]) -> None:
        self._api = api
        self._client = client
        self._application = str(address["application"])
        self._token = str(address["token"])

    @property
    def posts(self) -> RateLimiter:
        return self._api.budget(("posts of", self._token), MESSAGES)

    @property
    def edits(self) -> RateLimiter:
        return self._api.budget(("edits of", self._token), MESSAGES)

    async def post(
        self, text: str, controls: Sequence[Button], *, priority: Priority, is_admitted: bool
    ) -> Said | None:
        """Post one more message; none for a tick that had no place."""

        async def send() -> Said:
            return await self._send("POST", "", controls, content=text, flags=_FLAGS)

        return await self._api.call("follow-up", send, self.posts, priority=priority, is_admitted=is_admitted)

    async def edit(
        self, message: str, text: str, controls: Sequence[Button], *, priority: Priority, is_admitted: bool
    ) -> Said | None:
        """Edit a message, or let the first answer say this; none for a tick that had no place."""

        async def send() -> Said:
            return await self._send("PATCH", message, controls, content=text)

        return await self._api.call("answer", send, self.edits, priority=priority, is_admitted=is_admitted)

    async def answer(self, text: str, file: File | None = None) -> int:
        """Let the first answer say this, and have this file; returns its id. It may be said any number of times."""

        async def send() -> Said:
            return await self._send("PATCH", ORIGINAL, None, content=text, attachments=sent([file] if file else []))

        said = await self._api.call("answer", send, self.edits, priority=Priority.FINAL)
        assert said is not None, "only a tick may be dropped"
        return said.id

    async def whisper(self, text: str) -> None:
        """Tell the asker something, beside all that he and others have been told."""
        await self.post(text, (), priority=Priority.FINAL, is_admitted=False)

    async def attach(self, message: str, files: Sequence[File]) -> None:
        """Let a message have these files, and no others."""

        async def send() -> Said:
            return await self._send("PATCH", message, None, attachments=sent(files))

        await self._api.call("attach", send, self.edits, priority=Priority.FINAL)

    async def delete(self, message: str) -> None:
        async def send() -> None:
            await self._client.http.request(self._route("DELETE", message))

        await self._api.call("delete", send, self.edits)

    async def _send(self, method: str, message: str, controls: Sequence[Button] | None, **content: Any) -> Said:
        if controls is not None:
            content["view"] = view_of(controls)
        parameters = handle_message_parameters(allowed_mentions=NO_MENTIONS, **content)
        told: dict[str, Any] = {} if message else {"params": {"wait": "true"}}
        with parameters as body:
            told |= {"form": body.multipart, "files": body.files} if body.files else {"json": body.payload}
            said = await self._client.http.request(self._route(method, message), **told)
        return Said(int(said["id"]), said["content"])

    def _route(self, method: str, message: str) -> Route:
        path = "/webhooks/{webhook_id}/{webhook_token}" + ("/messages/{message_id}" if message else "")
        application, token = int(self._application), self._token
        return Route(method, path, webhook_id=application, webhook_token=token, message_id=message)
