"""The Web API's door: who calls, whether he may, and what he is answered."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.slack.api.requests import Arguments, SlackError
from sandbox.slack.state.payloads import SlackPayloads
from sandbox.slack.state.workspace import SlackConversation, SlackMessage, Workspace, WorkspaceUser

#: What the installed app is granted, unless a test takes something away.
SCOPES = frozenset(
    {
        "app_mentions:read",
        "assistant:write",
        "channels:history",
        "channels:read",
        "chat:write",
        "commands",
        "files:read",
        "files:write",
        "groups:history",
        "groups:read",
        "im:history",
        "im:read",
        "im:write",
        "metadata.message:read",
        "mpim:history",
        "mpim:read",
        "reactions:write",
        "team:read",
        "usergroups:read",
        "users:read",
    }
)
APP_SCOPES = frozenset({"connections:write"})
_FAMILIES = {"channel": "channels", "group": "groups", "im": "im"}


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """`scopes` and `accepted` are for the headers that Slack answers with."""

    body: dict[str, Any]
    scopes: frozenset[str] = frozenset()
    accepted: str | None = None


Handler = Callable[[Arguments], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ApiMethod:
    """`tokens`: the kinds that may call it, `bot` or `app`; `scope`: what a bot needs, whatever the place."""

    handler: Handler
    scope: str | None = None
    tokens: frozenset[str] = frozenset({"bot"})


class WebApi:
    """Finds the method, checks the token and the scope, and turns a refusal into Slack's body.

    It also holds what several methods have in common: finding the channel, the message and the user that an
    argument names.
    """

    def __init__(
        self, workspace: Workspace, payloads: SlackPayloads, scopes: set[str], *, bot_token: str, app_token: str
    ) -> None:
        self.workspace = workspace
        self.payloads = payloads
        self._scopes = scopes
        self._kinds = {bot_token: "bot", app_token: "app"}
        self._revoked: set[str] = set()
        self._methods: dict[str, ApiMethod] = {}

    def add(self, name: str, handler: Handler, *, scope: str | None = None, tokens: Iterable[str] = ("bot",)) -> None:
        self._methods[name] = ApiMethod(handler, scope, frozenset(tokens))

    def call(self, name: str, token: str, values: Mapping[str, Any]) -> ApiAnswer:
        """Do what is asked. An empty `token` is one that was not sent."""
        method = self._methods.get(name)
        if method is None:
            return ApiAnswer({"ok": False, "error": "unknown_method", "req_method": name})
        kind = self._kinds.get(token)
        granted = APP_SCOPES if kind == "app" else frozenset(self._scopes)
        try:
            if not token:
                raise SlackError("not_authed")
            if kind is None:
                raise SlackError("token_revoked" if token in self._revoked else "invalid_auth")
            if kind not in method.tokens:
                raise SlackError("not_allowed_token_type")
            if method.scope is not None:
                self.need(method.scope)
            body = {"ok": True} | method.handler(Arguments({**values, "token": token}))
        except SlackError as refusal:
            body = refusal.body()
        return ApiAnswer(body, granted if kind else frozenset(), method.scope)

    def renew(self, old: str, new: str) -> None:
        """From now on, the bot's token is another one."""
        del self._kinds[old]
        self._revoked.add(old)
        self._kinds[new] = "bot"

    def knows(self, token: str) -> bool:
        """Whether the token is, or was, the bot's here."""
        return self._kinds.get(token) == "bot" or token in self._revoked

    def kind(self, token: str) -> str | None:
        return self._kinds.get(token)

    # What methods have in common

    def need(self, scope: str) -> None:
        if scope not in self._scopes:
            raise SlackError("missing_scope", needed=scope, provided=",".join(sorted(self._scopes)))

    def has(self, scope: str) -> bool:
        return scope in self._scopes

    def need_of(self, channel: SlackConversation, right: str) -> None:
        """The scope that Slack has once for each kind of place: `channels:history`, `im:history` ..."""
        self.need(f"{_FAMILIES[channel.type]}:{right}")

    def channel(self, arguments: Arguments) -> SlackConversation:
        """The channel that is named, as far as the bot may know of it."""
        channel = self.workspace.channels.get(arguments.required("channel"))
        if channel is None or (channel.type != "channel" and not self._is_member(channel)):
            raise SlackError("channel_not_found")
        return channel

    def writable(self, channel: SlackConversation) -> SlackConversation:
        if channel.archived:
            raise SlackError("is_archived")
        if not self._is_member(channel):
            raise SlackError("not_in_channel")
        return channel

    def message(self, channel: SlackConversation, ts: str) -> SlackMessage:
        message = self.workspace.find_message(channel, ts)
        if message is None:
            raise SlackError("message_not_found")
        return message

    def user(self, id_: str) -> WorkspaceUser:
        user = self.workspace.users.get(id_)
        if user is None:
            raise SlackError("user_not_found")
        return user

    def _is_member(self, channel: SlackConversation) -> bool:
        return self.workspace.bot.id in channel.members
