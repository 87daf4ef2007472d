"""Interactions with buttons, shortcuts and modals.

Slack: docs.slack.dev/reference/interaction-payloads. Slack sends an interaction at most once. Without an
acknowledgement within 3 seconds, a button gets a warning sign, and a modal shows an error.
"""

import asyncio
from collections.abc import Mapping
from time import time
from typing import Any

from sandbox.slack.api.views import ModalView, ViewMethods
from sandbox.slack.events.http_mode import EnvelopeSender
from sandbox.slack.events.socket_mode import ACK_TIMEOUT_SECONDS, EnvelopeDelivery
from sandbox.slack.interactions.commands import SlashCommands
from sandbox.slack.state.controls import find_controls
from sandbox.slack.state.payloads import TEAM_DOMAIN, SlackPayloads
from sandbox.slack.state.workspace import SlackConversation, SlackMessage, Workspace, WorkspaceUser


class SlackInteractions:
    """Sends interactions and waits for their acknowledgement."""

    def __init__(
        self,
        workspace: Workspace,
        payloads: SlackPayloads,
        sender: EnvelopeSender,
        commands: SlashCommands,
        views: ViewMethods,
        *,
        token: str,
        speed: float,
    ) -> None:
        self._workspace = workspace
        self._payloads = payloads
        self._sender = sender
        self._commands = commands
        self._views = views
        self._token = token
        self._speed = speed

    async def click_button(
        self, user: WorkspaceUser, message: SlackMessage, control_id: str, response_base_url: str
    ) -> bool:
        """Click a button or option; return whether the app acknowledged it in time.

        Raises:
            ValueError: the message has no such button, or the user does not see it.
        """
        matches = [control for control in find_controls(self._payloads.blocks(message)) if control.id == control_id]
        if not matches or message.deleted or message.ephemeral_to not in (None, user.id):
            raise ValueError(f"there is no button {control_id}")
        container = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": message.channel.id,
            "is_ephemeral": message.ephemeral_to is not None,
        }
        url = self._commands.create_response_url(user, message.channel, response_base_url, message)
        payload = self._base_payload("block_actions", user) | {
            "container": container | ({"thread_ts": message.thread_ts} if message.thread_ts else {}),
            "trigger_id": self._views.create_trigger_id(user),
            "channel": _channel_payload(message.channel),
            "state": {"values": {}},
            "response_url": url,
            "actions": [matches[0].action_payload()],
        }
        if message.ephemeral_to is None:
            payload["message"] = self._payloads.message(message)
        return await self._send(payload) is not None

    async def use_shortcut(
        self, user: WorkspaceUser, message: SlackMessage, callback_id: str, response_base_url: str
    ) -> bool:
        """Use a message shortcut; return whether the app acknowledged it in time."""
        payload = self._base_payload("message_action", user) | {
            "callback_id": callback_id,
            "trigger_id": self._views.create_trigger_id(user),
            "message_ts": message.ts,
            "message": self._payloads.message(message),
            "channel": _channel_payload(message.channel),
            "response_url": self._commands.create_response_url(user, message.channel, response_base_url, None),
            "action_ts": f"{time():.6f}",
        }
        return await self._send(payload) is not None

    async def submit_modal(self, view: ModalView, values: Mapping[str, str]) -> bool:
        """Submit a modal; return whether the app accepted it. It stays open otherwise.

        Args:
            view: the modal.
            values: the inputs by action id.

        Raises:
            ValueError: the modal is not open, or has other inputs.
        """
        if view not in self._views.open_views or values.keys() != view.inputs.keys():
            raise ValueError(f"the modal has the inputs {', '.join(view.inputs)}")
        filled: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            block = view.inputs[name]
            filled.setdefault(block["block_id"], {})[name] = {"type": block["element"]["type"], "value": value}
        payload = self._base_payload("view_submission", view.user) | {
            "trigger_id": self._views.create_trigger_id(view.user),
            "view": self._views.view_payload(view, filled),
        }
        delivery = await self._send(payload)
        if delivery is None:
            return False
        response = delivery.response or {}
        view.errors = response.get("errors", {}) if response.get("response_action") == "errors" else {}
        if view.errors:
            return False
        self._views.open_views.remove(view)
        return True

    async def _send(self, payload: dict[str, Any]) -> EnvelopeDelivery | None:
        """Send an interaction; return its delivery if it was acknowledged in time."""
        if not self._sender.connection_count:
            return None
        delivery = self._sender.deliver("interactive", payload)
        try:
            async with asyncio.timeout(ACK_TIMEOUT_SECONDS / self._speed):
                await delivery.acknowledged.wait()
        except TimeoutError:
            return None
        return delivery

    def _base_payload(self, kind: str, user: WorkspaceUser) -> dict[str, Any]:
        """Return the fields that all interactions have."""
        names = {"name": user.name} | ({} if kind == "message_action" else {"username": user.name})
        fields: dict[str, Any] = {
            "type": kind,
            "user": {"id": user.id, "team_id": user.team_id or self._workspace.team_id, **names},
            "token": self._token,
            "team": {"id": self._workspace.team_id, "domain": TEAM_DOMAIN},
            "enterprise": None,
            "is_enterprise_install": False,
        }
        return fields if kind == "message_action" else fields | {"api_app_id": self._workspace.app_id}


def _channel_payload(channel: SlackConversation) -> dict[str, str]:
    return {"id": channel.id, "name": "directmessage" if channel.is_dm else channel.name}
