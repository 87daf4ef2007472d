"""Live check of Discord: the calls of an edited reply with a file, in a hidden channel or a DM."""

from typing import Any

from bot.setup.live.steps import PAUSES, LiveStep, StepError, StepRunner
from channels.base import File, Priority
from channels.discord.client.api import DiscordApi, SentMessage
from channels.discord.client.auth import log_in, make_client
from channels.discord.settings import DiscordSettings
from channels.rate_limits.retries import RefusedError

_CHANNEL = "/channels/{channel}"
_MESSAGE = f"{_CHANNEL}/messages/{{message}}"
_REACTION = f"{_MESSAGE}/reactions/{{emoji}}/@me"
_LOGIN_REMEDY = "Copy the token at https://discord.com/developers/applications, your app, under Bot, Reset Token."

#: Remedies by Discord's error code. Discord: docs.discord.com/developers/topics/opcodes-and-status-codes.
_REMEDIES = {
    "HTTP 401": _LOGIN_REMEDY,
    "40001": _LOGIN_REMEDY,
    "10003": "Correct the id after `--in discord:`, and invite the bot to the server (`parley manifest discord`).",
    "10013": "Correct the id after `--in discord:`: it is neither a channel of the bot nor a user.",
    "10008": "Somebody deleted the message during the check: run it again.",
    "40005": "The server takes no file of this size.",
    "50001": "Give the bot's role the permission View Channel in this channel.",
    "50007": "The user takes no direct messages from the bot: they allow them in the server's privacy settings.",
    "50278": "The user shares no server with the bot: invite both to one.",
    "90001": "The user has blocked the bot: name another place.",
    "200000": "AutoMod of the server refuses the text: exempt the bot's role or the channel.",
}

#: Discord's code for a channel that does not exist.
_UNKNOWN_CHANNEL = "10003"

_LAST_TEXT = "a post that **grew** by edits"
_EMOJI = "👀"


