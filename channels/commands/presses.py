"""Button presses: stop, retry, regenerate, ratings, approvals, answers, schedules and sign-ins."""

import logging
from collections.abc import Mapping, Sequence

from channels.base import Button
from channels.commands.answers import AnswerHandler, ensure_message_ids
from channels.commands.handlers import CommandResult, prompt_limit_message
from channels.commands.listed_items import shorten_title
from channels.commands.schedules import handle_schedule_press
from channels.commands.services import PlatformServices
from channels.commands.sign_ins import disconnect
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.replies.buttons import LINK_PREFIX, ButtonAction, Press, QuestionAction, TurnAction, parse_button
from channels.replies.reactions import QueuedReactions
from channels.requests.approval_message import ARGUMENTS_FILE, refusal_text
from core.errors import SignInLinkError
from core.messages.identity import Actor, User
from core.messages.inbox_message import AcceptResult, InboxMessage
from core.observability.secret_redaction import add_temporary_secret
from core.signin.browser import STEP_SECONDS
from core.signin.target import Person
from core.tools.human_requests import Approval, SignInRequest, Verdict
from core.turns.cancel import StopTurnResult
from core.turns.rerun import RerunDenial
from core.usage.user_rate_limits import RateLimitDenial

log = logging.getLogger(__name__)

_VERDICTS: Mapping[ButtonAction, Verdict] = {
    "approve": "approved",
    "always": "always",
    "deny": "denied",
    "decline": "denied",
}

#: The message to the user by the reason why a turn is not run again.
_RERUN_REFUSALS: Mapping[RerunDenial, str] = {
    RerunDenial.NOT_OWNER: words.RETRY_NOT_ALLOWED,
    RerunDenial.EXPIRED: words.RETRY_EXPIRED,
    RerunDenial.SUPERSEDED: words.NEWER_MESSAGES,
}


