"""Web API methods `reactions.*`."""

from typing import Any

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.requests import Arguments, SlackError, paginate, select_page
from chatrig.slack.state.messages import SlackMessage


class ReactionMethods:
    """Web API methods for the reactions to messages.

    Files have no reactions: to add or remove one fails with `not_reactable`.
    """

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._workspace = api.workspace
        self._payloads = api.payloads
        api.register("reactions.add", self.add_reaction, scope="reactions:write")
        api.register("reactions.remove", self.remove_reaction, scope="reactions:write")
        api.register("reactions.get", self.get_reactions, scope="reactions:read")
        api.register("reactions.list", self.list_reactions, scope="reactions:read")

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

    def get_reactions(self, arguments: Arguments) -> dict[str, Any]:
        """Run `reactions.get`: return a message with its reactions, or a file.

        Returns:
            With the argument `file`: `type` ("file") and `file`. Otherwise `type` ("message"), `channel` (its id) and
            `message`, for the message that `channel` and `timestamp` name.

        Raises:
            SlackError: `file_not_found`, or as for `WebApi.find_item`.
        """
        if not (file_id := arguments.text("file")):
            return self._describe(self._api.find_item(arguments))
        found = self._workspace.find_file_messages(file_id)
        if not found:
            raise SlackError("file_not_found")
        return {"type": "file", "file": self._payloads.shared_file(file_id, found)}

    def list_reactions(self, arguments: Arguments) -> dict[str, Any]:
        """Run `reactions.list`: return a page of the messages to which a user has reacted.

        Only the bot's conversations count. The newest message is first, and the default user is the bot.

        Returns:
            The response's fields: `items`, each with `type`, `channel` and `message`; `paging` if the call has the
            argument `count` or `page`, otherwise `response_metadata` with `next_cursor` ("" on the last page).

        Raises:
            SlackError: `user_not_found`, or as for `select_page` or `paginate`.
        """
        user = self._api.find_user(arguments.text("user") or self._workspace.bot.id)
        reacted = [
            message
            for message in self._workspace.all_messages()
            if any(user.id in users for users in message.reactions.values())
            and self._workspace.bot.id in message.channel.members
            and not message.deleted
        ]
        newest_first = sorted(reacted, key=lambda message: message.ts, reverse=True)
        if "count" in arguments or "page" in arguments:
            page, paging = select_page(newest_first, arguments)
            return {"items": [self._describe(message) for message in page], "paging": paging}
        page, cursor = paginate(newest_first, lambda message: message.ts, arguments, default=100)
        items = [self._describe(message) for message in page]
        return {"items": items, "response_metadata": {"next_cursor": cursor}}

    def _describe(self, message: SlackMessage) -> dict[str, Any]:
        fields = self._payloads.history_message(message) | {"permalink": self._payloads.permalink(message)}
        return {"type": "message", "channel": message.channel.id, "message": fields}

    def _parse_reaction(self, arguments: Arguments) -> tuple[SlackMessage, str]:
        name = arguments.get_required("name").strip(":")
        if not self._workspace.has_emoji(name):
            raise SlackError("invalid_name")
        if "file" in arguments:
            raise SlackError("not_reactable")
        message = self._api.find_item(arguments)
        self._api.require_writable(message.channel)
        return message, name
