"""Interactions of users with buttons, inputs, shortcuts and modals of the app.

Slack: docs.slack.dev/reference/interaction-payloads. Slack sends an interaction at most once. Without an
acknowledgement within 3 seconds, a button shows a warning sign, and a modal shows an error.
"""

import asyncio
from collections.abc import Mapping, Sequence
from time import time
from typing import Any

from chatrig.slack.api.requests import SlackError
from chatrig.slack.api.views import ViewMethods
from chatrig.slack.events.http_mode import EnvelopeSender
from chatrig.slack.events.socket_mode import ACK_TIMEOUT_SECONDS, EnvelopeDelivery
from chatrig.slack.interactions.commands import SlashCommands
from chatrig.slack.interactions.input_values import REQUIRED_ERROR, InputValue, parse_input
from chatrig.slack.state.controls import BlockControl, create_action, find_controls
from chatrig.slack.state.inputs import INPUT_FIELDS, InputState, Json, find_elements
from chatrig.slack.state.messages import SlackConversation, SlackMessage
from chatrig.slack.state.payloads import TEAM_DOMAIN, SlackPayloads
from chatrig.slack.state.views import SlackView
from chatrig.slack.state.workspace import Workspace, WorkspaceUser


class SlackInteractions:
    """Sender of interactions to the app; it waits for the app's acknowledgement.

    An acknowledgement is in time within `ACK_TIMEOUT_SECONDS`, divided by `speed`. If the app is not connected, nothing
    is sent, and the result is as without an acknowledgement.
    """

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
        self._open_views = views.open_views
        self._token = token
        self._speed = speed

    async def click_button(
        self, user: WorkspaceUser, target: SlackMessage | SlackView, control_id: str, response_base_url: str
    ) -> bool:
        """Click a button or option; return whether the app acknowledged it in time.

        An option of an input element is entered as by `set_input`, which returns True if Slack sends no action.

        Args:
            target: the message or view with the button.
            control_id: see `BlockControl.id`; or `BLOCK_ID/CONTROL_ID`, since an action id is unique in its block only.
            response_base_url: the URL that response URLs begin with; it ends in a slash.

        Raises:
            ValueError: the message or view has no such button, or the user does not see it.
        """
        controls = find_controls(self._visible_blocks(user, target))
        matches = [control for control in controls if control_id in (control.id, f"{control.block_id}/{control.id}")]
        if not matches:
            raise ValueError(f"there is no button {control_id}")
        control = matches[0]
        if control.element["type"] in INPUT_FIELDS and control.option is not None:
            name = f"{control.block_id}/{control.element['action_id']}"
            return await self.set_input(user, target, name, control.option["value"], response_base_url)
        return await self._send_action(user, target, control.action_payload(), response_base_url)

    async def set_input(
        self,
        user: WorkspaceUser,
        target: SlackMessage | SlackView,
        action_id: str,
        value: InputValue,
        response_base_url: str,
    ) -> bool:
        """Enter a value into an input element of a message or view.

        Slack sends no action for an element of an input block without `dispatch_action`.

        Args:
            target: the message or view with the element.
            action_id: the action id of the element, or `BLOCK_ID/ACTION_ID`.
            response_base_url: the URL that response URLs begin with; it ends in a slash.

        Returns:
            False if the app did not acknowledge an action in time or is not connected; True if it did, or if there is
            no action.

        Raises:
            ValueError: the element does not exist, the user does not see it, or it does not accept the value.
        """
        elements = find_elements(self._visible_blocks(user, target))
        inputs = [(block, element) for block, element in elements if element["type"] in INPUT_FIELDS]
        matches = [(b, e) for b, e in inputs if action_id in (e["action_id"], f"{b['block_id']}/{e['action_id']}")]
        if not matches:
            names = ", ".join(element["action_id"] for _, element in inputs)
            raise ValueError(f"there is no input {action_id}; the inputs are {names or 'none'}")
        block, element = matches[0]
        entered = parse_input(element, value, self._workspace)
        _get_state(target, user).set_value(block["block_id"], element, entered)
        if block["type"] == "input" and not block.get("dispatch_action"):
            return True
        action = create_action(element, block["block_id"]) | {INPUT_FIELDS[element["type"]][0]: entered}
        return await self._send_action(user, target, action, response_base_url)

    def list_inputs(self, user: WorkspaceUser | None, message: SlackMessage) -> list[tuple[str, Json, Any]]:
        """Return the input elements of a message with their values for a user.

        Args:
            user: the user; None for the preset values only.

        Returns:
            A tuple of block id, element and value for each input element. The value is the entered or else the preset
            one: see `InputState.get_value`.
        """
        state = InputState() if user is None else _get_state(message, user)
        elements = find_elements(self._payloads.blocks(message))
        inputs = [(block["block_id"], element) for block, element in elements if element["type"] in INPUT_FIELDS]
        return [(block_id, element, state.get_value(block_id, element)) for block_id, element in inputs]

    def list_controls(self, message: SlackMessage) -> list[BlockControl]:
        """Return the buttons and menu options of a message, as `find_controls` finds them."""
        return list(find_controls(self._payloads.blocks(message)))

    def _visible_blocks(self, user: WorkspaceUser, target: SlackMessage | SlackView) -> Sequence[Mapping[str, Any]]:
        """Return the Block Kit blocks of a message or view; empty if it is hidden.

        A view is hidden if it is closed or another user's. A message is hidden if it is deleted, or ephemeral to
        another user.
        """
        if isinstance(target, SlackView):
            is_open = target in (*self._open_views.modals, *self._open_views.homes.values())
            return target.content["blocks"] if is_open and target.user == user else ()
        is_visible = not target.deleted and target.ephemeral_to in (None, user.id)
        return self._payloads.blocks(target) if is_visible else ()

    async def _send_action(
        self, user: WorkspaceUser, target: SlackMessage | SlackView, action: Json, response_base_url: str
    ) -> bool:
        """Send a `block_actions` payload with one action.

        Args:
            target: the message or view with the button or input.
            action: item of the payload's `actions`.
            response_base_url: the URL that response URLs begin with; it ends in a slash.

        Returns:
            Whether the app acknowledged the payload in time.
        """
        payload = self._base_payload("block_actions", user) | {"actions": [action]}
        if isinstance(target, SlackView):
            return await self._send(payload | self._view_context(target)) is not None
        container = {
            "type": "message",
            "message_ts": target.ts,
            "channel_id": target.channel.id,
            "is_ephemeral": target.ephemeral_to is not None,
        }
        payload |= {
            "container": container | ({"thread_ts": target.thread_ts} if target.thread_ts else {}),
            "trigger_id": self._views.create_trigger_id(user),
            "channel": _channel_payload(target.channel),
            "state": {"values": _get_state(target, user).to_payload(self._payloads.blocks(target))},
            "response_url": self._commands.create_response_url(user, target.channel, response_base_url, target),
        }
        if target.ephemeral_to is None:
            payload["message"] = self._payloads.message(target)
        return await self._send(payload) is not None

    def _view_context(self, view: SlackView) -> Json:
        """Return the fields that a `block_actions` payload has for an action in a view.

        They are `container`, `view`, and `trigger_id`, for which a new trigger id is created.
        """
        return {
            "container": {"type": "view", "view_id": view.id},
            "trigger_id": self._views.create_trigger_id(view.user, view),
            "view": self._open_views.to_payload(view),
        }

    async def use_shortcut(
        self, user: WorkspaceUser, message: SlackMessage, callback_id: str, response_base_url: str
    ) -> bool:
        """Use a message shortcut; return whether the app acknowledged it in time.

        False, too, if the app is not connected.

        Args:
            callback_id: the callback id of the shortcut; the manifest is not checked.
            response_base_url: the URL that response URLs begin with; it ends in a slash.
        """
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

    async def submit_modal(self, view: SlackView, values: Mapping[str, InputValue]) -> bool:
        """Fill in and submit a modal; return whether the app accepted it.

        Otherwise the modal stays open. The view's `errors` are those of the app, or of empty inputs that are not
        optional. A modal with such inputs is not sent. `errors` is empty without an acknowledgement in time,
        and after an invalid response.

        Args:
            view: the modal, on top of its stack.
            values: values by action id; other inputs have their present values.

        Raises:
            ValueError: the modal is not on top, has no such input, or does not accept a value.
        """
        self._require_top(view)
        if not values.keys() <= view.inputs.keys():
            raise ValueError(f"the modal has the inputs {', '.join(view.inputs) or 'none'}")
        for name, value in values.items():
            block = view.inputs[name]
            view.state.set_value(
                block["block_id"], block["element"], parse_input(block["element"], value, self._workspace)
            )
        view.errors = {
            block["block_id"]: REQUIRED_ERROR
            for block in view.inputs.values()
            if not block.get("optional") and view.state.get_value(block["block_id"], block["element"]) in (None, "", [])
        }
        if view.errors:
            return False
        payload = self._base_payload("view_submission", view.user) | {
            "trigger_id": self._views.create_trigger_id(view.user, view),
            "view": self._open_views.to_payload(view),
        }
        delivery = await self._send(payload)
        try:
            return delivery is not None and self._apply_response(view, delivery.response or {})
        except SlackError:
            return False

    def _apply_response(self, view: SlackView, response: Json) -> bool:
        """Apply the app's response to the submission of a modal.

        Its `response_action` updates the view, pushes another one, clears the whole modal, or sets errors. Without an
        action, the view is closed.

        Returns:
            False if the response sets errors; True otherwise.

        Raises:
            SlackError: Slack would show "We had some trouble connecting" for this response.
        """
        match response:
            case {"response_action": "errors", "errors": dict(errors)} if errors:
                if not errors.keys() <= {block["block_id"] for block in view.inputs.values()}:
                    raise SlackError("invalid_arguments", messages=["[ERROR] unknown block_id [json-pointer:/errors]"])
                view.errors = errors
                return False
            case {"response_action": "update", "view": content}:
                self._open_views.set_content(view, self._views.check_view(content, "modal", replaced=view))
            case {"response_action": "push", "view": content}:
                self._views.push_onto_modal(view, self._views.check_view(content, "modal"))
            case {"response_action": "clear"}:
                for other in self._open_views.list_stack(view):
                    self._open_views.modals.remove(other)
            case {"response_action": _}:
                raise SlackError("invalid_arguments", messages=["[ERROR] unknown [json-pointer:/response_action]"])
            case _:
                self._open_views.modals.remove(view)
        return True

    def close_modal(self, view: SlackView, *, whole_stack: bool) -> None:
        """Close a modal's top view without submitting it.

        If the app is connected, `view_closed` is sent for each closed view with `notify_on_close`.

        Args:
            whole_stack: close all views of the modal; `clear_on_close` of the view closes them, too.

        Raises:
            ValueError: the view is not on top.
        """
        self._require_top(view)
        is_cleared = whole_stack or bool(view.content.get("clear_on_close"))
        for closed in reversed(self._open_views.list_stack(view) if is_cleared else [view]):
            self._open_views.modals.remove(closed)
            if closed.content.get("notify_on_close") and self._sender.connection_count:
                payload = self._base_payload("view_closed", closed.user)
                payload |= {"view": self._open_views.to_payload(closed), "is_cleared": is_cleared}
                self._sender.deliver("interactive", payload)

    def _require_top(self, view: SlackView) -> None:
        """Raise `ValueError` if a view is closed, or another view of its modal covers it."""
        if view not in self._open_views.modals or self._open_views.list_stack(view)[-1] is not view:
            raise ValueError("the modal is not open, or another view covers it")

    async def _send(self, payload: dict[str, Any]) -> EnvelopeDelivery | None:
        """Send an interaction to the app, and wait for its acknowledgement.

        Returns:
            The delivery; None if the app is not connected or did not acknowledge in time.
        """
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
        """Return the fields that the payloads of all interactions have.

        They are `type`, `user`, `token`, `team`, `enterprise`, `is_enterprise_install` and, except for message
        shortcuts, `api_app_id`.

        Args:
            kind: the `type` of the payload; `message_action` for a message shortcut.
        """
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


def _get_state(target: SlackMessage | SlackView, user: WorkspaceUser) -> InputState:
    return target.state if isinstance(target, SlackView) else target.input_states.setdefault(user.id, InputState())


def _channel_payload(channel: SlackConversation) -> dict[str, str]:
    return {"id": channel.id, "name": "directmessage" if channel.is_dm else channel.name}
