"""Web API methods for users, bots, emoji, and conversations and their messages."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.limits import MAX_PAGE_SIZE
from chatrig.slack.api.requests import Arguments, SlackError, paginate, parse_ts
from chatrig.slack.state.messages import SlackConversation, SlackMessage
from chatrig.slack.state.payloads import TEAM_DOMAIN
from chatrig.slack.state.workspace import WorkspaceUser

EMAIL_SCOPE = "users:read.email"

_CHANNEL_TYPES = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}


class DirectoryMethods:
    """Web API methods that read users, conversations and messages.

    `conversations.join` and `conversations.open`, which change the workspace, are here, too.

    Args:
        max_page_size: the largest number of messages per page.
    """

    def __init__(self, api: WebApi, *, max_page_size: int = MAX_PAGE_SIZE) -> None:
        self._api = api
        self._max_page_size = max_page_size
        self._workspace = api.workspace
        self._payloads = api.payloads
        api.register("api.test", self.api_test, token_kinds=())
        api.register("auth.test", self.auth_test, token_kinds=("bot", "app"))
        api.register("team.info", self.team_info, scope="team:read")
        api.register("bots.info", self.bots_info, scope="users:read")
        api.register("emoji.list", self.emoji_list, scope="emoji:read")
        api.register("users.conversations", self.users_conversations)
        api.register("users.info", self.users_info, scope="users:read")
        api.register("users.list", self.users_list, scope="users:read")
        api.register("users.lookupByEmail", self.users_lookup_by_email, scope=EMAIL_SCOPE)
        api.register("users.profile.get", self.users_profile_get, scope="users.profile:read")
        api.register("usergroups.list", self.usergroups_list, scope="usergroups:read")
        api.register("conversations.info", self.conversations_info)
        api.register("conversations.join", self.conversations_join, scope="channels:join")
        api.register("conversations.list", self.conversations_list)
        api.register("conversations.members", self.conversations_members)
        api.register("conversations.open", self.conversations_open)
        api.register("conversations.history", self.conversations_history)
        api.register("conversations.replies", self.conversations_replies)

    def api_test(self, arguments: Arguments) -> dict[str, Any]:
        """Run `api.test`: return the arguments, without the token, in the field `args`.

        Without arguments, the response has no fields.

        Raises:
            SlackError: the argument `error` is set; its value is the code.
        """
        echo = arguments.omit("token")
        fields: dict[str, Any] = {"args": echo} if echo else {}
        if error := arguments.text("error"):
            raise SlackError(error, **fields)
        return fields

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

    def bots_info(self, arguments: Arguments) -> dict[str, Any]:
        """Run `bots.info`: return the bot with the id in the argument `bot`.

        Slack: "The bot parameter is required if you want to actually return information".

        Returns:
            The response's field `bot`; no field without the argument.

        Raises:
            SlackError: `bot_not_found`.
        """
        if not (id_ := arguments.text("bot")):
            return {}
        if (bot := self._payloads.bot(id_)) is None:
            raise SlackError("bot_not_found")
        return {"bot": bot}

    def emoji_list(self, _: Arguments) -> dict[str, Any]:
        return {"emoji": dict(self._workspace.custom_emoji), "cache_ts": self._workspace.create_ts()}

    def users_info(self, arguments: Arguments) -> dict[str, Any]:
        user = self._api.find_user(arguments.text("user"))
        locale = {"locale": user.locale} if arguments.flag("include_locale") else {}
        return {"user": self._describe_user(user) | locale}

    def users_list(self, arguments: Arguments) -> dict[str, Any]:
        page, cursor = paginate(list(self._workspace.users.values()), attrgetter("id"), arguments, default=1000)
        return {
            "members": [self._describe_user(user) for user in page],
            "cache_ts": self._payloads.unix_time(),
            "response_metadata": {"next_cursor": cursor},
        }

    def users_lookup_by_email(self, arguments: Arguments) -> dict[str, Any]:
        email = arguments.get_required("email").lower()
        user = next((user for user in self._workspace.users.values() if user.email == email), None)
        if user is None:
            raise SlackError("users_not_found")
        return {"user": self._describe_user(user)}

    def users_profile_get(self, arguments: Arguments) -> dict[str, Any]:
        user = self._api.find_user(arguments.text("user") or self._workspace.bot.id)
        profile = self._describe_user(user)["profile"]
        shown = {name: value for name, value in profile.items() if name not in ("team", "api_app_id", "bot_id")}
        return {"profile": shown | {"fields": {}}}

    def _describe_user(self, user: WorkspaceUser) -> dict[str, Any]:
        return self._payloads.user(user, has_email=self._api.has_scope(EMAIL_SCOPE))

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
        # The bot reads nothing: `conversations.mark` is not modelled.
        last_read = {"last_read": "0000000000.000000"} if self._workspace.bot.id in channel.members else {}
        return {"channel": fields | last_read}

    def conversations_join(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        if channel.type != "channel":
            raise SlackError("method_not_supported_for_channel_type")
        if channel.archived:
            raise SlackError("is_archived")
        known = {"warning": "already_in_channel", "response_metadata": {"warnings": ["already_in_channel"]}}
        is_member = self._workspace.bot.id in channel.members
        if not is_member:
            self._workspace.join_channel(channel, self._workspace.bot.id)
        fields = self._payloads.channel(channel)
        del fields["num_members"]
        return {"channel": fields} | (known if is_member else {})

    def conversations_list(self, arguments: Arguments) -> dict[str, Any]:
        channels = self._select_channels(self._workspace.channels.values(), arguments)
        page, cursor = paginate(channels, attrgetter("id"), arguments, default=100)
        payloads = [self._payloads.channel(channel) for channel in page]
        return {"channels": payloads, "response_metadata": {"next_cursor": cursor}}

    def conversations_members(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.find_channel(arguments)
        self._api.require_conversation_scope(channel, "read")
        page, cursor = paginate(sorted(channel.members), str, arguments, default=100)
        return {"members": list(page), "response_metadata": {"next_cursor": cursor}}

    def users_conversations(self, arguments: Arguments) -> dict[str, Any]:
        """Run `users.conversations`: return a page of the conversations of a user.

        The argument `user` is the id of the user; the default is the bot. The arguments `types` and `exclude_archived`
        select conversations; without `types`, only public channels. Private channels and DMs without the bot are left
        out.

        Returns:
            The response's fields: `channels`, and `response_metadata` with `next_cursor` ("" on the last page).

        Raises:
            SlackError: `user_not_found`, `invalid_types`, `missing_scope` for one of the types, or as for `paginate`.
        """
        user = self._api.find_user(arguments.text("user") or self._workspace.bot.id)
        joined = (channel for channel in self._workspace.channels.values() if user.id in channel.members)
        channels = self._select_channels(joined, arguments)
        page, cursor = paginate(channels, attrgetter("id"), arguments, default=100, max_size=999)
        dropped = ("is_member", "num_members")
        payloads = [{k: v for k, v in self._payloads.channel(channel).items() if k not in dropped} for channel in page]
        return {"channels": payloads, "response_metadata": {"next_cursor": cursor}}

    def _select_channels(
        self, channels: Iterable[SlackConversation], arguments: Arguments
    ) -> Sequence[SlackConversation]:
        """Return the channels that the arguments `types` and `exclude_archived` select.

        Private channels without the bot are left out.

        Raises:
            SlackError: `invalid_types`, or `missing_scope` for one of the types.
        """
        requested = (arguments.text("types") or "public_channel").split(",")
        if not set(requested) <= set(_CHANNEL_TYPES):
            raise SlackError("invalid_types")
        types = {_CHANNEL_TYPES[name] for name in requested}
        for type_ in sorted(types):
            self._api.require_type_scope(type_, "read")
        return [
            channel
            for channel in channels
            if channel.type in types
            and (channel.type == "channel" or self._workspace.bot.id in channel.members)
            and not (channel.archived and arguments.flag("exclude_archived"))
        ]

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
        """Run `conversations.history`: return a page of a channel's messages.

        The newest message is first. Broadcast thread replies are included, other replies are not. The arguments
        `oldest`, `latest` and `inclusive` select messages by time.

        Returns:
            The response's fields: `messages`, `has_more`, `pin_count` (of the channel) and, if there are more,
            `response_metadata` with `next_cursor`.

        Raises:
            SlackError: `missing_scope`, `not_in_channel`, `invalid_ts_oldest`, `invalid_ts_latest`, or as for
                `WebApi.find_channel` and `paginate`.
        """
        channel = self._api.find_channel(arguments)
        self._api.require_conversation_scope(channel, "history")
        if self._workspace.bot.id not in channel.members:
            raise SlackError("not_in_channel")
        roots = [message for message in self._workspace.messages(channel) if message.is_in_channel]
        visible = [message for message in roots if self._workspace.find_message(channel, message.ts)]
        page, cursor = self._message_page(visible[::-1], arguments, default=100)
        return self._page_response(page, cursor, arguments) | {
            # A recorded page has a `pin_count` of 3 and one message without a pin: it counts pins of the channel.
            "pin_count": len(self._workspace.pinned_messages(channel)),
        }

    def conversations_replies(self, arguments: Arguments) -> dict[str, Any]:
        """Run `conversations.replies`: return a page of the thread with message `ts`.

        The message may be the root or a reply. The root is first, then the replies, oldest first. The arguments
        `oldest`, `latest` and `inclusive` select replies by time. The root is on every page, as measured by `thread.go`
        of rusq/slackdump and `getRepliesFromThread` of dust-tt/dust. The latter shows that `limit` does not count the
        root.

        Returns:
            The response's fields: `messages`, `has_more` and, if there are more, `response_metadata` with
            `next_cursor`.

        Raises:
            SlackError: `missing_scope`, `thread_not_found`, `invalid_ts_oldest`, `invalid_ts_latest`,
                `invalid_arguments` without `ts`, or as for `WebApi.find_channel` and `paginate`.
        """
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
        """Filter messages by time, and return the page that `limit` and `cursor` select.

        The filter is `_filter_by_time`: `oldest`, `latest` and `inclusive`.

        Args:
            messages: the messages in the order of the pages.
            default: the page size without the argument `limit`.

        Returns:
            The messages, and the cursor of the next page; "" for none.

        Raises:
            SlackError: `invalid_ts_oldest` or `invalid_ts_latest`, or as for `paginate`.
        """
        selected = _filter_by_time(messages, arguments)
        return paginate(selected, attrgetter("ts"), arguments, default=default, max_size=self._max_page_size)

    def _page_response(self, page: Sequence[SlackMessage], cursor: str, arguments: Arguments) -> dict[str, Any]:
        metadata = arguments.flag("include_all_metadata")
        return {
            "messages": [self._payloads.history_message(message, metadata=metadata) for message in page],
            "has_more": bool(cursor),
            **({"response_metadata": {"next_cursor": cursor}} if cursor else {}),
        }


def _filter_by_time(messages: list[SlackMessage], arguments: Arguments) -> list[SlackMessage]:
    """Return the messages after the argument `oldest` and before `latest`.

    A missing argument sets no limit. If the argument `inclusive` is set, messages at these times are included.
    """
    oldest, latest = (parse_ts(arguments, name) for name in ("oldest", "latest"))
    inclusive = arguments.flag("inclusive")

    def is_in_range(message: SlackMessage) -> bool:
        at = Decimal(message.ts)
        if inclusive and at in (oldest, latest):
            return True
        return (oldest is None or at > oldest) and (latest is None or at < latest)

    return [message for message in messages if is_in_range(message)]
