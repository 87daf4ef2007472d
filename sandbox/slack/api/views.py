"""Modals: trigger ids, `views.open` and validation.

Slack: docs.slack.dev/surfaces/modals. An interaction has a trigger id that opens one view within three seconds.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from sandbox.slack.api.base import WebApi
from sandbox.slack.api.limits import check_blocks
from sandbox.slack.api.requests import Arguments, SlackError
from sandbox.slack.state.markup import create_block_id
from sandbox.slack.state.workspace import Workspace, WorkspaceUser, create_id

TRIGGER_LIFETIME_SECONDS = 3.0

MAX_LABEL_CHARS, MAX_METADATA_CHARS = 24, 3_000

MAX_VIEW_BLOCKS = 100


@dataclass(eq=False, slots=True)
class ModalView:
    """Modal of one user.

    Attributes:
        content: the view that the app sent.
        errors: validation errors from the app, by block id.
    """

    id: str
    user: WorkspaceUser
    content: Mapping[str, Any]
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return str(self.content["title"]["text"])

    @property
    def inputs(self) -> dict[str, Mapping[str, Any]]:
        """Input blocks by action id."""
        return {b["element"]["action_id"]: b for b in self.content["blocks"] if b["type"] == "input"}


class ViewMethods:
    """Methods and state of modals.

    Attributes:
        open_views: the modals that users have open.
    """

    def __init__(self, api: WebApi, *, speed: float) -> None:
        self._workspace: Workspace = api.workspace
        self._speed = speed
        self._triggers: dict[str, tuple[WorkspaceUser, float]] = {}
        self.open_views: list[ModalView] = []
        api.register("views.open", self.open_view)

    def create_trigger_id(self, user: WorkspaceUser) -> str:
        """Create a trigger id that opens a view for this user."""
        trigger = f"{secrets.randbelow(10**13)}.{secrets.randbelow(10**13)}.{secrets.token_hex(16)}"
        self._triggers[trigger] = user, monotonic() + TRIGGER_LIFETIME_SECONDS / self._speed
        return trigger

    def open_view(self, arguments: Arguments) -> dict[str, Any]:
        content = check_view(arguments.json("view", error="invalid_arguments"))
        trigger = arguments.required("trigger_id")
        user, until = self._triggers.get(trigger, (None, 0.0))
        if user is None:
            raise SlackError("invalid_trigger_id")
        if until == 0.0:
            raise SlackError("exchanged_trigger_id")
        if until < monotonic():
            raise SlackError("expired_trigger_id")
        self._triggers[trigger] = user, 0.0
        blocks = [{**b, "block_id": b.get("block_id") or create_block_id(str(b))} for b in content["blocks"]]
        view = ModalView(create_id("V"), user, {**content, "blocks": blocks})
        self.open_views.append(view)
        return {"view": self.view_payload(view)}

    def view_payload(self, view: ModalView, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON of a view; `values` are the inputs."""
        content = view.content
        blank = {"close": None, "submit": None, "private_metadata": "", "callback_id": ""}
        flags = dict.fromkeys(("clear_on_close", "notify_on_close", "submit_disabled"), False)
        return {
            **blank,
            **flags,
            **content,
            "id": view.id,
            "team_id": self._workspace.team_id,
            "state": {"values": values or {}},
            "hash": f"{view.id}.1",
            "root_view_id": view.id,
            "previous_view_id": None,
            "app_id": self._workspace.app_id,
            "app_installed_team_id": self._workspace.team_id,
            "bot_id": self._workspace.bot_id,
            "external_id": "",
        }


def check_view(view: object) -> dict[str, Any]:
    """Return the view if Slack would accept it.

    Raises:
        SlackError: `invalid_arguments`, or an error of the blocks.
    """
    if not isinstance(view, dict) or view.get("type") != "modal" or not isinstance(view.get("blocks"), list):
        raise SlackError("invalid_arguments", messages=["[ERROR] must be a modal [json-pointer:/view]"])
    errors = [
        f"[ERROR] must have 1 to {MAX_LABEL_CHARS} characters [json-pointer:/view/{name}/text]"
        for name in ("title", "submit", "close")
        if not 0 < len(_label_text(view, name)) <= MAX_LABEL_CHARS and (name == "title" or name in view)
    ]
    inputs = [block for block in view["blocks"] if block.get("type") == "input"]
    if inputs and "submit" not in view:
        errors.append("[ERROR] missing required field: submit [json-pointer:/view]")
    if len(view.get("private_metadata") or "") > MAX_METADATA_CHARS:
        errors.append(
            f"[ERROR] must be less than {MAX_METADATA_CHARS + 1} characters [json-pointer:/view/private_metadata]"
        )
    if len(view["blocks"]) > MAX_VIEW_BLOCKS:
        errors.append(f"[ERROR] no more than {MAX_VIEW_BLOCKS} items allowed [json-pointer:/view/blocks]")
    if errors:
        raise SlackError("invalid_arguments", messages=errors)
    check_blocks(_without_inputs(view["blocks"]))
    return view


def _without_inputs(blocks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [block for block in blocks if block.get("type") != "input"]


def _label_text(view: Mapping[str, Any], name: str) -> str:
    return str((view.get(name) or {}).get("text", ""))
