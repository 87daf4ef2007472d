"""Buttons under replies: their labels, styles and ids."""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, get_args

from channels.base import Button, ButtonStyle
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.settings import ExtraButton

#: The actions of buttons: on a turn, an approval, a question, a schedule, a background job, and a sign-in.
TurnAction = Literal["retry", "regenerate", "revise", "stop", "good", "bad"]
ApprovalAction = Literal["approve", "always", "deny", "attach"]
QuestionAction = Literal["option", "page", "form"]
#: `schedule_zone` chooses a time zone, which is the detail.
ScheduleAction = Literal["unschedule", "schedule_confirm", "schedule_pause", "schedule_resume", "schedule_zone"]
JobAction = Literal["cancel_job"]
#: `connect` and `decline` are for a request to sign in; `disconnect` is for a connected account.
SignInAction = Literal["connect", "decline", "disconnect"]
ButtonAction = TurnAction | ApprovalAction | QuestionAction | ScheduleAction | JobAction | SignInAction

#: Prefix of the ids of buttons that open a page. Slack: a press of one is an interaction too.
LINK_PREFIX = "link:"

#: Prefixes of the ids of the ratings.
RATING_PREFIXES = ("good:", "bad:")

_LABELS: Mapping[ButtonAction, str] = {
    "retry": words.RETRY,
    "regenerate": words.REGENERATE,
    "revise": words.ANSWER_EDITED,
    "stop": words.STOP,
    "good": words.GOOD_ANSWER,
    "bad": words.BAD_ANSWER,
    "approve": words.APPROVE,
    "always": words.ALWAYS_ALLOW,
    "deny": words.DENY,
    "attach": words.RETRY,
    "option": words.CHOOSE,
    "page": words.MORE_OPTIONS,
    "form": words.ANSWER,
    "unschedule": words.UNDO,
    "schedule_confirm": words.CONFIRM,
    "schedule_pause": words.PAUSE,
    "schedule_resume": words.RESUME,
    "schedule_zone": words.CHOOSE_TIME_ZONE,
    "cancel_job": words.CANCEL,
    "connect": words.CONNECT,
    "decline": words.NOT_NOW,
    "disconnect": words.DISCONNECT,
}
_STYLES: Mapping[ButtonAction, ButtonStyle] = {
    "revise": "primary",
    "approve": "primary",
    "deny": "danger",
    "form": "primary",
    "schedule_confirm": "primary",
    "connect": "primary",
}


class Press(NamedTuple):
    """Press of a button, parsed from the button's id.

    Attributes:
        target_id: the id of the turn, the request, the schedule, the job or the sign-in.
        detail: of a question's button: the index of the option, or the page; a time zone; empty for others.
    """

    action: ButtonAction
    target_id: str
    detail: str = ""

    @property
    def page(self) -> int:
        """The page in `detail`, of the options or of the form, from 0; 0 without a number."""
        return int(self.detail) if self.detail.isascii() and self.detail.isdigit() else 0


def create_button(action: ButtonAction, target_id: str, say: MessageCatalog, *, detail: str = "") -> Button:
    """Return the button for an action; its id is `ACTION:TARGET_ID`, or `ACTION:DETAIL:TARGET_ID` with a detail."""
    return Button(
        f"{action}:{detail}:{target_id}" if detail else f"{action}:{target_id}",
        say(_LABELS[action]),
        _STYLES.get(action, ""),
    )


def growing_buttons(turn_id: str, say: MessageCatalog, *, is_revised: bool = False) -> list[Button]:
    """Return the buttons under a reply whose text is still being written."""
    actions: list[ButtonAction] = ["revise", "stop"] if is_revised else ["stop"]
    return [create_button(action, turn_id, say) for action in actions]


def answer_buttons(
    turn_id: str, say: MessageCatalog, extra_buttons: Collection[ExtraButton], *, is_revised: bool = False
) -> list[Button]:
    """Return the buttons under a finished answer; no *Regenerate* if a message was edited (`is_revised`)."""
    actions: list[ButtonAction] = ["revise"] if is_revised else ["regenerate"] if "regenerate" in extra_buttons else []
    if "feedback" in extra_buttons:
        actions += ["good", "bad"]
    return [create_button(action, turn_id, say) for action in actions]


def approval_buttons(approval_id: str, say: MessageCatalog, *, may_approve: bool, may_always: bool) -> list[Button]:
    """Return the buttons under an open approval: *Approve* and *Deny*, and *Always allow* with `may_always`.

    Without `may_approve`, *Retry*, which posts the arguments, takes the place of *Approve*.
    """
    actions: list[ButtonAction] = ["approve" if may_approve else "attach"]
    if may_always:
        actions.append("always")
    return [create_button(action, approval_id, say) for action in (*actions, "deny")]


def parse_button(button_id: str) -> Press | None:
    """Parse the id of a pressed button: see `create_button`; None for another format."""
    name, _, rest = button_id.partition(":")
    detail, _, target_id = rest.rpartition(":")
    action = next((action for action in _LABELS if action == name), None)
    has_detail = action in (*get_args(QuestionAction), "schedule_zone")
    return Press(action, target_id, detail) if action and target_id and has_detail == bool(detail) else None
