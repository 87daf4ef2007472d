"""Messages that ask people to decide: approvals, an agent's questions, and sign-ins."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from channels.base import File, Priority
from channels.i18n import messages as words
from channels.platform import Platform, Platforms
from channels.replies.reply import Reply
from channels.requests.approval_message import ARGUMENTS_FILE, approval_text, decision_buttons, list_argument_files
from channels.requests.question_message import question_buttons, question_text
from channels.requests.sign_in_message import sign_in_buttons, sign_in_text
from core.concurrency.tasks import BackgroundTasks
from core.tools.human_request_service import HumanRequestService
from core.tools.human_requests import Approval, HumanRequest, Question, SignInRequest
from core.turns.turn import FILE_PREFIX


class RequestMessages:
    """Posts and edits the messages of approvals, of an agent's questions, and of requests to sign in."""

    def __init__(self, platforms: Platforms, requests: HumanRequestService, background: BackgroundTasks) -> None:
        self._platforms = platforms
        self._requests = requests
        self._background = background
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    def start_update(self, request: HumanRequest, *, is_void: bool = False, page: int = 0) -> asyncio.Task[None]:
        """Call `update` in a background task, which logs its errors, and return the task."""
        return self._background.start(self.update(request, is_void=is_void, page=page), name=f"request {request.id}")

    async def update(self, request: HumanRequest, *, is_void: bool = False, page: int = 0) -> None:
        """Edit the message of a request to its current state, which is read again from the database.

        A missing message is posted. The ids of the posted messages are stored with the request. Arguments of an
        approval that are too long for the message are posted as a file, before *Approve* appears. If the file cannot be
        posted, the message says so, and has *Retry* in place of *Approve*.

        Args:
            is_void: whether nobody can decide the open request any more, because the user's message was deleted.
            page: the page of a question's options to show, from 0.
        """
        platform = self._platforms[request.inbox_message.platform]
        lock = self._locks.setdefault(request.id, asyncio.Lock())  # two updates might each post a message
        async with lock:
            await _show_request(platform, self._requests, request, is_void=is_void, page=page)


async def _show_request(
    platform: Platform, requests: HumanRequestService, request: HumanRequest, *, is_void: bool, page: int
) -> None:
    request = await requests.get(request.id) or request  # it may have been shown or decided since
    address = request.inbox_message.address

    async def save_ids(ids: Sequence[str]) -> None:
        await requests.save_message_ids(request.id, ids, platform.reply_address(address, ids[0]) if ids else address)

    surface = platform.create_surface(platform.side_message_address(address, request.id), turn_id=request.id)
    say = words.messages_for(await words.resolve_locale(platform.get_locale(request.inbox_message)))
    known_ids = tuple(await surface.find_message_ids(request.message_ids))
    if known_ids and known_ids != request.message_ids:  # the worker that posted them died before it saved them
        await save_ids(known_ids)
    files: Sequence[File] = ()
    match request:
        case Approval():
            text = approval_text(request, say, is_void=is_void)
            controls = decision_buttons(request, say, is_void=is_void)
            files = list_argument_files(request)
        case Question():
            text = question_text(request, say, is_void=is_void)
            controls = question_buttons(request, say, platform.max_menu_options, page=page, is_void=is_void)
        case SignInRequest():
            person = (await platform.read_message(request.inbox_message)).speaker
            text = sign_in_text(request, person, say, is_void=is_void)
            controls = sign_in_buttons(request, say, is_void=is_void)
        case _:
            raise TypeError(f"a request of the type {type(request).__name__} has no message")
    async with Reply(surface, known_ids=known_ids, save_ids=save_ids, say=say, buttons=controls) as reply:
        if isinstance(request, Approval) and controls and not request.is_readable:
            # *Deny* stays: Discord's message is found by a button after a crash
            attached = replace(request, message_ids=(f"{FILE_PREFIX}:{ARGUMENTS_FILE}",))
            deny = [button for button in controls if button.id.startswith("deny:")]
            await reply.close(approval_text(attached, say), Priority.APPROVAL, buttons=deny, files=files)
            if isinstance(posted := await requests.get(request.id), Approval):
                text = approval_text(posted, say)
                controls = decision_buttons(posted, say)
                files = files if posted.is_readable else ()
        await reply.close(text, Priority.APPROVAL, buttons=controls, files=files)
