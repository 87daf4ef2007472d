"""Dispatch of Web API calls: tokens, scopes and errors."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.state.messages import SlackConversation, SlackMessage
from chatrig.slack.state.payloads import SlackPayloads
from chatrig.slack.state.workspace import Workspace, WorkspaceUser

#: Scopes of the app before `install`.
SCOPES = frozenset(
    {
        "app_mentions:read",
        "assistant:write",
        "channels:history",
        "channels:join",
        "channels:read",
        "chat:write",
        "chat:write.customize",
        "commands",
        "emoji:read",
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
        "pins:read",
        "pins:write",
        "reactions:read",
        "reactions:write",
        "team:read",
        "usergroups:read",
        "users.profile:read",
        "users:read",
        "users:read.email",
    }
)
APP_SCOPES = frozenset({"connections:write"})
_SCOPE_PREFIXES = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}
_TS = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class WebApiResponse:
    """Response of a Web API method.

    Attributes:
        body: the JSON body, also of an error.
        scopes: the token's scopes, for the header `x-oauth-scopes`; empty for an unknown token or method.
        accepted_scope: the method's scope, for the header `x-accepted-oauth-scopes`; None without one.
    """

    body: dict[str, Any]
    scopes: frozenset[str] = frozenset()
    accepted_scope: str | None = None


Handler = Callable[[Arguments], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ApiMethod:
    """Method of the Web API.

    Attributes:
        handler: returns the response's fields; raises `SlackError` for an error.
        scope: the required scope; None if the method needs none, or if `handler` checks the scopes.
        token_kinds: the accepted kinds of tokens (`bot`, `app`); empty if the method needs none.
    """

    handler: Handler
    scope: str | None = None
    token_kinds: frozenset[str] = frozenset({"bot"})


class WebApi:
    """Dispatcher of Web API calls to methods, with checks of token and scope.

    It also finds conversations, messages and users for the methods, and raises Slack's errors as `SlackError`.
    """

    def __init__(
        self, workspace: Workspace, payloads: SlackPayloads, scopes: set[str], *, bot_token: str, app_token: str
    ) -> None:
        self.workspace = workspace
        self.payloads = payloads
        self._scopes = scopes
        self._token_kinds = {bot_token: "bot", app_token: "app"}
        self._revoked_tokens: set[str] = set()
        self._methods: dict[str, ApiMethod] = {}

    def register(
        self, name: str, handler: Handler, *, scope: str | None = None, token_kinds: Iterable[str] = ("bot",)
    ) -> None:
        """Add a method to the Web API.

        Args:
            handler: returns the response's fields; raises `SlackError` for an error.
            scope: the required scope; None if the method needs none, or if `handler` checks the scopes.
            token_kinds: the accepted kinds of tokens (`bot`, `app`); empty if the method needs none.
        """
        self._methods[name] = ApiMethod(handler, scope, frozenset(token_kinds))

    @property
    def methods(self) -> frozenset[str]:
        """Names of all methods that were added by `register`."""
        return frozenset(self._methods)

    def call(self, name: str, token: str, values: Mapping[str, Any]) -> WebApiResponse:
        """Run a Web API method and return its response; an error is a response, too.

        Args:
            token: the token of the request; "" if none was sent.
            values: the arguments of the method.
        """
        method = self._methods.get(name)
        if method is None:
            return WebApiResponse({"ok": False, "error": "unknown_method", "req_method": name})
        kind = self._token_kinds.get(token)
        granted = APP_SCOPES if kind == "app" else frozenset(self._scopes)
        try:
            if method.token_kinds:
                self._check_token(method, token, kind)
            if method.scope is not None:
                self.require_scope(method.scope)
            body = {"ok": True} | method.handler(Arguments({**values, "token": token}))
        except SlackError as error:
            body = error.body()
        return WebApiResponse(body, granted if kind else frozenset(), method.scope)

    def _check_token(self, method: ApiMethod, token: str, kind: str | None) -> None:
        if not token:
            raise SlackError("not_authed")
        if kind is None:
            raise SlackError("token_revoked" if token in self._revoked_tokens else "invalid_auth")
        if kind not in method.token_kinds:
            raise SlackError("not_allowed_token_type")

    def replace_bot_token(self, old: str, new: str) -> None:
        """Revoke the bot token `old`, and accept the bot token `new` from now on."""
        del self._token_kinds[old]
        self._revoked_tokens.add(old)
        self._token_kinds[new] = "bot"

    def is_bot_token(self, token: str) -> bool:
        """Return whether a token is a current or revoked bot token of the workspace."""
        return self._token_kinds.get(token) == "bot" or token in self._revoked_tokens

    def token_kind(self, token: str) -> str | None:
        """Return the kind of a token, `bot` or `app`; None for an unknown or revoked one."""
        return self._token_kinds.get(token)

    # Shared by methods

    def require_scope(self, scope: str) -> None:
        """Raise `SlackError("missing_scope")` unless the bot has the scope."""
        if scope not in self._scopes:
            raise SlackError("missing_scope", needed=scope, provided=",".join(sorted(self._scopes)))

    def has_scope(self, scope: str) -> bool:
        return scope in self._scopes

    def require_conversation_scope(self, channel: SlackConversation, right: str) -> None:
        """Raise `SlackError("missing_scope")` without the scope for a conversation.

        Args:
            right: the part after the colon, such as `history` in `channels:history`; the type of conversation is the
                part before.
        """
        self.require_type_scope(channel.type, right)

    def require_type_scope(self, type_: str, right: str) -> None:
        """Raise `SlackError("missing_scope")` without the scope for a conversation type.

        Args:
            type_: `channel`, `group`, `im` or `mpim`.
            right: the part after the colon, such as `history` in `channels:history`.
        """
        self.require_scope(f"{_SCOPE_PREFIXES[type_]}:{right}")

    def find_destination(self, arguments: Arguments) -> SlackConversation:
        """Return the conversation that the argument `channel` of a post names.

        It is the id of a conversation, the name of a channel with or without `#`, or the id of a user. The DM of a user
        is opened.

        Raises:
            SlackError: `channel_not_found`, `is_archived` or `not_in_channel`; `invalid_arguments` without `channel`.
        """
        target = arguments.get_required("channel")
        if user := self.workspace.users.get(target):
            return self.workspace.open_dm(user)
        if named := self.workspace.find_channel_by_name(target.removeprefix("#")):
            arguments = Arguments({"channel": named.id})
        return self.require_writable(self.find_channel(arguments))

    def find_channel(self, arguments: Arguments) -> SlackConversation:
        """Return the conversation whose id is the argument `channel`.

        Raises:
            SlackError: `channel_not_found` if the conversation does not exist, or is not public and the bot is no
                member; `invalid_arguments` without `channel`.
        """
        channel = self.workspace.channels.get(arguments.get_required("channel"))
        if channel is None or (channel.type != "channel" and not self._is_member(channel)):
            raise SlackError("channel_not_found")
        return channel

    def require_writable(self, channel: SlackConversation) -> SlackConversation:
        """Return the conversation unchanged if the bot can post in it.

        Raises:
            SlackError: `is_archived` or `not_in_channel`.
        """
        if channel.archived:
            raise SlackError("is_archived")
        if not self._is_member(channel):
            raise SlackError("not_in_channel")
        return channel

    def find_message(self, channel: SlackConversation, ts: str) -> SlackMessage:
        """Return a message by its timestamp.

        Raises:
            SlackError: `message_not_found` for a deleted, ephemeral or unknown message.
        """
        message = self.workspace.find_message(channel, ts)
        if message is None:
            raise SlackError("message_not_found")
        return message

    def find_item(self, arguments: Arguments) -> SlackMessage:
        """Return the message that the arguments `channel` and `timestamp` name.

        Raises:
            SlackError: `no_item_specified`, `bad_timestamp`, `channel_not_found` or `message_not_found`.
        """
        timestamp = arguments.text("timestamp")
        if not (timestamp and arguments.text("channel")):
            raise SlackError("no_item_specified")
        if not _TS.fullmatch(timestamp):
            raise SlackError("bad_timestamp")
        return self.find_message(self.find_channel(arguments), timestamp)

    def find_user(self, id_: str) -> WorkspaceUser:
        """Return a user by id.

        Raises:
            SlackError: `user_not_found` for an unknown id.
        """
        user = self.workspace.users.get(id_)
        if user is None:
            raise SlackError("user_not_found")
        return user

    def _is_member(self, channel: SlackConversation) -> bool:
        return self.workspace.bot.id in channel.members
