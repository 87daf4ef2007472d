"""What of all that Slack says is meant for the bot."""

from collections.abc import Mapping
from typing import Any

from channels.intake import Call
from channels.slack.text import users_named, without_mention
from core.inbound import Attachment, Inbound, storable

#: The channel's name in sessions, inbox and logs.
NAME = "slack"

#: Messages that people write; every other subtype is Slack's own talk, an edit, or a bot's.
_SPOKEN = {None, "file_share", "thread_broadcast"}

#: What of a file says where its bytes are.
_SOURCE = ("id", "url_private_download", "file_access")


def hear(body: Mapping[str, Any]) -> Call | None:
    """The call in an Events API payload, if it is one.

    `app_mention` and `message` are two events about one message: they give the same event key, which is made of
    where and when it was said.
    """
    event = body.get("event") or {}
    if event.get("type") not in ("app_mention", "message"):
        return None
    if event.get("subtype") not in _SPOKEN or event.get("bot_id") or event.get("hidden"):
        return None
    if event.get("edited"):  # Slack: an edit that brings the bot's name in is an `app_mention` as well
        return None
    bot_user_id = bot_of(body)
    user, channel, ts = event.get("user"), event.get("channel"), event.get("ts")
    if not (user and channel and ts) or user == bot_user_id:
        return None
    said = event.get("text") or ""
    is_direct = event.get("channel_type") == "im" or channel.startswith("D")
    is_called = event["type"] == "app_mention" or is_direct or bot_user_id in users_named(said)
    if not is_called and not event.get("thread_ts"):
        return None
    team = team_of(body)
    root = event.get("thread_ts") or ts
    inbound = Inbound(
        event_key=f"{NAME}:{team}:{channel}:{ts}",
        session_id=session_id(team, channel, root),
        place=place(team, channel),
        channel=NAME,
        address={
            "team": team,
            "channel": channel,
            "thread_ts": root,
            "ts": ts,
            "user": user,
            "user_team": event.get("user_team") or event.get("team") or team,
            "bot": bot_user_id,
        },
        author=user,
        text=storable(without_mention(said, bot_user_id)),
        sent_at=float(ts),
        attachments=tuple(map(_attachment, event.get("files") or ())),
    )
    return Call(inbound, is_called)


def _attachment(file: Mapping[str, Any]) -> Attachment:
    """Slack: of a file in a channel that is shared with another organisation, an event has but the id and
    `file_access: check_file_info`.
    """
    return Attachment(
        name=storable(file.get("name") or file.get("id") or "a file"),
        mime_type=file.get("mimetype"),
        size=file.get("size") or 0,
        source={key: file[key] for key in _SOURCE if key in file},
    )


def team_of(body: Mapping[str, Any]) -> str:
    """The workspace in which the bot was spoken to."""
    authorizations = body.get("authorizations") or [{}]
    found = authorizations[0].get("team_id") or body.get("team_id") or authorizations[0].get("enterprise_id")
    return str(found or body.get("enterprise_id") or "")


def bot_of(body: Mapping[str, Any]) -> str:
    """The bot's own user. Slack: an event's authorization names the user that the app acts as."""
    return str((body.get("authorizations") or [{}])[0].get("user_id") or "")


def place(team: str, channel: str) -> str:
    return f"{NAME}:{team}:{channel}"


def session_id(team: str, channel: str, root_ts: str) -> str:
    """A thread is a session; its first message has the same one as what is said under it."""
    return f"{place(team, channel)}:{root_ts}"
