"""Messages that ask a person to sign in at a service: the text, the buttons and the decision."""

from collections.abc import Sequence

from channels.base import Button
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.markdown.times import format_time
from channels.replies.buttons import create_button
from channels.requests.approval_message import MAX_NAME, decision_text, plain_line
from core.tools.human_requests import SignInRequest


def sign_in_text(request: SignInRequest, name: str, say: MessageCatalog, *, is_void: bool = False) -> str:
    """Return the Markdown of a request to sign in; `name` is that of its person.

    It has no link: everybody in the channel can read it. A press of *Connect* gives the person a link of their own.
    """
    name = plain_line(name)[:MAX_NAME]
    heading = say(words.CONNECT_SERVICE, name=name, service=plain_line(request.owner.label)[:MAX_NAME])
    return f"{heading}\n\n{say(words.SIGN_IN_VOID) if is_void else _state_text(request, name, say)}"


def sign_in_buttons(request: SignInRequest, say: MessageCatalog, *, is_void: bool = False) -> Sequence[Button]:
    if is_void or request.verdict is not None:
        return ()
    return [create_button("connect", request.id, say), create_button("decline", request.id, say)]


def _state_text(request: SignInRequest, name: str, say: MessageCatalog) -> str:
    match request.verdict:
        case None:
            return say(words.PERSON_CONNECTS, name=name, until=format_time(request.expires_at))
        case "expired":
            return say(words.SIGN_IN_EXPIRED)
        case "denied":
            return say(words.DECLINED, name=name, when=format_time(request.decided_at))
        case verdict:
            return decision_text(verdict, name, request.decided_at, say)