class PressHandler:
    """Performs the actions of pressed buttons: see `ButtonAction`."""

    def __init__(self, services: PlatformServices, queued_reactions: QueuedReactions) -> None:
        self._services = services
        self._queued_reactions = queued_reactions
        self.answers = AnswerHandler(services)

    async def handle(
        self, button: str, *, actor: Actor, locale: str, name: str = "", workspace: str = ""
    ) -> CommandResult:
        """Perform the action of a pressed button; return the result for the user, with an empty text for none.

        The caller has checked that the user has access to the bot. Nothing is stored if they may not press the button,
        a rate limit is reached, or the button is out of date. The user's name is stored with their decision or answer.
        """
        say = words.messages_for(locale)
        parsed = parse_button(button)
        if parsed is None:
            return CommandResult(say(words.UNKNOWN_BUTTON))
        buttons: Sequence[Button] = ()
        user = self._services.access_policy.to_user(actor, name, workspace)
        match parsed:
            case ("approve" | "always" | "deny" | "decline") as decision, request_id, _:
                text = await self._decide(request_id, user, _VERDICTS[decision], say)
            case "attach", approval_id, _:
                text = await self._attach_arguments(approval_id, say)
            case ("option" | "page" | "form") as action, _, _:
                text = await self._handle_question(action, parsed, user, say)
            case "connect", request_id, _:
                text, buttons = await self._create_sign_in_link(request_id, user, say)
            case "disconnect", sign_in_id, _:
                text = await disconnect(self._services, sign_in_id, Person.of(user), say)
            case (
                (
                    "unschedule"
                    | "schedule_confirm"
                    | "schedule_pause"
                    | "schedule_resume"
                    | "schedule_zone"
                    | "cancel_job"
                ),
                _,
                _,
            ):
                text = await handle_schedule_press(self._services, parsed, actor, name, say)
            case other, turn_id, _:
                text = await self._change_turn(other, turn_id, actor.author, say)
        return CommandResult(text, buttons=buttons)

    async def _change_turn(self, action: TurnAction, turn_id: str, author: str, say: MessageCatalog) -> str:
        match action:
            case "stop":
                stopped = await self._services.conversations.stop_turn(turn_id, author)
                refusals = {
                    StopTurnResult.NOT_OWNER: words.STOP_NOT_ALLOWED,
                    StopTurnResult.NOT_RUNNING: words.ALREADY_ENDED,
                }
                return say(refusals[stopped]) if stopped in refusals else ""
            case "good" | "bad":
                is_given = await self._services.feedback.save_feedback(turn_id, author, action)
                return say(words.FEEDBACK_THANKS if is_given else words.ANSWER_NOT_STORED)
        requests = await self._services.human_requests.list_of_turn(turn_id) if action != "retry" else ()
        match await self._services.inbox.request_rerun(turn_id, author=author, kind=action):
            case RerunDenial() as denied:
                return say(_RERUN_REFUSALS[denied])
            case RateLimitDenial() as limited:
                return prompt_limit_message(limited, say)
            case accepted, InboxMessage() as inbound:
                if accepted is AcceptResult.WAITING:
                    self._queued_reactions.add(inbound.address)
                for request in requests:
                    self._services.request_messages.start_update(request, is_void=True)
        return ""

    async def _handle_question(self, action: QuestionAction, press: Press, user: User, say: MessageCatalog) -> str:
        match action:
            case "option":
                return await self.answers.choose(press.target_id, press.detail, user, say)
            case "page":
                return await self.answers.show_page(press.target_id, press.page, user, say)
            case "form":  # the adapters open it instead of queueing the press
                return say(words.UNKNOWN_BUTTON)

    async def _attach_arguments(self, approval_id: str, say: MessageCatalog) -> str:
        """Post the file with the arguments of an approval once more, in the background."""
        approval = await self._services.human_requests.get(approval_id)
        if approval is None:
            return say(words.ALREADY_ENDED)
        self._services.request_messages.start_update(approval)
        return ""

    async def _create_sign_in_link(
        self, request_id: str, user: User, say: MessageCatalog
    ) -> tuple[str, Sequence[Button]]:
        """Return the private answer to a press of *Connect*: a link for the person of the request, or a refusal."""
        request = await self._services.human_requests.get(request_id)
        if not isinstance(request, SignInRequest):
            return say(words.ALREADY_ENDED), ()
        if not request.may_decide(user):
            return refusal_text(request, say), ()
        flow = self._services.sign_in_flow
        if flow is None or not flow.is_on(user.platform):
            return say(words.SIGN_IN_NOT_SET_UP), ()
        await ensure_message_ids(self._services, request)
        try:
            url = await flow.create_link(request.id, user)
        except SignInLinkError:  # decided, expired or reset
            self._services.request_messages.start_update(request)
            return say(words.ALREADY_ENDED), ()
        add_temporary_secret(url)  # the platforms' libraries log their requests at DEBUG
        service = shorten_title(request.owner.label)
        text = say(words.SIGN_IN_LINK, service=service, minutes=f"{STEP_SECONDS / 60:g}")
        return text, [Button(f"{LINK_PREFIX}{request.id}", say(words.OPEN_SIGN_IN), "primary", url=url)]

    async def _decide(self, request_id: str, user: User, verdict: Verdict, say: MessageCatalog) -> str:
        """Store a decision on an approval or a sign-in, and update its message.

        A press after the decision updates the message too: the process that stored the decision may have died before
        it did so. A denial is stored over a rate limit, too.
        """
        if (shown := await self._services.human_requests.get(request_id)) is not None:
            await ensure_message_ids(self._services, shown)
        decided = await self._services.human_requests.decide(request_id, user, verdict)
        request = decided.request
        if request is None:
            return say(words.ALREADY_ENDED)
        if request.verdict is None:
            if decided.limited:
                return prompt_limit_message(decided.limited, say)
            if not (isinstance(request, Approval) and request.may_decide(user) and not request.is_readable):
                return refusal_text(request, say)
            self._services.request_messages.start_update(request)
            return say(words.ARGUMENTS_NOT_ATTACHED, name=ARGUMENTS_FILE)
        # waits: if the process dies before, another one processes the stored press again
        await self._services.request_messages.start_update(request)
        if decided.is_first:
            return say(words.DENIED_OVER_LIMIT, minutes=decided.limited.minutes) if decided.limited else ""
        return say(words.ALREADY_DECIDED)
