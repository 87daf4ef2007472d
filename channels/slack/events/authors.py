"""Authors of Slack messages: tells people who post through an app from bots.

Slack: each post by the Web API has the app's `bot_id`. Its `user` is the owner of the token: the app's bot user, or a
person (anneschuth/claude-threads #526). Only `users.info` tells these two apart, by `is_bot`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from channels.slack.directory import WorkspaceDirectory
from channels.slack.events.content import SLACKBOT
from channels.slack.events.parser import bot_user_of, workspace_of

#: The fields of the event of an edit or deletion with versions of the message.
_VERSIONS = ("message", "previous_message")


async def resolve_authors(
    directory: WorkspaceDirectory, team: str, messages: Sequence[Mapping[str, Any]], *, own: str = ""
) -> list[dict[str, Any]]:
    """Return Slack's message objects without the `bot_id` of those that people wrote.

    So a `bot_id` names the author. A `user` that Slack does not name as a person counts as a bot. The bot's `own` user
    is not looked up.
    """
    users = {str(message["user"]) for message in messages if _may_be_from_person(message)} - {own}
    people = await directory.find_people(team, users)
    return [
        {
            name: value
            for name, value in message.items()
            if name != "bot_id" or not _may_be_from_person(message) or message["user"] not in people
        }
        for message in messages
    ]


async def resolve_event_authors(directory: WorkspaceDirectory, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a message, an edit or a deletion after `resolve_authors`."""
    event = body["event"]
    names = [name for name in _VERSIONS if event.get(name)]
    resolved, *versions = await resolve_authors(
        directory, workspace_of(body), [event, *(event[name] for name in names)], own=bot_user_of(body)
    )
    return {**body, "event": {**resolved, **dict(zip(names, versions, strict=True))}}


def _may_be_from_person(message: Mapping[str, Any]) -> bool:
    """Return whether an app posted a message as a user.

    Slack: an incoming webhook's message is a `bot_message` without a user (slackapi/python-slack-sdk #229).
    """
    is_post_of_user = message.get("bot_id") and message.get("user") not in (None, "", SLACKBOT)
    return bool(is_post_of_user) and message.get("subtype") != "bot_message"
