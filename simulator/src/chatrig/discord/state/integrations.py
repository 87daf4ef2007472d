"""Emojis, stickers, webhooks and invites of a Discord server."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from chatrig.discord.state.snowflakes import create_id

#: Discord: lifetime of an invite without `max_age`.
INVITE_LIFETIME_SECONDS = 86_400


@dataclass(slots=True)
class Webhook:
    """Webhook of a channel; its messages have the webhook's id as author."""

    id: str
    channel_id: str
    name: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(50))


@dataclass(frozen=True, slots=True)
class Invite:
    """Invite to a channel of the server.

    Attributes:
        max_age: seconds until the invite expires; 0 for never.
        max_uses: greatest number of uses; 0 for any.
        temporary: whether invited users leave the server when they disconnect.
    """

    code: str
    channel_id: str
    max_age: int
    max_uses: int
    temporary: bool
    created_at: datetime

    @property
    def expires_at(self) -> datetime | None:
        return self.created_at + timedelta(seconds=self.max_age) if self.max_age else None


class GuildIntegrations:
    """Emojis, stickers, webhooks and invites of a Discord server.

    Attributes:
        emojis, stickers: names by id.
        webhooks: webhooks by id.
        invites: invites by code.
    """

    def __init__(self) -> None:
        self.emojis: dict[str, str] = {}
        self.stickers: dict[str, str] = {}
        self.webhooks: dict[str, Webhook] = {}
        self.invites: dict[str, Invite] = {}

    def add_emoji(self, name: str) -> str:
        """Add an emoji to the server, and return its new id.

        Names may occur several times. No event is sent to bots.
        """
        emoji_id = create_id()
        self.emojis[emoji_id] = name
        return emoji_id

    def get_or_add_sticker(self, name: str) -> str:
        """Return the id of the sticker with this name; add it if it does not exist."""
        known = next((sticker_id for sticker_id, known in self.stickers.items() if known == name), None)
        sticker_id = known or create_id()
        self.stickers[sticker_id] = name
        return sticker_id

    def add_webhook(self, channel_id: str, name: str) -> Webhook:
        webhook = Webhook(create_id(), channel_id, name)
        self.webhooks[webhook.id] = webhook
        return webhook

    def add_invite(self, channel_id: str, options: Mapping[str, Any]) -> Invite:
        """Add an invite to a channel, and return it.

        Args:
            options: `max_age` (default: `INVITE_LIFETIME_SECONDS`), `max_uses` (default: 0) and `temporary` (default:
                False) as in the request.
        """
        max_age = options.get("max_age")
        invite = Invite(
            secrets.token_urlsafe(6),
            channel_id,
            INVITE_LIFETIME_SECONDS if max_age is None else max_age,
            options.get("max_uses") or 0,
            bool(options.get("temporary")),
            datetime.now(UTC),
        )
        self.invites[invite.code] = invite
        return invite

    def remove_channel(self, channel_id: str) -> None:
        """Remove the webhooks and invites of a deleted channel; no event is published."""
        self.webhooks = {key: hook for key, hook in self.webhooks.items() if hook.channel_id != channel_id}
        self.invites = {code: invite for code, invite in self.invites.items() if invite.channel_id != channel_id}
