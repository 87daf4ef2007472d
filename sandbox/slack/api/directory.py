"""Read methods: `auth.test`, `team.*`, `users.*`, `usergroups.*` and `conversations.*`."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any, TypeVar

from sandbox.slack.api.base import WebApi
from sandbox.slack.api.limits import MAX_PAGE_SIZE
from sandbox.slack.api.requests import Arguments, SlackError
from sandbox.slack.state.messages import SlackMessage
from sandbox.slack.state.payloads import TEAM_DOMAIN

T = TypeVar("T")

_CHANNEL_TYPES = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}


class DirectoryMethods:
    """Methods that read users, conversations and messages.

    Args:
        max_page_size: the largest number of messages per page.
    """

    def __init__(self, api: WebApi, *, max_page_size: int = MAX_PAGE_SIZE) -> None:
        self._api = api
        self._max_page_size = max_page_size
        self._workspace = api.workspace
        self._payloads = api.payloads
        api.register("auth.test", self.auth_test, token_kinds=("bot", "app"))
        api.register("team.info", self.team_info, scope="team:read")
        api.register("users.info", self.users_info, scope="users:read")
        api.register("users.list", self.users_list, scope="users:read")
        api.register("usergroups.list", self.usergroups_list, scope="usergroups:read")
        api.register("conversations.info", self.conversations_info)
        api.register("conversations.list", self.conversations_list)
        api.register("conversations.open", self.conversations_open)
        api.register("conversations.history", self.conversations_history)
        api.register("conversations.replies", self.conversations_replies)

    def auth_test(self, arguments: Arguments) -> dict[str, Any]:
        if self._api.token_kind(arguments.text("token")) == "app":
            return {"app_name": self._workspace.bot.real_name, "app_id": self._workspace.app_id}
        return {
            "url": f"https://{TEAM_DOMAIN}.slack.com/",
            "team": self._workspace.name,
            "user": self._workspace.bot.name,
            "team_id": self._workspace.team_id,
            "user_id": self._workspace.bot.id,
            "bot_id": self._workspace.bot_id,
            "is_enterprise_install": self._workspace.enterprise_id is not None,
            **({"enterprise_id": self._workspace.enterprise_id} if self._workspace.enterprise_id else {}),
        }

    def team_info(self, arguments: Arguments) -> dict[str, Any]:
        if arguments.text("team") not in ("", self._workspace.team_id):
            raise SlackError("team_not_found")
        return {"team": self._payloads.team()}

    def users_info(self, arguments: Arguments) -> dict[str, Any]:
        user = self._api.find_user(arguments.text("user"))
        locale = {"locale": user.locale} if arguments.flag("include_locale") else {}
        return {"user": self._payloads.user(user) | locale}

    def users_list(self, arguments: Arguments) -> dict[str, Any]:
        page, cursor = _paginate(list(self._workspace.users.values()), attrgetter("id"), arguments, default=1000)
        return {
            "members": [self._payloads.user(user) for user in page],
            "cache_ts": self._payloads.unix_time(),
            "response_metadata": {"next_cursor": cursor},
        }

    def usergroups_list(self, arguments: Arguments) -> dict[str, Any]:
        groups = [self._payloads.user_group(group) for group in self._workspace.groups.values()]
        if not arguments.flag("include_users"):
            for group in groups:
                group.pop("users")
        return {"usergroups": groups}

    def conversations_info(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        self._api.require_conversation_scope(channel, "read")
        fields = self._payloads.channel(channel)
        if not arguments.flag("include_num_members"):
            fields.pop("num_members", None)
        return {"channel": fields}

    def conversations_list(self, arguments: Arguments) -> dict[str, Any]:
        requested = (arguments.text("types") or "public_channel").split(",")
        if not set(requested) <= set(_CHANNEL_TYPES):
            raise SlackError("invalid_types")
        types = {_CHANNEL_TYPES[name] for name in requested}
        channels = [
            channel
            for channel in self._workspace.channels.values()
            if channel.type in types
            and (channel.type == "channel" or self._workspace.bot.id in channel.members)
            and not (channel.archived and arguments.flag("exclude_archived"))
        ]
        for channel in channels:
            self._api.require_conversation_scope(channel, "read")
        page, cursor = _paginate(channels, attrgetter("id"), arguments, default=100)
        payloads = [self._payloads.channel(channel) for channel in page]
        return {"channels": payloads, "response_metadata": {"next_cursor": cursor}}

    def conversations_open(self, arguments: Arguments) -> dict[str, Any]:
        self._api.require_scope("im:write")
        if "channel" in arguments:
            channel = self._api.find_channel(arguments)
            user = self._api.find_user(channel.user or "")
        else:
            users = arguments.get_required("users").split(",")
            if len(users) > 1:
                raise SlackError("method_not_supported_for_channel_type")
            user = self._api.find_user(users[0])
        already_open = self._workspace.find_dm(user) is not None
        channel = self._workspace.open_dm(user)
        fields: dict[str, Any] = {"id": channel.id}
        if arguments.flag("return_im"):
            fields = self._payloads.channel(channel) | {"is_open": True}
            del fields["is_user_deleted"]
        flags = {"no_op": True, "already_open": True} if already_open else {}
        return {"channel": fields} | flags

    def conversations_history(self, arguments: Arguments) -> dict[str, Any]:
        """Return a page of the channel's messages, newest first, with broadcast thread replies but no others."""
        channel = self._api.find_channel(arguments)
        self._api.require_conversation_scope(channel, "history")
        if self._workspace.bot.id not in channel.members:
            raise SlackError("not_in_channel")
        roots = [message for message in self._workspace.messages(channel) if message.is_in_channel]
        visible = [message for message in roots if self._workspace.find_message(channel, message.ts)]
        page, cursor = self._message_page(visible[::-1], arguments, default=100)
        return self._page_response(page, cursor, arguments) | {"pin_count": 0}

    def conversations_replies(self, arguments: Arguments) -> dict[str, Any]:
        """Return a page of the thread that message `ts` is in: the root, then replies, oldest first."""
        channel = self._api.find_channel(arguments)
        self._api.require_conversation_scope(channel, "history")
        message = self._workspace.find_message(channel, arguments.get_required("ts"))
        if message is None:
            raise SlackError("thread_not_found")
        root, *replies = self._workspace.thread_messages(channel, message.thread_ts or message.ts)
        page, cursor = self._message_page(replies, arguments, default=1000)
        return self._page_response([root, *page], cursor, arguments)

    def _message_page(
        self, messages: list[SlackMessage], arguments: Arguments, *, default: int
    ) -> tuple[Sequence[SlackMessage], str]:
        """Return the page of the messages that the arguments select, and the cursor of the next; see `_paginate`."""
        within = _filter_by_time(messages, arguments)
        return _paginate(within, attrgetter("ts"), arguments, default=default, max_size=self._max_page_size)

    def _page_response(self, page: Sequence[SlackMessage], cursor: str, arguments: Arguments) -> dict[str, Any]:
        metadata = arguments.flag("include_all_metadata")
        return {
            "messages": [self._payloads.history_message(message, metadata=metadata) for message in page],
            "has_more": bool(cursor),
            **({"response_metadata": {"next_cursor": cursor}} if cursor else {}),
        }


