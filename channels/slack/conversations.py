"""Conversations that the bot begins on Slack: their threads, and the people for whom they begin."""

from dataclasses import replace

from channels.base import Priority
from channels.rate_limits.retries import RefusedError
from channels.slack.access import SlackIdentityResolver
from channels.slack.client.rate_limits import TIER_3
from channels.slack.platform import SlackPlatform
from channels.slack.session_ids import location_of, place_id, session_id
from channels.turns.placing import LOOKUP_MARGIN_SECONDS
from core.messages.inbox_message import InboxMessage
from core.messages.trigger import DIRECT


class SlackConversations:
    """People and places of Slack: see `channels.turns.placing.Conversations`."""

    closed_place_codes = frozenset({"channel_not_found", "is_archived", "not_in_channel"})

    def __init__(self, platform: SlackPlatform, identities: SlackIdentityResolver) -> None:
        self._platform = platform
        self._directory = platform.directory
        self._identities = identities

    async def resolve(self, message: InboxMessage) -> InboxMessage | None:
        trigger = message.trigger
        assert trigger is not None, "no person wrote it"
        named_team, _, named_channel = trigger.target.rpartition(":")
        team = str(message.address.get("team") or named_team)
        identity = await self._directory.get_auth_test(team)
        team = team or str(identity["team_id"])
        actor = message.actor
        if not message.is_bot:
            if not await self._directory.is_member(team, message.author):
                return None
            actor = replace(message.actor_or_author, roles=await self._identities.get_groups(team, message.author))
        thread = "" if trigger.target else str(message.address["thread_ts"])
        channel = named_channel or str(message.address["channel"])
        if trigger.target == DIRECT:
            channel = await self._open_direct(team, message.author)
        address = {
            **message.address,
            "team": team,
            "channel": channel,
            "thread_ts": thread,
            "ts": f"{message.sent_at - LOOKUP_MARGIN_SECONDS:.6f}",
            "bot": str(identity["user_id"]),
            "is_triggered": True,
        }
        location = location_of(team, channel)
        return replace(message, address=address, location=location, place=place_id(team, channel), actor=actor)

    async def begin(self, message: InboxMessage, header: str, *, may_exist: bool) -> InboxMessage:
        surface = self._platform.create_surface(message.address, turn_id=message.event_key)
        known = await surface.find_message_ids() if may_exist else []
        mention = "" if message.is_bot else f"<@{message.author}> "
        ts = known[0] if known else await surface.post_text(f"{mention}{header}", Priority.BACKFILL)
        thread = str(message.address["thread_ts"])
        team, channel = str(message.address["team"]), str(message.address["channel"])
        session = message.session_id if thread else session_id(team, channel, ts, self._platform.settings.dm_sessions)
        return replace(message, session_id=session, address={**message.address, "thread_ts": thread or ts, "ts": ts})

    async def _open_direct(self, team: str, user: str) -> str:
        limiter = self._platform.api.get_limiter(("conversations.open", team), TIER_3)
        api = self._platform.api.for_team(team)
        answer = await api.call("conversations.open", {"users": user}, limiter)
        if answer is None:
            raise RefusedError("conversations.open", "no_response")
        return str(answer["channel"]["id"])
