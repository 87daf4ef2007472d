"""Answers to an agent's questions: chosen options and submitted forms."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from channels.commands.handlers import prompt_limit_message
from channels.commands.services import PlatformServices
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.requests.approval_message import refusal_text
from channels.requests.question_message import entry_error_text
from core.errors import SurfaceError
from core.messages.identity import User
from core.tools.human_requests import HumanRequest, Question
from core.tools.question_form import OPTION_PREFIX, Entries, EntryError, validate_form


@dataclass(frozen=True, slots=True)
class FormResult:
    """Result of a submitted page of a question's form.

    Attributes:
        question_id: the id of the question whose form the user must open again; empty if the question is answered, or
            cannot be answered by this user.
        page: the page of the form to open, from 0: one with wrong entries, or the next one.
        is_correction: whether entries of `page` are missing or invalid.
    """

    text: str = ""
    question_id: str = ""
    page: int = 0
    is_correction: bool = False


async def ensure_message_ids(services: PlatformServices, request: HumanRequest) -> None:
    """Look up and store the message ids of an open request if none is stored.

    The worker that posted the message may have died before it stored them. The message must be found before the
    decision on the request: by its buttons, which the decision removes. The reply after the decision refers to it.
    The message is also edited to the current state of the request, or posted if it is not found. A `SurfaceError` is
    ignored.
    """
    if request.verdict is None and not request.message_ids:
        with suppress(SurfaceError):  # the decision counts, wherever the reply is shown
            await services.request_messages.update(request)


class AnswerHandler:
    """Stores users' answers to an agent's questions.

    The answer to the last open question of a turn continues the agent's run.
    """

    def __init__(self, services: PlatformServices) -> None:
        self._services = services

    async def find_open(self, id_: str, user: User, say: MessageCatalog) -> Question | str:
        """Return a question that is open and that a user may answer, else the text to show them.

        If the question was answered before, its message is updated in the background.
        """
        request = await self._services.human_requests.get(id_)
        if not isinstance(request, Question):
            return say(words.ALREADY_ENDED)
        if request.verdict is not None:
            self._services.request_messages.start_update(request)
            return say(words.ALREADY_ANSWERED)
        return request if request.may_decide(user) else refusal_text(request, say)

    async def choose(self, id_: str, position: str, user: User, say: MessageCatalog) -> str:
        """Store the option at an index (as text) as the answer; return a refusal, else empty."""
        question = await self.find_open(id_, user, say)
        if isinstance(question, str):
            return question
        choice = question.form.choice
        if choice is None:
            return say(words.UNKNOWN_BUTTON)
        value, errors = validate_form(question.form, {choice.name: f"{OPTION_PREFIX}{position}"})
        for error in errors.values():
            return say(words.UNKNOWN_BUTTON) if error.fault == "option" else entry_error_text(error, say)
        text, _ = await self._answer(question, user, value, say)
        return text

    async def show_page(self, id_: str, page: int, user: User, say: MessageCatalog) -> str:
        """Show another page of options in the background; return a refusal, else empty."""
        question = await self.find_open(id_, user, say)
        if isinstance(question, str):
            return question
        self._services.request_messages.start_update(question, page=page)
        return ""

    def check(self, question: Question, positions: Entries, say: MessageCatalog) -> dict[str, str]:
        """Check the entries of all pages of a form, without storing them.

        Entries and returned messages are by the index of the field (as text). A required field without an entry is
        invalid. An error of the whole form is that of the first field.
        """
        _, errors = validate_form(question.form, _by_name(question, positions))
        names: dict[str | None, int] = {field.name: i for i, field in reversed([*enumerate(question.form.fields)])}
        return {str(names.get(name, 0)): entry_error_text(error, say) for name, error in errors.items()}

    async def submit(
        self, id_: str, positions: Entries, user: User, say: MessageCatalog, *, page: int = 0, page_size: int = 0
    ) -> FormResult:
        """Store the entries of a form page; the last page answers the question.

        Until the question is answered, valid and invalid entries are stored as the user's draft, so that they can
        correct them.

        Args:
            positions: the entries by the index of the field (as text).
            page_size: the fields on a page; 0 if the form has one page.
        """
        question = await self.find_open(id_, user, say)
        if isinstance(question, str):
            return FormResult(question)
        known = {**question.drafts.get(user.id, {}), **_by_name(question, positions)}
        size = page_size or len(question.form.fields)
        fields = question.form.fields[page * size : (page + 1) * size]
        value, errors = validate_form(question.form, known)
        wrong_entries: dict[str | None, EntryError] = {
            field.name: errors[field.name] for field in fields if field.name in errors
        }
        has_more = (page + 1) * size < len(question.form.fields)
        if not wrong_entries and not has_more and errors:  # an earlier page is missing, or the whole form is wrong
            first = next((i for i, field in enumerate(question.form.fields) if field.name in errors), None)
            page = page if first is None else first // size
            name = None if first is None else question.form.fields[first].name
            wrong_entries = {name: errors[name]}
        if wrong_entries:
            await self._services.human_requests.save_draft(question, user.id, known)
            return FormResult(self._describe_errors(wrong_entries.values(), say), id_, page, is_correction=True)
        if has_more:
            await self._services.human_requests.save_draft(question, user.id, known)
            done = page + 1
            count = -(-len(question.form.fields) // size)
            return FormResult(say(words.FORM_CONTINUES, done=done, count=count), id_, page + 1)
        text, is_stored = await self._answer(question, user, value, say)
        if not is_stored:  # the entries stay, for when there is room
            await self._services.human_requests.save_draft(question, user.id, known)
        return FormResult(text) if is_stored else FormResult(text, id_, page)

    def _describe_errors(self, errors: Collection[EntryError], say: MessageCatalog) -> str:
        lines = []
        for error in errors:
            label = say(words.WHOLE_FORM) if error.field is None else error.field.label or say(words.YOUR_ANSWER)
            lines.append(f"- {label}: {entry_error_text(error, say)}")
        return "\n".join([say(words.FORM_INVALID), *lines])

    async def _answer(self, question: Question, user: User, value: object, say: MessageCatalog) -> tuple[str, bool]:
        """Store an answer; return the text for the user, and False if a rate limit leaves the question open."""
        await ensure_message_ids(self._services, question)
        decided = await self._services.human_requests.answer(question.id, user, value)
        if decided.request is None:
            return say(words.ALREADY_ENDED), True
        if decided.limited is not None:
            return prompt_limit_message(decided.limited, say), False
        if decided.request.verdict is None:
            return refusal_text(decided.request, say), True
        # waits: if the process dies before, another one processes the stored interaction again
        await self._services.request_messages.start_update(decided.request)
        if decided.is_first:
            return say(words.QUESTION_EXPIRED) if decided.request.verdict == "expired" else "", True
        return say(words.ALREADY_ANSWERED), True


def _by_name(question: Question, positions: Entries) -> Entries:
    return {field.name: positions[str(i)] for i, field in enumerate(question.form.fields) if str(i) in positions}
