"""Parser of Slack's events: messages for the bot, edits and deletions."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from channels.intake.incoming import EDIT_MENTION_WINDOW_SECONDS, IncomingChange, IncomingMessage
from channels.slack.events.content import MessageContent, bot_id_of, read_message
from channels.slack.session_ids import PLATFORM, event_key, is_direct, place_id, session_id
from channels.slack.settings import DmSessions
from channels.slack.text import addresses_others, make_title, remove_mention
from core.messages.identity import Actor, Location
from core.messages.inbox_message import InboxMessage, storable_text

#: Subtypes of the messages that people write; all others are for messages of Slack itself or of bots, and for edits.
_USER_SUBTYPES = {None, "file_share", "me_message", "thread_broadcast"}


def parse_message(
    body: Mapping[str, Any],
    dm_sessions: DmSessions = "thread",
    *,
    answers_bots: bool = False,
    command_prefix: str = "",
) -> IncomingMessage | None:
    """Return the new message in an Events API payload; None if it is not for the bot.

    A message of a person is for the bot if it mentions the bot, is a direct message or is in a thread. A message of
    another bot must mention the bot. None for messages of the bot itself, and for other events, such as edits. Slack
    sends two events, `app_mention` and `message`, for one message: they get the same event key.
    """
    event = body.get("event") or {}
    bot_user_id = bot_user_of(body)
    bot_id = bot_id_of(event)
    if (
        not _is_new_message(event, is_bot=bool(bot_id))
        or event.get("user") == bot_user_id
        or (bot_id and not answers_bots)
    ):
        return None
    channel = str(event["channel"])
    ts = str(event["ts"])
    content = read_message(event)
    is_alone = event.get("channel_type") == "im" or is_direct(channel)
    is_mentioned = event["type"] == "app_mention" or bot_user_id in content.mentioned
    is_mention = is_mentioned or (is_alone and not content.is_bot)
    if not is_mention and (content.is_bot or not event.get("thread_ts")):
        return None
    team = workspace_of(body)
    root = event.get("thread_ts") or ("" if is_direct(channel) and dm_sessions == "single" else ts)
    home_team = str(event.get("user_team") or event.get("team") or team)
    text = remove_mention(content.text, bot_user_id)
    address = {
        "team": team,
        "channel": channel,
        "thread_ts": root,
        "ts": ts,
        "user": str(event.get("user") or ""),
        "user_team": home_team,
        "bot": bot_user_id,
    }
    if title := make_title(text):
        address["title"] = title
    if content.is_bot:
        address["name"] = content.name
    inbound = InboxMessage(
        event_key=event_key(team, channel, ts),
        session_id=session_id(team, channel, root, dm_sessions),
        place=place_id(team, channel),
        platform=PLATFORM,
        address=address,
        author=content.author,
        text=storable_text(text),
        sent_at=float(ts),
        attachments=content.files,
        references=tuple(map(MessageContent.to_reference, content.forwarded)),
        actor=Actor(PLATFORM, content.author, workspaces=(home_team,), is_external=is_external(body)),
        location=Location(team, channel, is_direct=is_alone),
        is_in_thread=bool(event.get("thread_ts")),
    )
    return IncomingMessage(
        inbound,
        is_mention,
        addresses_others=addresses_others(content.text, content.author),
        command_prefix=command_prefix,
    )


def _is_new_message(event: Mapping[str, Any], *, is_bot: bool) -> bool:
    """Return whether an event is a complete new message of a person or a bot.

    False for an edit, which is an `app_mention` as well if it adds a mention of the bot. False too for an `app_mention`
    that has `upload` but lacks the files: Slack sends the files in the `message` event of the same message.
    """
    if event.get("type") not in ("app_mention", "message") or event.get("hidden") or event.get("edited"):
        return False
    if event["type"] == "app_mention" and "upload" in event and not event.get("files"):
        return False
    has_place = event.get("channel") and event.get("ts") and (event.get("user") or is_bot)
    return bool(has_place) and event.get("subtype") in (_USER_SUBTYPES | {"bot_message"} if is_bot else _USER_SUBTYPES)


def is_from_person_or_bot(message: Mapping[str, Any]) -> bool:
    """Return whether a person or a bot wrote a message, and not Slack itself."""
    return message.get("subtype") in _USER_SUBTYPES | {"bot_message"}


def _parse_addressed_edit(
    body: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], IncomingMessage | None]
) -> IncomingMessage | None:
    """Return the message of an edit event if the edit added a mention of the bot.

    An edit of a direct message that did not mention the bot also counts. The edit must come within
    `EDIT_MENTION_WINDOW_SECONDS` of the message. The time of the edit becomes the time at which the message was sent.
    Slack sends an `app_mention` for such an edit too, which lacks the previous text.
    """
    event = body.get("event") or {}
    bot = bot_user_of(body)
    before = event.get("previous_message") or {}
    now = event.get("message") or {}
    if event.get("subtype") != "message_changed" or not bot or bot in read_message(before).mentioned:
        return None
    at = float((now.get("edited") or {}).get("ts") or 0.0)
    if not 0 <= at - float(now.get("ts") or 0.0) <= EDIT_MENTION_WINDOW_SECONDS:
        return None
    unedited = {name: value for name, value in now.items() if name != "edited"}
    place = {"type": "message", "channel": event.get("channel"), "channel_type": event.get("channel_type")}
    incoming = parse({**body, "event": {**unedited, **place}})
    if incoming is None or not incoming.is_mention:
        return None
    return replace(incoming, inbound=replace(incoming.inbound, sent_at=at))


def parse_change(
    body: Mapping[str, Any],
    parse: Callable[[Mapping[str, Any]], IncomingMessage | None],
    dm_sessions: DmSessions = "thread",
) -> IncomingChange | None:
    """Return the edit or deletion of a person's message in an Events API payload; None for others.

    Slack: a deleted message that has replies becomes a tombstone. Other changes, such as a link preview, are no edits.
    """
    event = body.get("event") or {}
    before = event.get("previous_message") or {}
    now = event.get("message") or {}
    channel = event.get("channel")
    if event.get("type") != "message" or not channel or bot_id_of(before) or before.get("user") == bot_user_of(body):
        return None
    team = workspace_of(body)
    ts = before.get("ts") or event.get("deleted_ts") or now.get("ts")
    if not ts or before.get("subtype") not in _USER_SUBTYPES:
        return None
    text: str | None = None
    match event.get("subtype"):
        case "message_deleted":
            pass
        case "message_changed" if now.get("subtype") == "tombstone":
            pass
        case "message_changed" if (changed := read_message(now).text) != read_message(before).text:
            text = storable_text(remove_mention(changed, bot_user_of(body)))
        case _:
            return None
    key = event_key(team, channel, ts)
    at = str(event.get("event_ts") or event.get("ts") or ts)
    inbound = InboxMessage(
        event_key=f"{key}:{'deletion' if text is None else at}",
        session_id=session_id(team, channel, str(before.get("thread_ts") or ts), dm_sessions),
        place=place_id(team, channel),
        platform=PLATFORM,
        address={},
        author=str(before.get("user") or ""),
        text="",
        sent_at=float(at),
    )
    return IncomingChange(inbound, key, text, None if text is None else _parse_addressed_edit(body, parse))


def is_external(body: Mapping[str, Any]) -> bool:
    """Return whether a message's author is from another organisation (Slack Connect).

    Slack: `user_team`, or else `team`, is the author's workspace. In a channel with `is_ext_shared_channel: false`,
    another workspace belongs to the same organisation. If the author's workspace is unknown, the result is
    `is_ext_shared_channel`. It is False for events that are no messages.
    """
    event = body.get("event") or {}
    if event.get("type") not in ("app_mention", "message") or body.get("is_ext_shared_channel") is False:
        return False
    message = event.get("message") or event.get("previous_message") or event
    authorization = (body.get("authorizations") or [{}])[0]
    own_organisation = {workspace_of(body), authorization.get("enterprise_id"), body.get("enterprise_id")}
    author_team = message.get("user_team") or message.get("team")
    return author_team not in own_organisation if author_team else bool(body.get("is_ext_shared_channel"))


def workspace_of(body: Mapping[str, Any]) -> str:
    """Return the id of an event's workspace, or else of its organisation; empty if both are unknown."""
    authorizations = body.get("authorizations") or [{}]
    found = authorizations[0].get("team_id") or body.get("team_id") or authorizations[0].get("enterprise_id")
    return str(found or body.get("enterprise_id") or "")


def bot_user_of(body: Mapping[str, Any]) -> str:
    """Return the user id of the bot in an Events API payload; empty if there is none.

    Slack: an event's authorization names the user that the app acts as.
    """
    return str((body.get("authorizations") or [{}])[0].get("user_id") or "")
