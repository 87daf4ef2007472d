"""Modals and home tabs of the app that users have open.

Slack: docs.slack.dev/surfaces/modals and docs.slack.dev/surfaces/app-home. A modal is a stack of up to three views.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from time import time

from chatrig.slack.state.inputs import InputState, Json, assign_block_ids
from chatrig.slack.state.workspace import Workspace, WorkspaceUser, create_id

MAX_STACK_VIEWS = 3


@dataclass(eq=False, slots=True)
class SlackView:
    """View that one user has open: one of a modal, or the home tab of the app.

    Attributes:
        content: the JSON that the app sent, with an id for each block and element.
        previous: the view below this one in the stack; None for the lowest and for a home tab.
        hash: text that changes with every update.
        state: the values that the user entered.
        errors: validation errors by block id, from the app or from Slack's form.
    """

    id: str
    user: WorkspaceUser
    content: Json
    previous: "SlackView | None" = None
    hash: str = ""
    state: InputState = field(default_factory=InputState)
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return str(self.content["title"]["text"])

    @property
    def root(self) -> "SlackView":
        """The lowest view of the modal's stack; the view itself if it is the lowest."""
        return self if self.previous is None else self.previous.root

    @property
    def inputs(self) -> dict[str, Json]:
        """JSON of the view's input blocks by the action id of their element."""
        return {b["element"]["action_id"]: b for b in self.content["blocks"] if b["type"] == "input"}


class OpenViews:
    """Modals and home tabs that users have open.

    Attributes:
        modals: the views of all modals; a view follows the one below it in its stack.
        homes: home tabs by user id.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.modals: list[SlackView] = []
        self.homes: dict[str, SlackView] = {}

    def open_modal(self, user: WorkspaceUser, content: Json, previous: SlackView | None = None) -> SlackView:
        """Open a modal for a user, or push a view on an open modal; return the new view.

        Args:
            content: JSON of the view, as the app sent it and already checked.
            previous: the top view of the open modal; None for a new modal.
        """
        view = SlackView(create_id("V"), user, {}, previous)
        self.set_content(view, content)
        self.modals.append(view)
        return view

    def publish_home(self, user: WorkspaceUser, content: Json) -> SlackView:
        """Create the home tab of a user, or replace its content; return its view.

        The id of an existing view stays: see `set_content`.
        """
        view = self.homes.setdefault(user.id, SlackView(create_id("V"), user, {}))
        self.set_content(view, content)
        return view

    def set_content(self, view: SlackView, content: Json) -> None:
        """Replace the content and the hash of a view, and clear its errors.

        Values that the user entered stay in elements with the same block id, action id and type.
        """
        view.hash = _create_hash()
        view.errors = {}
        view.content = {**content, "blocks": assign_block_ids(content["blocks"], view.id + view.hash)}

    def list_stack(self, view: SlackView) -> list[SlackView]:
        """Return all views of the modal that contains a view, the lowest first."""
        return [other for other in self.modals if other.root is view.root]

    def find_view(self, id_: str, external_id: str) -> SlackView | None:
        """Return the open view with this id or `external_id`; None if there is none.

        An empty `external_id` matches no view.
        """
        views = [*self.modals, *self.homes.values()]
        return next((v for v in views if v.id == id_ or (external_id and external_id == _external_id(v))), None)

    def to_payload(self, view: SlackView) -> Json:
        """Return a view's JSON as in payloads and responses, with its user's values."""
        content = view.content
        blank: Json = {"private_metadata": "", "callback_id": "", "external_id": ""}
        if content["type"] == "modal":
            blank |= {"close": None, "submit": None}
            blank |= dict.fromkeys(("clear_on_close", "notify_on_close", "submit_disabled"), False)
        return {
            **blank,
            **content,
            "id": view.id,
            "team_id": self._workspace.team_id,
            "state": {"values": view.state.to_payload(content["blocks"])},
            "hash": view.hash,
            "root_view_id": view.root.id,
            "previous_view_id": view.previous and view.previous.id,
            "app_id": self._workspace.app_id,
            "app_installed_team_id": self._workspace.team_id,
            "bot_id": self._workspace.bot_id,
        }


def _external_id(view: SlackView) -> str:
    return str(view.content.get("external_id") or "")


def _create_hash() -> str:
    return f"{int(time())}.{token_hex(4)}"
