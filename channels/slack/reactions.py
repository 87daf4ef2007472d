"""The reaction that says in Slack that a message was heard and waits."""

from functools import partial

from channels.budget import Window
from channels.receipts import Address, Receipts
from channels.slack.api import SlackApi

EMOJI = "eyes"

#: Slack: Tier 3 to add a reaction, Tier 2 to remove one; in calls a minute for an app in a workspace.
_WINDOWS = {"reactions.add": Window(calls=50, seconds=60), "reactions.remove": Window(calls=20, seconds=60)}


def receipts(api: SlackApi) -> Receipts:
    return Receipts(partial(_react, api, "reactions.add"), partial(_react, api, "reactions.remove"))


async def _react(api: SlackApi, method: str, address: Address) -> None:
    reaction = {"channel": address["channel"], "timestamp": address["ts"], "name": EMOJI}
    await api.at(address["team"]).call(method, reaction, api.budget((method, address["team"]), _WINDOWS[method]))
