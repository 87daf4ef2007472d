"""The reaction on a message that waits for its reply."""

from functools import partial

from channels.rate_limits.caller import RefusedError
from channels.replies.reactions import Address, QueuedReactions
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_2, TIER_3

EMOJI = "eyes"

_TIERS = {"reactions.add": TIER_3, "reactions.remove": TIER_2}

#: Slack: errors for a reaction that is already as requested.
_UNCHANGED = {"already_reacted", "no_reaction"}


def make_receipts(api: SlackApi) -> QueuedReactions:
    return QueuedReactions(partial(_react, api, "reactions.add"), partial(_react, api, "reactions.remove"))


async def _react(api: SlackApi, method: str, address: Address) -> None:
    reaction = {"channel": address["channel"], "timestamp": address["ts"], "name": EMOJI}
    try:
        await api.at(address["team"]).call(method, reaction, api.limiter((method, address["team"]), _TIERS[method]))
    except RefusedError as refusal:
        if refusal.code not in _UNCHANGED:
            raise
