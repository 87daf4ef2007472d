"""Messages that ask people to decide: approvals and an agent's questions."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from channels.base import Channel, Priority
from channels.i18n import messages as words
from channels.replies.approval_message import approval_text, decision_buttons
from channels.replies.question_message import question_buttons, question_text
from channels.replies.reply import Reply
from core.errors import StoreError, SurfaceError
from core.secret_redaction import format_error
from core.tools.human_request_service import HumanRequestService
from core.tools.human_requests import Approval, HumanRequest, Question

log = logging.getLogger(__name__)


async def show_decision(update: Callable[[HumanRequest], Awaitable[None]], request: HumanRequest) -> None:
    """Update the message of a decided approval or question.

    `StoreError` and `SurfaceError` are logged.

    Args:
        update: edits the message of a request to its current state.
    """
    try:
        await update(request)
    except (StoreError, SurfaceError) as error:
        log.error("request %s cannot be shown as decided: %s", request.id, format_error(error))


async def show_request(
    channel: Channel, requests: HumanRequestService, request: HumanRequest, *, is_void: bool = False, page: int = 0
) -> None:
    """Edit the message of an approval or question to its current state.

    A missing message is posted. The ids of the posted messages are stored with the request.

    Args:
        request: the approval or question; its state is read again from the database.
        is_void: whether nobody can decide the open request any more.
        page: the page of a question's options to show, from 0.

    Raises:
        StoreError: the request cannot be read, or the ids cannot be stored.
        SurfaceError: the message cannot be shown.
    """
    request = await requests.get(request.id) or request  # it may have been shown or decided since
    address = request.inbox_message.address

    async def save_ids(ids: Sequence[str]) -> None:
        await requests.save_message_ids(request.id, ids, channel.reply_address(address, ids[0]) if ids else address)

    surface = channel.create_surface(channel.side_message_address(address, request.id), turn_id=request.id)
    say = words.messages_for(await words.resolve_locale(channel.get_locale(request.inbox_message)))
    known_ids = tuple(await surface.find_message_ids(request.message_ids))
    if known_ids and known_ids != request.message_ids:  # the worker that posted them died before it saved them
        await save_ids(known_ids)
    match request:
        case Approval():
            text = approval_text(request, say, is_void=is_void)
            controls = decision_buttons(request, say, is_void=is_void)
        case Question():
            text = question_text(request, say, is_void=is_void)
            controls = question_buttons(request, say, channel.max_menu_options, page=page, is_void=is_void)
        case _:
            raise TypeError(f"a request of the type {type(request).__name__} has no message")
    async with Reply(surface, known_ids=known_ids, save_ids=save_ids, say=say, buttons=controls) as reply:
        await reply.close(text, Priority.APPROVAL, buttons=controls)
