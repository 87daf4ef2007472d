"""Threads over REST: from a message, in a channel, and the posts of a forum.

Discord: docs.discord.com/developers/topics/threads.
"""

from sandbox.discord.api import Api
from sandbox.discord.chat import Chat
from sandbox.discord.contents import content_of
from sandbox.discord.guild import Channel
from sandbox.discord.requests import THREAD_EXISTS, DiscordError, Reply, Request, invalid

NAME = 100
AUTO_ARCHIVE = (60, 1440, 4320, 10080)


class Threads:
    def __init__(self, api: Api, chat: Chat) -> None:
        self._api = api
        self._chat = chat
        api.add("POST /channels/{channel}/messages/{message}/threads", self._from_message)
        api.add("POST /channels/{channel}/threads", self._in_channel)

    def _from_message(self, request: Request) -> Reply:
        channel = self._api.channel(request, "create_public_threads")
        message = self._api.message(request, channel)
        if message.thread is not None:
            raise DiscordError(400, THREAD_EXISTS, "A thread has already been created for this message")
        name, auto_archive = _about(request)
        guild = self._api.guild
        thread = guild.start_thread(channel, name, guild.bot, root=message, auto_archive=auto_archive)
        return self._created(thread)

    def _in_channel(self, request: Request) -> Reply:
        """A thread of no message, or a forum's post with its first message."""
        channel = self._api.channel(request, "create_public_threads")
        name, auto_archive = _about(request)
        guild = self._api.guild
        if channel.kind != "forum":
            return self._created(guild.start_thread(channel, name, guild.bot, auto_archive=auto_archive))
        form = request.form.get("message")
        if not isinstance(form, dict):
            raise invalid("message", "BASE_TYPE_REQUIRED", "This field is required")
        self._api.check("send_messages")
        content = self._chat.permitted(content_of(request.body, form), channel)
        thread = guild.start_thread(channel, name, guild.bot, auto_archive=auto_archive)
        first = guild.post(thread, guild.bot, content, id=thread.id)
        return Reply(self._api.payloads.channel(thread) | {"message": self._api.payloads.message(first)}, 201)

    def _created(self, thread: Channel) -> Reply:
        return Reply(self._api.payloads.channel(thread), 201)


def _about(request: Request) -> tuple[str, int]:
    """The name of a new thread, and after how many minutes it is archived."""
    name, auto_archive = request.form.get("name"), request.form.get("auto_archive_duration") or 1440
    if not isinstance(name, str) or not 1 <= len(name) <= NAME:
        raise invalid("name", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {NAME} in length.")
    if auto_archive not in AUTO_ARCHIVE:
        raise invalid("auto_archive_duration", "BASE_TYPE_CHOICES", f"Value must be one of {AUTO_ARCHIVE}.")
    return name, auto_archive
