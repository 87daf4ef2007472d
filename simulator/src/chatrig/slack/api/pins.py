"""Web API methods `pins.*`."""

from typing import Any

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.state.messages import SlackMessage

#: Slack Help Center, "Pin messages": "up to 100 items in each conversation".
MAX_PINS = 100

_NOT_PINNABLE = frozenset({"channel_join", "channel_leave"})


class PinMethods:
    """Web API methods that pin, unpin and list the pinned messages of a channel."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._workspace = api.workspace
        api.register("pins.add", self.add_pin, scope="pins:write")
        api.register("pins.remove", self.remove_pin, scope="pins:write")
        api.register("pins.list", self.list_pins, scope="pins:read")

    def add_pin(self, arguments: Arguments) -> dict[str, Any]:
        message = self._find_item(arguments)
        if message.subtype in _NOT_PINNABLE:
            raise SlackError("not_pinnable")
        if message.pinned_by:
            raise SlackError("already_pinned")
        if len(self._workspace.pinned_messages(message.channel)) >= MAX_PINS:
            raise SlackError("too_many_pins")
        self._workspace.set_pin(message, self._workspace.bot.id, is_pinned=True)
        return {}

    def remove_pin(self, arguments: Arguments) -> dict[str, Any]:
        message = self._find_item(arguments)
        if not message.pinned_by:
            raise SlackError("no_pin")
        self._workspace.set_pin(message, self._workspace.bot.id, is_pinned=False)
        return {}

    def list_pins(self, arguments: Arguments) -> dict[str, Any]:
        if "channel" not in arguments:
            raise SlackError("channel_not_found")
        pinned = self._workspace.pinned_messages(self._api.find_channel(arguments))
        return {"items": [self._api.payloads.pinned_item(message) for message in pinned]}

    def _find_item(self, arguments: Arguments) -> SlackMessage:
        """Return the message that the arguments `channel` and `timestamp` name.

        Raises:
            SlackError: as for `WebApi.find_item`; also `channel_not_found` without the argument, `not_in_channel` or
                `is_archived`.
        """
        if "channel" not in arguments:
            raise SlackError("channel_not_found")
        message = self._api.find_item(arguments)
        self._api.require_writable(message.channel)
        return message
