"""Agent context of messages: the objects in the user's view, and a search token.

Slack: entities are the channels, messages or files in the user's view. An action token allows an agent's tool to call
`assistant.search.context` for the user.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cachetools import TTLCache

from channels.intake.incoming import IncomingMessage
from channels.slack.events.parser import workspace_of
from core.messages.inbox_message import InboxMessage
from core.privacy.vault import Cipher

#: The most users whose entities are in memory, and the seconds for which they are.
MAX_USERS, CONTEXT_SECONDS = 10_000, 3600

#: Key of the context in the address of a message.
_KEY = "agent_context"


class AgentContextStore:
    """Adds the agent context (Slack's entities and action token) to users' messages.

    Entities are the channels, messages or files in the user's view. Those of a direct message come from the user's last
    `app_context_changed` event that this process received within `CONTEXT_SECONDS`.
    """

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher
        self._entities: TTLCache[tuple[str, str], Sequence[Any]] = TTLCache(MAX_USERS, CONTEXT_SECONDS)

    async def save(self, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Store in memory the entities of an `app_context_changed` event, as Bolt listener.

        Slack: docs.slack.dev/reference/events/app_context_changed shows no user; @slack/types has the field `user`.
        An event without that field is ignored.
        """
        if user := event.get("user"):
            self._entities[workspace_of(body), str(user)] = (event.get("context") or {}).get("entities") or ()

    def attach(self, incoming: IncomingMessage, event: Mapping[str, Any]) -> IncomingMessage:
        """Return a message with its agent context in the address, if it has any.

        The context is a dict under the key `agent_context`, with the keys of `read`. `action_token` is that of `event`,
        encrypted. Only a direct message has `entities`: those that `save` has stored for the user earlier.

        Slack: `action_token` is a field of the event (slack-go/slack #1577), and of `assistant_thread` in older events.
        """
        message = incoming.inbound
        token = event.get("action_token") or (event.get("assistant_thread") or {}).get("action_token")
        user = str(message.address["team"]), message.author
        entities = self._entities.get(user) if message.location.is_direct else ()
        context = dict[str, Any]()
        if token:
            context["action_token"] = self._cipher.encrypt(str(token))
        if entities:
            context["entities"] = list(entities)
        if not context:
            return incoming
        return replace(incoming, inbound=replace(message, address={**message.address, _KEY: context}))

    def read(self, message: InboxMessage) -> dict[str, Any]:
        """Return the agent context of a stored message, for the agent's state.

        It has the keys `action_token` (decrypted; empty if it was encrypted with another key) and `entities` (as Slack
        sent them). A key that Slack did not send is missing.
        """
        context = dict(message.address.get(_KEY) or {})
        if "action_token" in context:
            context["action_token"] = self._cipher.decrypt(context["action_token"])
        return context
