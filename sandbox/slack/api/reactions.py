"""Methods `reactions.*`."""

from typing import Any

from sandbox.slack.api.base import WebApi
from sandbox.slack.api.requests import Arguments, SlackError
from sandbox.slack.state.messages import SlackMessage


class ReactionMethods:
    """Methods for the reactions to messages."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._workspace = api.workspace
        api.register("reactions.add", self.add_reaction, scope="reactions:write")
        api.register("reactions.remove", self.remove_reaction, scope="reactions:write")

    def add_reaction(self, arguments: Arguments) -> dict[str, Any]:
        message, name = self._parse_reaction(arguments)
        if not self._workspace.add_reaction(message, self._workspace.bot.id, name):
            raise SlackError("already_reacted")
        return {}

    def remove_reaction(self, arguments: Arguments) -> dict[str, Any]:
        message, name = self._parse_reaction(arguments)
        if not self._workspace.remove_reaction(message, self._workspace.bot.id, name):
            raise SlackError("no_reaction")
        return {}

    def _parse_reaction(self, arguments: Arguments) -> tuple[SlackMessage, str]:
        name = arguments.get_required("name").strip(":")
        if not self._workspace.has_emoji(name):
            raise SlackError("invalid_name")
        channel = self._api.require_writable(self._api.find_channel(arguments))
        return self._api.find_message(channel, arguments.get_required("timestamp")), name
