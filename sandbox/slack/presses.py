"""Buttons: one envelope for a press, and its acknowledgement.

Slack: docs.slack.dev/reference/interaction-payloads/block_actions-payload. A press is sent once, or not at all; who
pressed sees a warning sign beside the button if it is not acknowledged within 3 seconds.
"""

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from time import time
from typing import Any

from sandbox.slack.commands import Commands
from sandbox.slack.payloads import TEAM_DOMAIN, Payloads
from sandbox.slack.socket_mode import ACK_TIMEOUT, SocketMode
from sandbox.slack.workspace import Message, User, Workspace


class Presses:
    def __init__(
        self,
        workspace: Workspace,
        payloads: Payloads,
        sockets: SocketMode,
        commands: Commands,
        *,
        token: str,
        speed: float,
    ) -> None:
        self._workspace = workspace
        self._payloads = payloads
        self._sockets = sockets
        self._commands = commands
        self._token = token
        self._speed = speed

    async def press(self, user: User, message: Message, action_id: str, response_base: str) -> bool:
        """Press a button; whether the app acknowledged it in time.

        Raises:
            ValueError: the message has no such button.
        """
        block_id, button = next(self._buttons(message, action_id), ("", None))
        if button is None or message.deleted:
            raise ValueError(f"there is no button {action_id} to be pressed")
        if not self._sockets.connected:
            return False
        url = self._commands.response_url(user, message.channel, response_base)
        payload = self._payload(user, message, url) | {"actions": [_action(button, block_id)]}
        delivery = self._sockets.deliver("interactive", payload)
        try:
            async with asyncio.timeout(ACK_TIMEOUT / self._speed):
                await delivery.acknowledged.wait()
        except TimeoutError:
            return False
        return True

    def _buttons(self, message: Message, action_id: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for block in self._payloads.blocks(message):
            for element in block.get("elements", ()) if block["type"] == "actions" else ():
                if element.get("type") == "button" and element.get("action_id") == action_id:
                    yield block["block_id"], element

    def _payload(self, user: User, message: Message, response_url: str) -> dict[str, Any]:
        channel = message.channel
        container = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": channel.id,
            "is_ephemeral": message.ephemeral_to is not None,
        }
        return {
            "type": "block_actions",
            "user": {"id": user.id, "username": user.name, "name": user.name, "team_id": self._workspace.team_id},
            "api_app_id": self._workspace.app_id,
            "token": self._token,
            "container": container | ({"thread_ts": message.thread_ts} if message.thread_ts else {}),
            "trigger_id": f"{secrets.randbelow(10**13)}.{secrets.randbelow(10**13)}.{secrets.token_hex(16)}",
            "team": {"id": self._workspace.team_id, "domain": TEAM_DOMAIN},
            "enterprise": None,
            "is_enterprise_install": False,
            "channel": {"id": channel.id, "name": "directmessage" if channel.is_dm else channel.name},
            "message": self._payloads.said(message),
            "state": {"values": {}},
            "response_url": response_url,
        }


def _action(button: Mapping[str, Any], block_id: str) -> dict[str, Any]:
    text = {"emoji": True, **button["text"]}
    given = {name: button[name] for name in ("value", "style") if name in button}
    return {
        "action_id": button["action_id"],
        "block_id": block_id,
        "text": text,
        "type": "button",
        "action_ts": f"{time():.6f}",
        **given,
    }
