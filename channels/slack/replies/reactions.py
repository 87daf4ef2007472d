"""The reactions that say in Slack that a message was heard and waits, or that it is not answered."""

from functools import partial

from channels.rate_limits.caller import RefusedError
from channels.replies.reactions import Address, Receipts
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_2, TIER_3

EMOJI = "eyes"

#: Says that a message is not answered, where its author cannot be told.
NO_ENTRY = "no_entry_sign"

_TIERS = {"reactions.add": TIER_3, "reactions.remove": TIER_2}

#: Slack: what it says when the message is as it should be already.
_DONE = {"already_reacted", "no_reaction"}


def receipts(api: SlackApi) -> Receipts:
    return Receipts(partial(_react, api, "reactions.add", EMOJI), partial(_react, api, "reactions.remove", EMOJI))


async def send_away(api: SlackApi, address: Address) -> None:
    """Say by a sign that a message is not answered."""
    await _react(api, "reactions.add", NO_ENTRY, address)


async def _react(api: SlackApi, method: str, name: str, address: Address) -> None:
    reaction = {"channel": address["channel"], "timestamp": address["ts"], "name": name}
    try:
        await api.at(address["team"]).call(method, reaction, api.budget((method, address["team"]), _TIERS[method]))
    except RefusedError as refusal:
        if refusal.code not in _DONE:
            raise