class DiscordLiveCheck:
    """Makes the calls, and remembers what they wrote.

    Args:
        place: the id of a text channel, of a DM, or of a user.
        marker: a text that is unique to this check, and is in everything that it writes.
    """

    def __init__(self, api: DiscordApi, runner: StepRunner, place: int, marker: str) -> None:
        self._api = api
        self._runner = runner
        self._channel = place
        self._marker = marker
        self._guild = ""
        self._has_posted = False
        self._message = 0

    def list_steps(self) -> list[LiveStep]:
        history = "Read Message History"
        return [
            LiveStep("place", f"GET {_CHANNEL}", self._check_place, {"id": str, "type": int}, needs=("token",)),
            LiveStep(
                "post",
                f"POST {_CHANNEL}/messages",
                self._post,
                {"id": str, "channel_id": str, "content": self._text("a **post**")},
                needs=("place",),
                posts=True,
                permission="Send Messages",
            ),
            LiveStep(
                "edit",
                f"PATCH {_MESSAGE}",
                lambda: self._edit("a post that was **edited**"),
                {"id": str, "content": self._text("a post that was **edited**"), "edited_timestamp": str},
                needs=("post",),
            ),
            LiveStep(
                "edit again",
                f"PATCH {_MESSAGE}",
                lambda: self._edit(_LAST_TEXT),
                {"id": str, "content": self._text(_LAST_TEXT)},
                needs=("post",),
            ),
            LiveStep(
                "file",
                f"PATCH {_MESSAGE}",
                self._attach,
                {"attachments.0.id": str, "attachments.0.filename": str, "attachments.0.url": str},
                needs=("post",),
                permission="Attach Files",
            ),
            LiveStep(
                "react",
                f"PUT {_REACTION}",
                lambda: self._api.add_reaction(self._channel, self._message, _EMOJI),
                needs=("post",),
                permission=f"Add Reactions and {history}",
            ),
            LiveStep(
                "unreact",
                f"DELETE {_REACTION}",
                lambda: self._api.remove_reaction(self._channel, self._message, _EMOJI),
                needs=("react",),
            ),
            LiveStep(
                "read",
                f"GET {_MESSAGE}",
                self._read,
                {"content": self._text(_LAST_TEXT)},
                needs=("edit again",),
                permission=history,
            ),
        ]

    def _text(self, text: str) -> str:
        return f"{self._marker}: {text}"

    async def _check_place(self) -> None:
        """Look up the place; open the DM of a user. Refuse a channel that everyone can view."""
        try:
            channel = await self._api.fetch_channel(self._channel)
        except RefusedError as refusal:
            if refusal.code != _UNKNOWN_CHANNEL:
                raise
            channel = await self._api.open_dm(self._channel)
        self._channel = channel.id
        if channel.type.name == "private":
            return
        if channel.type.name not in ("text", "news"):
            raise StepError("the id is that of no text channel and no DM. Name one of these after `--in discord:`")
        guild = await self._api.fetch_guild(channel.guild.id)
        found = await self._api.fetch_channel(channel.id, guild)
        if found.permissions_for(guild.default_role).view_channel:
            raise StepError(
                f"@everyone can view #{found.name}, where others would see the check. Name a private channel or a user "
                "(the DM with them) after `--in discord:`"
            )
        self._guild = str(guild.id)

    async def _post(self) -> None:
        self._has_posted = True

        async def find_posted() -> SentMessage | None:
            found = await self._find_own()
            return SentMessage(found[0].id, found[0].content) if found else None

        message = await self._api.post_message(
            self._channel,
            self._text("a **post**"),
            reply_to=None,
            nonce_key=self._marker,
            priority=Priority.PROGRESS,
            has_slot=False,
            find_posted=find_posted,
        )
        assert message is not None, "only a stream update may be dropped"
        self._message = message.id

    async def _edit(self, text: str) -> None:
        await self._api.edit_message(
            self._channel, self._message, self._text(text), priority=Priority.PROGRESS, has_slot=False
        )

    async def _attach(self) -> None:
        file = File(f"{self._marker.replace(' ', '-')}.txt", b"A file of parley check --live.\n")
        await self._api.set_files(self._channel, self._message, [file])

    async def _read(self) -> None:
        await self._api.fetch_message(self._channel, self._message)

    async def _find_own(self) -> list[Any]:
        target = self._api.get_partial_channel(self._channel)
        messages = await self._api.fetch_messages(target, after=0, limit=50)
        return [
            message for message in messages if message.author == self._api.bot_user and self._marker in message.content
        ]

    async def clean_up(self) -> None:
        """Delete everything that the check wrote, and name what may be left."""
        await self._api.aclose()
        if not self._has_posted:
            return
        known = {self._message} - {0}

        async def read_channel() -> None:
            known.update(message.id for message in await self._find_own())

        await self._runner.run(
            LiveStep("read channel", f"GET {_CHANNEL}/messages", read_channel, permission="Read Message History")
        )
        if known:
            self._runner.uncertain.clear()
        left = []
        for message in sorted(known):
            if not await self._delete(message):
                left.append(f"https://discord.com/channels/{self._guild or '@me'}/{self._channel}/{message}")
        self._runner.report_cleanup(str(self._channel), self._marker, left)

    async def _delete(self, message: int) -> bool:
        async def delete() -> None:
            try:
                await self._api.delete_message(self._channel, message)
            except RefusedError as refusal:
                if refusal.code != "10008":  # deleted already
                    raise

        return await self._runner.run(LiveStep("delete message", f"DELETE {_MESSAGE}", delete))


def find_remedy(step: LiveStep, code: str, _response: Any) -> str:
    """Return the remedy for a refusal of Discord: see `FindRemedy`."""
    if code == "50013":
        return f"Give the bot's role the permission {step.permission or 'View Channel'} in this channel."
    return _REMEDIES.get(code, "See https://docs.discord.com/developers/topics/opcodes-and-status-codes")


async def check_discord(login: DiscordSettings, place: str, marker: str, runner: StepRunner, *, speed: float) -> None:
    """Make the calls in a place, and delete everything that they wrote, also after a failure."""
    client = make_client(login)
    api = DiscordApi(client, pauses=PAUSES, speed=speed)
    runner.recorder.attach(api.trace)
    check = DiscordLiveCheck(api, runner, int(place), marker)
    try:
        await runner.run_all([LiveStep("token", "GET /users/@me", lambda: log_in(client, login)), *check.list_steps()])
    finally:
        await check.clean_up()
        await client.close()
