"""What of all that Slack says is meant for the bot."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from channels.intake.handler import EDIT_MENTION_WINDOW_SECONDS, IncomingMessage
from channels.slack.events.content import passed_on, said
from channels.slack.session_ids import NAME, event_key, is_direct, place, session_id
from channels.slack.settings import Direct
from channels.slack.text import mentioned_ids, titled, without_mention
from core.identity import BOT_PREFIX, Actor, Location
from core.inbox_message import Attachment, InboxMessage, storable_text

#: Messages that people write; every other subtype is Slack's own talk, an edit, or a bot's.
_SPOKEN = {None, "file_share", "thread_broadcast"}

#: Slack: a user pressed Slack's own stop button of a thread.
STOPPED = "agent_session_stopped"

#: What of a file says where its bytes are.
_SOURCE = ("id", "url_private_download", "file_access")


@dataclass(frozen=True, slots=True)
class Change:
    """A message that was changed by who wrote it.

    Attributes:
        event_key: of the message.
        text: what it says now; none if it was deleted.
    """

    event_key: str
    text: str | None


def hear(body: Mapping[str, Any], direct: Direct = "thread", *, hears_bots: bool = False) -> IncomingMessage | None:
    """The call in an Events API payload, if it is one. Of other bots, only what mentions this one may be.

    `app_mention` and `message` are two events about one message: they give the same event key, which is made of
    where and when it was said.
    """
    event, bot_user_id = body.get("event") or {}, bot_of(body)
    bot_id, user = str(event.get("bot_id") or ""), str(event.get("user") or "")
    if not _is_spoken(event, is_bot=bool(bot_id)) or user == bot_user_id or (bot_id and not hears_bots):
        return None
    channel, ts = str(event["channel"]), str(event["ts"])
    words = said({**event, "files": ()})
    is_alone = event.get("channel_type") == "im" or is_direct(channel)
    is_mentioned = event["type"] == "app_mention" or bot_user_id in mentioned_ids(words)
    is_called = is_mentioned or (is_alone and not bot_id)
    if not is_called and (bot_id or not event.get("thread_ts")):
        return None
    team = team_of(body)
    root = event.get("thread_ts") or ("" if is_direct(channel) and direct == "single" else ts)
    author, home = f"{BOT_PREFIX}{bot_id}" if bot_id else user, str(event.get("user_team") or event.get("team") or team)
    title = titled(without_mention(words, bot_user_id))
    inbound = InboxMessage(
        event_key=event_key(team, channel, ts),
        session_id=session_id(team, channel, root, direct),
        place=place(team, channel),
        channel=NAME,
        address={
            "team": team,
            "channel": channel,
            "thread_ts": root,
            "ts": ts,
            "user": user,
            "user_team": home,
            "bot": bot_user_id,
            **({"title": title} if title else {}),
            **({"name": name_of(event, bot_id)} if bot_id else {}),
        },
        author=author,
        text=storable_text(without_mention(words, bot_user_id)),
        sent_at=float(ts),
        attachments=tuple(map(attachment, event.get("files") or ())),
        brings=tuple(passed_on(event)),
        visitor=Actor(NAME, author, workspaces=(home,), is_external=is_from_outside(body)),
        spot=Location(team, channel, is_direct=is_alone),
    )
    return IncomingMessage(inbound, is_called)


def _is_spoken(event: Mapping[str, Any], *, is_bot: bool) -> bool:
    """Return whether an event is a new message of a person or of a bot.

    Slack: an edit that adds a mention of the bot is an `app_mention` as well. An `app_mention` of a message with files
    has `upload`, and may lack the files, which the `message` event of the same message has.
    """
    if event.get("type") not in ("app_mention", "message") or event.get("hidden") or event.get("edited"):
        return False
    if event["type"] == "app_mention" and "upload" in event and not event.get("files"):
        return False
    has_place = event.get("channel") and event.get("ts") and (event.get("user") or is_bot)
    return bool(has_place) and event.get("subtype") in (_SPOKEN | {"bot_message"} if is_bot else _SPOKEN)


def is_written(message: Mapping[str, Any]) -> bool:
    """Whether somebody says something in a message as Slack keeps it, and not Slack itself."""
    return message.get("subtype") in _SPOKEN | {"bot_message", "me_message"}


def name_of(event: Mapping[str, Any], bot_id: str) -> str:
    """What a bot calls itself."""
    return str(event.get("username") or (event.get("bot_profile") or {}).get("name") or bot_id)


def called_by_edit(
    body: Mapping[str, Any], hear: Callable[[Mapping[str, Any]], IncomingMessage | None]
) -> IncomingMessage | None:
    """The call in an Events API payload about an edit, if that is what has made one of what was said a moment ago.
    It counts as said when it was edited.

    Slack tells of such an edit by an `app_mention` as well, which does not tell what was said before.

    Args:
        hear: finds the call in the event of a message.
    """
    event, bot = body.get("event") or {}, bot_of(body)
    before, now = event.get("previous_message") or {}, event.get("message") or {}
    if event.get("subtype") != "message_changed" or not bot or bot in mentioned_ids(said({**before, "files": ()})):
        return None
    at = float((now.get("edited") or {}).get("ts") or 0.0)
    if not 0 <= at - float(now.get("ts") or 0.0) <= EDIT_MENTION_WINDOW_SECONDS:
        return None
    told = {name: value for name, value in now.items() if name != "edited"}
    where = {"type": "message", "channel": event.get("channel"), "channel_type": event.get("channel_type")}
    call = hear({**body, "event": {**told, **where}})
    return replace(call, inbound=replace(call.inbound, sent_at=at)) if call and call.is_mention else None


def changed(body: Mapping[str, Any]) -> Change | None:
    """The change of a person's message in an Events API payload, if it is one.

    Slack: a deleted message that has replies is changed into a tombstone. What else changes of a message, such as the
    preview of a link, is no edit.
    """
    event = body.get("event") or {}
    before, now, channel = event.get("previous_message") or {}, event.get("message") or {}, event.get("channel")
    if event.get("type") != "message" or not channel or before.get("bot_id") or before.get("user") == bot_of(body):
        return None
    team, ts = team_of(body), before.get("ts") or event.get("deleted_ts") or now.get("ts")
    if not ts or before.get("subtype") not in _SPOKEN:
        return None
    match event.get("subtype"):
        case "message_deleted":
            return Change(event_key(team, channel, ts), None)
        case "message_changed" if now.get("subtype") == "tombstone":
            return Change(event_key(team, channel, ts), None)
        case "message_changed" if now.get("text") != before.get("text"):
            said = without_mention(now.get("text") or "", bot_of(body))
            return Change(event_key(team, channel, ts), storable_text(said))
    return None


def attachment(file: Mapping[str, Any]) -> Attachment:
    """Slack: of a file in a channel that is shared with another organisation, an event has but the id and
    `file_access: check_file_info`.
    """
    return Attachment(
        name=storable_text(file.get("name") or file.get("id") or "a file"),
        mime_type=file.get("mimetype"),
        size=file.get("size") or 0,
        source={key: file[key] for key in _SOURCE if key in file},
    )


def is_from_outside(body: Mapping[str, Any]) -> bool:
    """Whether a message is by somebody from another workspace, with whom a channel is shared (Slack Connect).

    Slack: `user_team`, or else `team`, is the author's; another one may be of the same organisation in a channel that
    is told not to be shared with others.
    """
    event = body.get("event") or {}
    if event.get("type") not in ("app_mention", "message") or body.get("is_ext_shared_channel") is False:
        return False
    said = event.get("message") or event.get("previous_message") or event
    authorization = (body.get("authorizations") or [{}])[0]
    home = {team_of(body), authorization.get("enterprise_id"), body.get("enterprise_id")}
    theirs = said.get("user_team") or said.get("team")
    return theirs not in home if theirs else bool(body.get("is_ext_shared_channel"))


def team_of(body: Mapping[str, Any]) -> str:
    """The workspace in which the bot was spoken to."""
    authorizations = body.get("authorizations") or [{}]
    found = authorizations[0].get("team_id") or body.get("team_id") or authorizations[0].get("enterprise_id")
    return str(found or body.get("enterprise_id") or "")


def bot_of(body: Mapping[str, Any]) -> str:
    """The bot's own user. Slack: an event's authorization names the user that the app acts as."""
    return str((body.get("authorizations") or [{}])[0].get("user_id") or "")
