"""Reactions of the bot on Slack."""

from functools import partial

from channels.markdown.emoji_names import to_short_name
from channels.rate_limits.retries import RefusedError
from channels.replies.reactions import Address, QueuedReactions
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_2, TIER_3

#: Reaction on a message that waits for its reply.
EMOJI = "eyes"

_TIERS = {"reactions.add": TIER_3, "reactions.remove": TIER_2}

#: Slack: errors for a reaction that is already as requested.
_UNCHANGED = {"already_reacted", "no_reaction"}


def make_queued_reactions(api: SlackApi) -> QueuedReactions:
    return QueuedReactions(partial(add_reaction, api, EMOJI), partial(_react, api, "reactions.remove", EMOJI))


async def add_reaction(api: SlackApi, emoji: str, address: Address) -> None:
    """React to a message by a Unicode emoji or Slack's name of one; it may have the reaction already."""
    await _react(api, "reactions.add", to_short_name(emoji), address)


async def _react(api: SlackApi, method: str, name: str, address: Address) -> None:
    team = address["team"]
    reaction = {"channel": address["channel"], "timestamp": address["ts"], "name": name}
    try:
        await api.for_team(team).call(method, reaction, api.get_limiter((method, team), _TIERS[method]))
    except RefusedError as refusal:
        if refusal.code not in _UNCHANGED:
            raise
