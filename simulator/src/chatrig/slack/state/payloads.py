"""Builder of Slack's JSON for users, channels, messages and files."""

import mimetypes
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from time import time
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from chatrig.slack.state.inputs import assign_block_ids
from chatrig.slack.state.markup import create_block_id, to_rich_text
from chatrig.slack.state.messages import BROADCAST_SUBTYPE, ME_SUBTYPE, SlackConversation, SlackFile, SlackMessage
from chatrig.slack.state.workspace import UserGroup, Workspace, WorkspaceUser

TEAM_DOMAIN = "simulator"


class SlackPayloads:
    """Builder of Slack's JSON for users, channels, messages and files of a workspace.

    Attributes:
        files_base_url: the URL that download URLs of files begin with; "" before the server runs.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.files_base_url = ""

    # Messages

    def message(self, message: SlackMessage) -> dict[str, Any]:
        """Return a message's JSON as in a `message` event, without the channel's fields.

        Fields without a value are left out.
        """
        user = None if message.username else message.user
        profile = self._bot_profile_of(message) if user is not None else None
        fields: dict[str, Any] = {
            "client_msg_id": message.client_msg_id,
            "type": "message",
            "subtype": message.subtype,
            "user": user,
            "bot_id": message.bot_id,
            "username": message.username,
            "icons": dict(message.icons) or None,
            "text": message.content.text,
            "ts": message.ts,
            "team": self._team_of(user),
            "user_team": self._team_of(message.user) if self._is_from_other_team(message.user) else None,
            "app_id": profile["app_id"] if profile and message.bot_id != self._workspace.bot_id else None,
            "bot_profile": profile,
            "blocks": self.blocks(message) or None,
            "attachments": [*message.content.attachments, *message.attachments] or None,
            "thread_ts": message.thread_ts,
            "parent_user_id": self._parent_user(message),
            "root": self._broadcast_root(message),
            "inviter": message.inviter,
            "edited": {"user": message.user, "ts": message.edited_ts} if message.edited else None,
            "hidden": True if message.is_tombstone else None,
        }
        if message.files:
            fields |= {
                "client_msg_id": None,
                "team": None,
                "bot_id": None,
                "app_id": None,
                "bot_profile": None,
                "upload": False,
                "files": [self._file_in_event(message, file) for file in message.files],
            }
        if message.subtype == ME_SUBTYPE:
            fields |= dict.fromkeys(("team", "app_id", "bot_profile", "blocks"))
        return {name: value for name, value in fields.items() if value is not None}

    def _is_from_other_team(self, user: str | None) -> bool:
        """Return whether a user belongs to another workspace (Slack Connect).

        Args:
            user: the id of the user; for None the result is False.
        """
        return self._team_of(user) not in (None, self._workspace.team_id)

    def history_message(self, message: SlackMessage, *, metadata: bool = False) -> dict[str, Any]:
        """Return a message's JSON as in `conversations.history` and `.replies`.

        Args:
            metadata: whether to include the message's metadata, as with `include_all_metadata`.
        """
        fields = self.message(message)
        fields.pop("hidden", None)
        if message.bot_id == self._workspace.bot_id:
            fields["app_id"] = self._workspace.app_id
        if metadata and message.metadata:
            fields["metadata"] = message.metadata
        if message.reactions:
            fields["reactions"] = [
                {"name": name, "users": users, "count": len(users)} for name, users in message.reactions.items()
            ]
        replies = [m for m in self._workspace.thread_messages(message.channel, message.ts) if m is not message]
        if replies:
            users = list(dict.fromkeys(m.user or m.bot_id for m in replies))
            fields |= {
                "thread_ts": message.ts,
                "reply_count": len(replies),
                "reply_users_count": len(users),
                "latest_reply": replies[-1].ts,
                "reply_users": users,
                "is_locked": False,
                "subscribed": any(m.bot_id == self._workspace.bot_id for m in (message, *replies)),
            }
        return fields

    def post_response(self, message: SlackMessage) -> dict[str, Any]:
        """Return the field `message` of the response of `chat.postMessage`.

        It is the JSON of `message` with `app_id`, and with `metadata` if the message has any.
        """
        fields = self.message(message) | {"app_id": self._workspace.app_id}
        return fields | ({"metadata": message.metadata} if message.metadata else {})

    def stopped_message(self, message: SlackMessage) -> dict[str, Any]:
        """Return a message's JSON as in the response of `chat.stopStream`.

        Slack: `ChatStopStreamResponseMessage` in @slack/web-api.
        """
        shown = ("subtype", "text", "user", "type", "ts", "bot_id", "thread_ts", "parent_user_id", "blocks")
        return {name: value for name, value in self.message(message).items() if name in shown}

    def update_response(self, message: SlackMessage) -> dict[str, Any]:
        """Return the field `message` of the response of `chat.update`.

        It is `post_response` without `ts`, `thread_ts` and `parent_user_id`.
        """
        dropped = ("ts", "thread_ts", "parent_user_id")
        return {name: value for name, value in self.post_response(message).items() if name not in dropped}

    def blocks(self, message: SlackMessage) -> list[dict[str, Any]]:
        """Return the blocks of a message with block and action ids.

        A message without blocks has one `rich_text` block of its text, or none if the text is empty. The `markdown`
        blocks of a stream become `rich_text`, too.
        """
        if message.content.blocks is None:
            return to_rich_text(message.content.text)
        blocks: list[Mapping[str, Any]] = []
        for block in message.content.blocks:
            is_text = message.stream is not None and block["type"] == "markdown"
            blocks += to_rich_text(block["text"]) if is_text else [block]
        return assign_block_ids(blocks, message.ts)

    def pinned_item(self, message: SlackMessage) -> dict[str, Any]:
        """Return a pinned message's JSON as in `pins.list` and in the events of pins.

        Its keys are `type`, `channel` (the id), `created` (Unix time of the pin), `created_by` (user id) and `message`.
        """
        shown = self.message(message) | {"permalink": self.permalink(message)}
        shown.pop("client_msg_id", None)
        return {
            "type": "message",
            "channel": message.channel.id,
            "created": message.pinned_at,
            "created_by": message.pinned_by,
            "message": shown | ({"pinned_to": [message.channel.id]} if message.pinned_by else {}),
        }

    def permalink(self, message: SlackMessage) -> str:
        link = f"https://{TEAM_DOMAIN}.slack.com/archives/{message.channel.id}/p{message.ts.replace('.', '')}"
        if message.is_thread_reply:
            link += f"?thread_ts={message.thread_ts}&cid={message.channel.id}"
        return link

    def message_attachment(self, message: SlackMessage, **fields: Any) -> dict[str, Any]:
        """Return a message's JSON as the attachment of another message.

        Args:
            fields: further fields: `is_share` for a shared message, `is_msg_unfurl` for a linked one.
        """
        shown = {"team": self._workspace.team_id, "channel": message.channel.id, "ts": message.ts}
        author = message.username or self._workspace.users[message.user or ""].real_name
        return {
            "id": 1,
            "ts": message.ts,
            "channel_id": message.channel.id,
            "channel_team": self._workspace.team_id,
            "author_id": message.user or "",
            "author_name": author,
            "author_subname": author,
            "text": message.content.text,
            "fallback": f"[{author}]: {message.content.text}",
            "message_blocks": [shown | {"message": {"blocks": self.blocks(message)}}],
            "from_url": f"https://{TEAM_DOMAIN}.slack.com/archives/{message.channel.id}/p{message.ts.replace('.', '')}",
            "mrkdwn_in": ["text"],
            **({"files": [self._file_in_event(message, file) for file in message.files]} if message.files else {}),
            **fields,
        }

    def _file_in_event(self, message: SlackMessage, file: SlackFile) -> dict[str, Any]:
        """Return a file's JSON as in events.

        If another organisation owns the file, it has only `id`, `mode` and `file_access`.
        """
        if file.is_from_other_org:
            return {"id": file.id, "mode": "file_access", "file_access": "check_file_info"}
        return self.file(message, file)

    def file(self, message: SlackMessage, file: SlackFile) -> dict[str, Any]:
        created = int(float(message.ts))
        if file.is_hidden:
            return {"id": file.id, "created": created, "timestamp": created, "mode": "hidden_by_limit"}
        extension = file.name.rpartition(".")[2].lower()
        return {
            "id": file.id,
            "created": created,
            "timestamp": created,
            "name": file.name,
            "title": file.title or file.name,
            "mimetype": mimetypes.guess_type(file.name)[0] or "application/octet-stream",
            "filetype": extension,
            "pretty_type": extension.upper(),
            "user": message.user,
            "size": len(file.data),
            "mode": "hosted",
            "editable": False,
            "is_external": False,
            "is_public": not message.channel.private,
            "public_url_shared": False,
            **({"alt_txt": file.alt_text} if file.alt_text else {}),
            "permalink": f"https://{TEAM_DOMAIN}.slack.com/files/{message.user}/{file.id}/{quote(file.name.lower())}",
            "url_private": f"{self.files_base_url}{file.id}/{quote(file.name)}",
            "url_private_download": f"{self.files_base_url}{file.id}/download/{quote(file.name)}",
        }

    def shared_file(self, file_id: str, messages: Sequence[SlackMessage]) -> dict[str, Any]:
        """Return a file's JSON as in `files.info` and `files.list`.

        It also has the ids of the conversations (`channels`, `groups`, `ims`) and, in `shares`, the messages with it.

        Args:
            file_id: the id of the file.
            messages: the messages that contain the file, at least one.
        """
        counts = ("thread_ts", "reply_count", "reply_users_count", "reply_users", "latest_reply")
        places: dict[str, list[str]] = {"channels": [], "groups": [], "ims": []}
        shares: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for message in messages:
            place = message.channel
            listed = places[f"{place.type}s"]
            listed += [place.id] if place.id not in listed else []
            known = self.history_message(message)
            replies = {"reply_count": 0, "reply_users_count": 0, "reply_users": []}
            replies |= {name: known[name] for name in counts if name in known}
            share = {"ts": message.ts, "channel_name": place.name, "team_id": self._workspace.team_id, **replies}
            access = shares.setdefault("public" if place.type == "channel" else "private", {})
            access.setdefault(place.id, []).append(share)
        described = self.file(messages[0], messages[0].find_file(file_id))
        return described | places | {"shares": shares, "has_more_shares": False}

    def _broadcast_root(self, message: SlackMessage) -> dict[str, Any] | None:
        """Return the JSON of the thread's root for a broadcast reply.

        None for any other message, and if the root does not exist any more.
        """
        if message.thread_ts is None or message.subtype != BROADCAST_SUBTYPE:
            return None
        root = self._workspace.find_message(message.channel, message.thread_ts)
        if root is None:
            return None
        dropped = ("app_id", "blocks", "client_msg_id", "is_locked", "reactions")
        return {name: value for name, value in self.history_message(root).items() if name not in dropped}

    def _parent_user(self, message: SlackMessage) -> str | None:
        """Return the id of the author of a thread's root, for the reply of a user.

        It is None for other messages, and for a root that was deleted.
        """
        if not message.is_thread_reply or message.thread_ts is None or message.user is None:
            return None
        root = self._workspace.find_message(message.channel, message.thread_ts)
        return None if root is None else root.user

    # Bots, users and channels

    def bot_profile(self) -> dict[str, Any]:
        """Return the JSON of the app's bot, as in the field `bot_profile` of messages."""
        return _describe_bot(self._workspace.bot_id, self._workspace.bot.name) | {
            "app_id": self._workspace.app_id,
            "team_id": self._workspace.team_id,
        }

    def _bot_profile_of(self, message: SlackMessage) -> dict[str, Any] | None:
        """Return the field `bot_profile` of a message; None if no app posted it."""
        if message.bot_id in (None, self._workspace.bot_id):
            return self.bot_profile() if message.bot_id else None
        bot = self.bot(message.bot_id)
        return bot and bot | {"app_id": f"A{message.bot_id[1:]}", "team_id": self._workspace.team_id}

    def bot(self, id_: str) -> dict[str, Any] | None:
        """Return a bot's JSON as in `bots.info`; None for an unknown id."""
        if id_ == self._workspace.bot_id:
            own = {"app_id": self._workspace.app_id, "user_id": self._workspace.bot.id}
            return _describe_bot(id_, self._workspace.bot.name) | own
        names = (name for name, known in self._workspace.other_bots.items() if known == id_)
        return next((_describe_bot(id_, name) for name in names), None)

    def _team_of(self, user: str | None) -> str | None:
        """Return the id of a user's workspace; None without a user.

        Args:
            user: the id of the user; an unknown one counts as a user of this workspace.
        """
        known = self._workspace.users.get(user or "")
        return None if user is None else (known and known.team_id) or self._workspace.team_id

    def user_group(self, group: UserGroup) -> dict[str, Any]:
        return {
            "id": group.id,
            "team_id": self._workspace.team_id,
            "is_usergroup": True,
            "is_external": False,
            "name": group.handle.title(),
            "handle": group.handle,
            "description": "",
            "date_delete": 0,
            "user_count": len(group.members),
            "users": sorted(group.members),
        }

    def user(self, user: WorkspaceUser, *, has_email: bool) -> dict[str, Any]:
        """Return a user's JSON as in `users.info`.

        Args:
            has_email: whether the app has the scope for the email address.
        """
        first, _, last = user.real_name.partition(" ")
        profile: dict[str, Any] = {
            "title": "",
            "phone": "",
            "skype": "",
            "real_name": user.real_name,
            "real_name_normalized": user.real_name,
            "display_name": user.name,
            "display_name_normalized": user.name,
            "status_text": "",
            "status_emoji": "",
            "status_expiration": 0,
            "avatar_hash": create_block_id(user.id),
            "first_name": first,
            "last_name": last,
            "team": self._workspace.team_id,
            **create_images(f"avatar_{user.name}", 24, 32, 48, 72, 192, 512),
        }
        if has_email and user.email:
            profile["email"] = user.email
        if user is self._workspace.bot:
            profile |= {"api_app_id": self._workspace.app_id, "bot_id": self._workspace.bot_id}
            profile |= {"always_active": True}
        return {
            "id": user.id,
            "team_id": self._workspace.team_id,
            "name": user.name,
            "deleted": user.id in self._workspace.deactivated_ids,
            "color": "9f69e7",
            "real_name": user.real_name,
            "tz": user.time_zone,
            "tz_label": user.time_zone,
            "tz_offset": _utc_offset(user.time_zone),
            "profile": profile,
            **dict.fromkeys(("is_admin", "is_owner", "is_primary_owner", "is_restricted"), False),
            **dict.fromkeys(("is_ultra_restricted", "is_app_user"), False),
            "is_bot": user.is_bot,
            "updated": 1_700_000_000,
            "is_email_confirmed": True,
            "who_can_share_contact_card": "EVERYONE",
        }

    def channel(self, channel: SlackConversation) -> dict[str, Any]:
        shared: dict[str, Any] = {
            "id": channel.id,
            "created": channel.created,
            "is_archived": channel.archived,
            "is_im": channel.is_dm,
            "is_org_shared": False,
            "context_team_id": self._workspace.team_id,
            "updated": channel.created * 1000,
        }
        if channel.user is not None:
            return shared | {"user": channel.user, "is_user_deleted": False, "priority": 0}
        blank = {"value": "", "creator": "", "last_set": 0}
        return shared | {
            "name": channel.name,
            "name_normalized": channel.name,
            "is_channel": True,
            "is_group": False,
            "is_mpim": False,
            "is_private": channel.private,
            "is_general": channel.name == "general",
            "unlinked": 0,
            "is_shared": False,
            "is_ext_shared": False,
            "is_pending_ext_shared": False,
            "pending_shared": [],
            "pending_connected_team_ids": [],
            "shared_team_ids": [self._workspace.team_id],
            "creator": self._workspace.bot.id,
            "is_member": self._workspace.bot.id in channel.members,
            "topic": blank,
            "purpose": blank,
            "previous_names": [],
            "num_members": len(channel.members),
        }

    def team(self) -> dict[str, Any]:
        return {
            "id": self._workspace.team_id,
            "name": self._workspace.name,
            "domain": TEAM_DOMAIN,
            "url": f"https://{TEAM_DOMAIN}.slack.com/",
            "email_domain": "",
            "icon": {"image_default": True, **create_images("team", 34, 44, 68, 88, 102, 132)},
            "is_verified": False,
        }

    @staticmethod
    def unix_time() -> int:
        return int(time())


def _describe_bot(id_: str, name: str) -> dict[str, Any]:
    icons = create_images("bot", 36, 48, 72)
    return {"id": id_, "deleted": False, "name": name, "updated": 1_700_000_000, "icons": icons}


def create_images(name: str, *sizes: int) -> dict[str, str]:
    """Return the URLs of a picture by field name (`image_48`), one for each size.

    No server is behind these URLs.
    """
    return {f"image_{size}": f"https://{TEAM_DOMAIN}.invalid/{name}_{size}.png" for size in sizes}


def _utc_offset(time_zone: str) -> int:
    """Return the seconds that a time zone is ahead of UTC now; 0 for an unknown zone."""
    try:
        return int((datetime.now(ZoneInfo(time_zone)).utcoffset() or timedelta()).total_seconds())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return 0