def _filter_by_time(messages: list[SlackMessage], arguments: Arguments) -> list[SlackMessage]:
    """Return the messages between the arguments `oldest` and `latest`; with these if `inclusive`."""
    oldest, latest = (_parse_ts(arguments, name) for name in ("oldest", "latest"))
    inclusive = arguments.flag("inclusive")

    def is_in_range(message: SlackMessage) -> bool:
        at = Decimal(message.ts)
        if inclusive and at in (oldest, latest):
            return True
        return (oldest is None or at > oldest) and (latest is None or at < latest)

    return [message for message in messages if is_in_range(message)]


def _parse_ts(arguments: Arguments, name: str) -> Decimal | None:
    """Return a timestamp argument; None without it.

    Raises:
        SlackError: `invalid_ts_NAME`.
    """
    value = arguments.text(name)
    try:
        return Decimal(value) if value else None
    except InvalidOperation:
        raise SlackError(f"invalid_ts_{name}") from None


def _paginate(
    items: Sequence[T], key: Callable[[T], str], arguments: Arguments, *, default: int, max_size: int = MAX_PAGE_SIZE
) -> tuple[Sequence[T], str]:
    """Return the items of the page that the arguments `limit` and `cursor` select.

    Args:
        key: returns the part of an item that its cursor encodes.
        default: the page size without `limit`.

    Returns:
        The items, and the cursor of the next page; "" for none.
    """
    limit = arguments.number("limit", default=min(default, max_size), max_value=max_size)
    names = [b64encode(f"next:{key(item)}".encode()).decode() for item in items]
    start = 0
    if cursor := arguments.text("cursor"):
        if cursor not in names:
            raise SlackError("invalid_cursor")
        start = names.index(cursor)
    end = start + limit
    return items[start:end], names[end] if end < len(items) else ""
