"""Web API methods `views.*`: modals and home tabs.

Slack: docs.slack.dev/surfaces/modals and the pages of the methods. An interaction has a trigger id that opens one view
within three seconds.
"""

import secrets
from dataclasses import dataclass
from time import monotonic
from typing import Any

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.block_kit.blocks import check_view
from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.state.inputs import Json
from chatrig.slack.state.views import MAX_STACK_VIEWS, OpenViews, SlackView
from chatrig.slack.state.workspace import WorkspaceUser

TRIGGER_LIFETIME_SECONDS = 3.0


@dataclass(eq=False, slots=True)
class ViewTrigger:
    """Trigger id of an interaction, with which the app can open one view.

    Attributes:
        user: the user of the interaction.
        view: the view of the interaction, on which another can be pushed; None for a message or command.
        expires_at: seconds on the monotonic clock.
        is_used: whether a view was opened with the trigger id.
    """

    user: WorkspaceUser
    view: SlackView | None
    expires_at: float
    is_used: bool = False


class ViewMethods:
    """Web API methods for modals and home tabs.

    Args:
        speed: divides `TRIGGER_LIFETIME_SECONDS`, the lifetime of a trigger id.

    Attributes:
        open_views: the modals and home tabs that users have open.
        is_home_enabled: whether the app has a home tab.
    """

    def __init__(self, api: WebApi, *, speed: float) -> None:
        self._api = api
        self._speed = speed
        self._triggers: dict[str, ViewTrigger] = {}
        self.open_views = OpenViews(api.workspace)
        self.is_home_enabled = True
        for name, handler in {
            "views.open": self.open_view,
            "views.push": self.push_view,
            "views.update": self.update_view,
            "views.publish": self.publish_view,
        }.items():
            api.register(name, handler)

    def create_trigger_id(self, user: WorkspaceUser, view: SlackView | None = None) -> str:
        """Create a trigger id, with which the app can open one modal for a user.

        It expires after `TRIGGER_LIFETIME_SECONDS` (divided by the speed).

        Args:
            view: the view of the interaction, on which the modal can be pushed; None for none.
        """
        trigger = f"{secrets.randbelow(10**13)}.{secrets.randbelow(10**13)}.{secrets.token_hex(16)}"
        self._triggers[trigger] = ViewTrigger(user, view, monotonic() + TRIGGER_LIFETIME_SECONDS / self._speed)
        return trigger

    def open_view(self, arguments: Arguments) -> dict[str, Any]:
        content = self._parse_view(arguments, "modal")
        trigger = self._use_trigger(arguments)
        return self._to_response(self.open_views.open_modal(trigger.user, content))

    def push_view(self, arguments: Arguments) -> dict[str, Any]:
        content = self._parse_view(arguments, "modal")
        trigger = self._use_trigger(arguments)
        if trigger.view is None or trigger.view not in self.open_views.modals:
            raise SlackError("not_found")
        return self._to_response(self.push_onto_modal(trigger.view, content))

    def push_onto_modal(self, view: SlackView, content: Json) -> SlackView:
        """Open a new view on top of the modal that contains `view`; return the new view.

        Args:
            content: the JSON of the new view, already checked by `check_view`.

        Raises:
            SlackError: `push_limit_reached` if the modal has `MAX_STACK_VIEWS` views.
        """
        stack = self.open_views.list_stack(view)
        if len(stack) >= MAX_STACK_VIEWS:
            raise SlackError("push_limit_reached")
        return self.open_views.open_modal(view.user, content, stack[-1])

    def update_view(self, arguments: Arguments) -> dict[str, Any]:
        id_, external_id = arguments.text("view_id"), arguments.text("external_id")
        if not (id_ or external_id):
            raise SlackError("invalid_arguments", messages=["[ERROR] missing required field: view_id"])
        view = self.open_views.find_view(id_, external_id)
        if view is None:
            raise SlackError("not_found")
        content = self._parse_view(arguments, view.content["type"], replaced=view)
        self._check_hash(view, arguments)
        self.open_views.set_content(view, content)
        return self._to_response(view)

    def publish_view(self, arguments: Arguments) -> dict[str, Any]:
        user = self._api.find_user(arguments.get_required("user_id"))
        if not self.is_home_enabled:
            raise SlackError("not_enabled")
        replaced = self.open_views.homes.get(user.id)
        content = self._parse_view(arguments, "home", replaced=replaced)
        if replaced is not None:
            self._check_hash(replaced, arguments)
        return self._to_response(self.open_views.publish_home(user, content))

    def check_view(self, view: object, kind: str, *, replaced: SlackView | None = None) -> Json:
        """Return a view's JSON unchanged if Slack would accept it.

        Args:
            kind: `modal` or `home`.
            replaced: the open view that the JSON replaces, which may have the same `external_id`; None for none.

        Raises:
            SlackError: `invalid_arguments`, `view_too_large` or `duplicate_external_id`.
        """
        content = check_view(view, kind)
        external_id = str(content.get("external_id") or "")
        if external_id and self.open_views.find_view("", external_id) not in (None, replaced):
            raise SlackError("duplicate_external_id")
        return content

    def _parse_view(self, arguments: Arguments, kind: str, *, replaced: SlackView | None = None) -> Json:
        return self.check_view(arguments.json("view", error="invalid_arguments"), kind, replaced=replaced)

    def _use_trigger(self, arguments: Arguments) -> ViewTrigger:
        """Return the trigger of the argument `trigger_id`, and mark it as used.

        Raises:
            SlackError: `invalid_trigger_id` (unknown), `exchanged_trigger_id` (used) or `expired_trigger_id`;
                `invalid_arguments` if it is missing.
        """
        trigger = self._triggers.get(arguments.get_required("trigger_id"))
        if trigger is None:
            raise SlackError("invalid_trigger_id")
        if trigger.is_used:
            raise SlackError("exchanged_trigger_id")
        if trigger.expires_at < monotonic():
            raise SlackError("expired_trigger_id")
        trigger.is_used = True
        return trigger

    @staticmethod
    def _check_hash(view: SlackView, arguments: Arguments) -> None:
        """Raise `SlackError("hash_conflict")` unless the argument `hash` is the view's.

        A missing argument is accepted.
        """
        if arguments.text("hash") not in ("", view.hash):
            raise SlackError("hash_conflict")

    def _to_response(self, view: SlackView) -> dict[str, Any]:
        return {"view": self.open_views.to_payload(view)}
