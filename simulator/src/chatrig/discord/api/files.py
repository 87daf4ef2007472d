"""Attachments of messages, and the HTTP handler of their downloads."""

from mimetypes import guess_type
from time import time

from aiohttp import web

from chatrig.discord.state.activity_log import DiscordActivityLog
from chatrig.discord.state.guild import Guild
from chatrig.discord.state.messages import DiscordAttachment
from chatrig.discord.state.snowflakes import create_id


def clean_file_name(name: str) -> str:
    """Return the name that Discord gives to an uploaded file.

    `attachment://` URLs have this name, too. Discord: spaces become underscores (discord-api-docs #4292), then leading
    dots and underscores are removed (#7754). If nothing stays, the name is unchanged.
    """
    return name.replace(" ", "_").lstrip("._") or name


def create_attachment(name: str, data: bytes) -> DiscordAttachment:
    """Return a new attachment with this name; its content type is guessed, or None."""
    return DiscordAttachment(create_id(), name, data, guess_type(name)[0])


class DiscordFiles:
    """HTTP handler of the downloads of attachments."""

    def __init__(self, guild: Guild, activity_log: DiscordActivityLog) -> None:
        self._guild = guild
        self._activity_log = activity_log

    async def serve(self, request: web.Request) -> web.Response:
        """Respond to `/attachments/{channel}/{file}/{name}` with the content of the file.

        The response is 404 for an expired URL, a deleted message or an unknown file. A file stays while a message that
        forwards it exists. Each request is recorded in the activity log.
        """
        self._activity_log.record_download(request.path)
        if int(request.query.get("ex", "0"), 16) <= time():
            return web.Response(status=404, text="This content is no longer available.")
        messages = (m for channel in self._guild.channels.values() for m in self._guild.list_messages(channel))
        for message in (message for message in messages if not message.deleted):
            for file in (message.forwarded_message or message).content.attachments:
                if file.id == request.match_info["file"]:
                    kind = file.content_type or "application/octet-stream"
                    return web.Response(body=file.data, headers={"Content-Type": kind})
        return web.Response(status=404)
