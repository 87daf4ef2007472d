"""Message catalogue: the bot's own messages in each of its languages.

The constants below are the English messages. They are the keys of the gettext catalogue in `locales`, like the
messages of `core.errors` and `core.models.finish_reasons`. `make words` updates the catalogue.
"""

import asyncio
import gettext
import re
from collections.abc import Awaitable
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from core.models.finish_reasons import (
    BLOCKED_NOTE,
    BROKEN_OFF_NOTE,
    CUT_OFF_NOTE,
    EMPTY_FILE_NOTE,
    FILE_TOO_LARGE_NOTE,
    UNCLEAR_NOTE,
)

#: The text of a reply without text; the same in each language.
PLACEHOLDER = "…"

# replies
NO_ANSWER = "I have no answer to this."
ONLY_FILES = "Here you are:"
SOURCES = "Sources: {links}"
STOPPED_BY_RESET = "_Stopped because the conversation was reset._"
STOPPED = "_Stopped._"
STOPPED_BY_DELETION = "_Stopped because the message was deleted._"
RESTARTING = "_Restarting. I'll continue in a moment._"
TOO_MANY_ATTEMPTS = "This answer was interrupted several times."
TOO_LONG = "This took too long, so I stopped."
CONTINUES_IN_FILE = "_The answer continues. The full text will be in a file._"
FULL_ANSWER_IN_FILE = "_The full answer is in the file answer.md._"
MESSAGE_REFUSED = "This message was refused. The answer is in the file answer.md."
FILE_NOT_ATTACHED = "I couldn't attach {name} ({size})."
TURN_ID = "(turn `{id}`)"
ELAPSED = " ({seconds} s)"
USING_TOOL = "_Using {tool}…_"
READ_MESSAGE = "_I have read your new message._"

# button labels
STOP = "Stop"
RETRY = "Retry"
REGENERATE = "Regenerate"
ANSWER_EDITED = "Answer the edited message"
GOOD_ANSWER = "Good answer"
BAD_ANSWER = "Bad answer"
APPROVE = "Approve"
ALWAYS_ALLOW = "Always allow here"
DENY = "Deny"
UNDO = "Undo"
CONFIRM = "Confirm"
PAUSE = "Pause"
RESUME = "Resume"
DELETE = "Delete"
CONNECT = "Connect"
NOT_NOW = "Not now"
DISCONNECT = "Disconnect"
OPEN_SIGN_IN = "Open the sign-in page"
CHOOSE_TIME_ZONE = "Choose your time zone"

# approvals
NEEDS_APPROVAL = "I need approval to continue."
APPROVE_TOOL = "**Approve `{tool}`?**"
CHARACTERS_HIDDEN = "_More characters hidden: {count}._"
ARGUMENTS_IN_FILE = "_The file {name} has all arguments._"
ARGUMENTS_NOT_ATTACHED = "_I couldn't attach {name} with all arguments, so this can't be approved yet._"
SECRETS_HIDDEN = "_Secrets hidden in the arguments: {count}. Deny if you expect none._"
AUTHOR_APPROVES = "_The author can approve until {until}._"
OTHERS_APPROVE = "_Anyone except the author can approve until {until}._"
ANYONE_APPROVES = "_Anyone here can approve until {until}._"
APPROVERS_APPROVE = "_The approvers can approve until {until}._"
APPROVED = "✅ Approved by {name}, {when}."
APPROVED_ALWAYS = "✅ Approved by {name}, {when}, for every call of this tool in this conversation."
DENIED = "⛔ Denied by {name}, {when}."
EXPIRED = "⛔ Expired without a decision."
APPROVAL_VOID = "⛔ Denied: the message was deleted or the conversation was reset."
UNKNOWN_USER = "somebody"
AGENT_REMOVED = "The agent that asked for this was removed, so nothing was done."

# questions
HAS_QUESTION = "I have a question."
USES_ACCOUNT = "The call may use the account of {name} at {services}."
NEEDS_SIGN_IN = "I need your sign-in at another service to continue."
QUESTION_HEADING = "**Question**"
NEEDS_ANSWER = "I need your answer to continue."
CHOOSE_ONE = "Which one do you choose?"
TOOL_WAITS = "**`{tool}` waits for an answer.**"
CHOOSE = "Choose"
MORE_OPTIONS = "More options"
PREVIOUS_OPTIONS = "Previous options"
ANSWER = "Answer"
CORRECT_ANSWER = "Correct"
CONTINUE_FORM = "Continue"
SUBMIT = "Send"
YES = "Yes"
NO = "No"
EMPTY_OPTION = "None"
YOUR_ANSWER = "Your answer"
ONE_PER_LINE = "One value per line"
AS_JSON = "A value in JSON"
ONE_OF_OPTIONS = "One of the {count} options, as text"
AUTHOR_ANSWERS = "_The author can answer until {until}._"
OTHERS_ANSWER = "_Anyone except the author can answer until {until}._"
ANYONE_ANSWERS = "_Anyone here can answer until {until}._"
DECIDERS_ANSWER = "_The approvers can answer until {until}._"
ANSWERED = "✅ Answered by {name}, {when}."
ANSWERED_BY_MESSAGE = "✅ Answered by {name} in a message, {when}."
QUESTION_EXPIRED = "⌛ Nobody answered in time. Ask again if you still need this."
QUESTION_VOID = "⛔ This question is closed: it was stopped, deleted or reset."
FORM_PROBLEM = "_The agent's form can't be shown. Write your answer as text._"
FORM_AS_JSON = "_The agent's form can't be shown. Write your answer as a JSON object._"
FORM_IS_PRIVATE = "_Secret answers are private only in the form: everybody here can read a message._"
FORM_INVALID = "Some entries are invalid. Nothing was sent yet:"
FORM_CONTINUES = "Part {done} of {count} is saved. Continue with the next part."
WHOLE_FORM = "All fields together"
ENTRY_REQUIRED = "Enter a value."
ENTRY_NOT_INTEGER = "Enter a whole number such as 1000: only digits, at most 30."
ENTRY_NOT_NUMBER = "Enter a number such as 1000.5: no commas or spaces, at most 30 digits."
ENTRY_TOO_SMALL = "Enter at least {limit}."
ENTRY_TOO_LARGE = "Enter at most {limit}."
ENTRY_TOO_SHORT = "Enter {limit} or more characters."
ENTRY_TOO_LONG = "Enter {limit} or fewer characters."
ENTRY_NOT_ABOVE = "Enter more than {limit}."
ENTRY_NOT_BELOW = "Enter less than {limit}."
ENTRY_NOT_MULTIPLE = "Enter a multiple of {limit}."
ENTRY_NOT_MATCHING = "Enter a text that matches {limit}."
ENTRY_NOT_FORMAT = "Enter a value in the format {limit}."
ENTRY_NOT_TYPE = "Enter a value of the type {limit}."
ENTRY_TOO_FEW = "Enter {limit} or more values."
ENTRY_TOO_MANY = "Enter {limit} or fewer values."
ENTRY_NOT_UNIQUE = "Enter each value only once."
ENTRY_MISSING_PARTS = "These are missing: {limit}."
ENTRY_TOO_FEW_PARTS = "Fill in {limit} or more fields."
ENTRY_TOO_MANY_PARTS = "Fill in {limit} or fewer fields."
ENTRY_NOT_FITTING = "This doesn't fit what the agent asked for."
ENTRY_UNCHECKED = "This can't be checked. Enter something shorter or simpler."
ENTRY_NOT_OPTION = "Choose one of the options."
ENTRY_NOT_JSON = "Enter valid JSON."
ENTRY_TOO_NESTED = "Enter JSON with at most {limit} levels of brackets."
ENTRY_NOT_JSON_NUMBER = "Enter JSON without NaN, Infinity and numbers that are too large."
ENTRY_NEEDS_FORM = "Use the button under the question."
ANSWER_REFUSED = "_This doesn't answer my question. {why}_"
ANSWER_NOTED = "_Noted as your answer. Other questions are still open._"

# requests to sign in, and connected accounts
CONNECT_SERVICE = "🔗 **{name}, connect {service} so that I can go on.**"
PERSON_CONNECTS = "_Only {name} gets the link to sign in, until {until}._"
CONNECTED = "✅ Connected by {name}, {when}."
DECLINED = "⛔ Declined by {name}, {when}."
SIGN_IN_EXPIRED = "⌛ Nobody signed in in time. Ask again if you still need this."
SIGN_IN_VOID = "⛔ This sign-in is closed: it was stopped, deleted or reset."
SIGN_IN_NOT_YOURS = "This is another person's sign-in. Ask me yourself, and I use your own account."
SIGN_IN_LINK = "Sign in at {service}. The link is only for you, and works once, for {minutes} min."
SIGN_IN_NOT_SET_UP = "I can't connect accounts here. Ask the operator of this bot to set it up."
YOUR_CONNECTIONS = "Your accounts that I may use for you:"
NO_CONNECTIONS = "You have connected no account. I ask you when I need one."
CONNECTED_SINCE = "since {time}"
CONNECTION_USED = "last used {time}"
CONNECTION_LOST = "_Not accepted anymore: I ask you again when I need it._"
CONNECTION_UNKNOWN = "This account is not connected anymore."
DISCONNECTED = "Disconnected: {service}. I can't use your account there anymore."
CONNECTIONS_HELP = "show or disconnect your accounts that I use, visible only to you"

# after a button press
AUTHOR_MUST_ANSWER = "Only the author can answer this question."
OTHERS_MUST_ANSWER = "Anyone except the author can answer this question."
DECIDERS_MUST_ANSWER = "Only the approvers can answer this question."
ALREADY_ANSWERED = "This was already answered."
AUTHOR_MUST_APPROVE = "Only the author can approve or deny this."
OTHERS_MUST_APPROVE = "Anyone except the author can approve or deny this."
APPROVERS_MUST_APPROVE = "Only the approvers can approve or deny this."
ALREADY_DECIDED = "This was already decided."
RETRY_NOT_ALLOWED = "Only the author can retry this."
RETRY_EXPIRED = "This can't be retried anymore."
NEWER_MESSAGES = "There are newer messages, so this can't be answered again. Send a new message instead."
RESET_SUPERSEDED = "There are newer messages, so nothing was reset. Send `reset` again if you still want to."
STOP_NOT_ALLOWED = "Only the author can stop this."
ALREADY_ENDED = "This has already ended."
FEEDBACK_THANKS = "Thanks for your feedback."
ANSWER_NOT_STORED = "This answer is no longer stored."
UNKNOWN_BUTTON = "This button doesn't work here."

# messages beside a reply
CANNOT_WRITE = "I can't write in {place}. Ask a server admin for permission, then try again."
THREAD_LOCKED = "{place} is locked, so I can't answer there."
ANSWER_READY = "Your answer is ready."

# turns that no message begins
SCHEDULE_HEADER = "⏰ {title}"
HOOK_HEADER = "🔔 {title}"
JOB_DONE = "✅ `{title}` is done"
JOB_FAILED = "⚠️ `{title}` failed"
JOB_INTERRUPTED = "⚠️ `{title}` was interrupted"
LATE = "_This is late: it was due {time}._"

# schedules
SCHEDULED = "⏰ {title}: {times}"
SCHEDULED_DIRECT = "⏰ {title} (direct message): {times}"
NEEDS_CONFIRMATION = "_Not active until it is confirmed._"
NEEDS_TIME_ZONE = "_Not active until you choose your time zone._"
TIME_ZONE_CHOSEN = "Your time zone is {zone} now."
SCHEDULE_NOT_YOURS = "Only the person whose schedule this is can change it."
SCHEDULE_PAST = "Its time has passed. Ask me to schedule it again."
TOO_MANY_SCHEDULES = "You have too many schedules. Delete one first."
SCHEDULE_DELETED = "Deleted: {title}"
SCHEDULE_NOW_PAUSED = "Paused: {title}"
YOUR_SCHEDULES = "Your schedules and jobs:"
NO_SCHEDULES = "You have no schedules and no jobs. Ask me to remind you of something."
JOB_RUNNING = "⏳ `{call}`, since {time}"
JOB_CANCELLED = "Cancelled."
SCHEDULE_ELSEWHERE = "{line} (in another conversation)"
SCHEDULE_PAUSED = "_Paused._"
SCHEDULE_HELP = "show, pause or delete your schedules, visible only to you"

# results of commands
PLACE_NOT_ALLOWED = "I'm not set up to answer here."
SCHEDULES_ENDED = "Schedules deleted with it: {count}."
RESET_DONE = "The conversation was reset. I no longer remember it."
NOTHING_TO_RESET = "You have no conversation with me here."
STOPPING = "Stopping."
NOTHING_TO_STOP = "You have no running answer here."
CURRENT_MODEL = "The model here is `{model}`."
SELECTABLE_MODELS = "Choose another one with `model NAME`: {models}"
MODEL_CHANGED = "The model here is now `{model}`."
UNKNOWN_MODEL = "There is no model `{model}`. Choose one of: {models}"
NO_OTHER_MODEL = "There is no other model to choose."
CURRENT_AGENT = "The agent here is `{agent}`."
CHOSEN_AGENT_REMOVED = "`{agent}` was chosen here before but was removed."
SELECTABLE_AGENTS = "Choose another one with `agent NAME`:"
AGENT_CHANGED = "`{agent}` answers from the next message on. Send `reset` to start without the earlier messages."
UNKNOWN_AGENT = "There is no agent `{agent}` here. Choose one of:"
NO_OTHER_AGENT = "There is no other agent to choose here."
EXPORTED = "Here is this conversation."
UNKNOWN_EXPORT_FORMAT = "Choose a format: `md` to read it, or `json` for programs."
MUTED = "Muted. I'll answer only when someone mentions me, until someone sends `listen`."
CANNOT_MUTE_DM = "I can't be muted in direct messages. Use `mute` in a channel or thread."
UNMUTED = "Unmuted. I'll answer follow-up messages without a mention again."
HELP_COMMANDS = "Mention me in a channel or send me a direct message. Commands, as a message to me or with a slash:"
HELP_MENU = "In a message's menu: {entries}"
NO_WRITE_PERMISSION = "You don't have permission to write here."
NO_READABLE_TEXT = "This message has no text that I can read."
STATUS_AGENT = "Agent: `{agent}`"
STATUS_MODEL = "Model: `{model}`"
STATUS_SINCE = "Since: {when} (UTC)"
STATUS_MESSAGES = "Messages: {count}"
STATUS_HISTORY = "History: {tokens} of at most {budget} tokens"
STATUS_USED = "Used: {tokens} tokens"
STATUS_WAITING = "Waiting: {count}"
STATUS_ANSWERING = "Answering now."
STATUS_IDLE = "Not answering anything now."

# results of commands and shortcuts in Slack
CHOOSE_RESET = "Choose a conversation to reset."
CHOOSE_EXPORT = "Choose a conversation to export."
SENT_AS_DM = "I sent it to you as a direct message."
SENT_IN_THREAD = "The file is in the conversation's thread."
YOUR_QUESTION = "Your question"
ASK = "Ask"
CANCEL = "Cancel"
NOT_A_MEMBER = "I can't write there. Invite me to the channel, then try again."

# refusals
USER_NOT_ALLOWED = "You don't have access to this bot."
ACCESS_REVOKED = "You no longer have access to this bot here."
MESSAGE_LIMIT_REACHED = "You've reached the message limit. Try again in {minutes} min."
DENIED_OVER_LIMIT = "Denied. You've reached the message limit, so I may not go on. Ask again in {minutes} min."
COMMAND_LIMIT_REACHED = "You've reached the command limit. Try again in {minutes} min."

# descriptions of commands
RESET_HELP = "reset this conversation and delete its history"
STOP_HELP = "stop my current answer to you"
INFO_HELP = "show the model, the history and the tokens used in this conversation"
AGENT_HELP = "show or choose the agent of this conversation"
MODEL_HELP = "show or choose the model of this conversation"
EXPORT_HELP = "export this conversation as a file"
MUTE_HELP = "answer only mentions in this conversation"
LISTEN_HELP = "answer follow-up messages again"
HELP_HELP = "show this help"
AGENT_OPTION = "the agent to choose"
MODEL_OPTION = "the model to choose"
EXPORT_OPTION = "md to read, json for programs"
ASK_HELP = "ask me something"
ASK_OPTION = "the question"
ASK_ABOUT = "Ask about this"
NAME_ARGUMENT, TURN_ARGUMENT, QUESTION_ARGUMENT = "NAME", "TURN", "QUESTION"
ABOUT_THIS = "What do you think about this message?"

# spending
LIMIT_RESETS = "I can answer again from {day}, 00:00 (UTC). Before that, {who} can raise the limit."
MESSAGES_LEFT_OUT = "_Left out: messages of {names}, who reached their daily spending limit._"
LIMIT_OPERATOR = "the operator of this bot"
LIMIT_ADMINS = "an admin"
ANSWERED_BY_FALLBACK = "_Answered by `{model}` because `{other}` failed._"
USAGE_HELP = "show your spending, visible only to you"
USAGE_PRIVATELY = "Use `{command}`: only you can see the answer."
USAGE_TITLE = "Spending of finished answers:"
USAGE_YOURS = "You"
USAGE_HERE = "Here"
USAGE_ALL = "Total"
USAGE_SPENT = "{day} today ({day_tokens} tokens), {month} this month ({month_tokens} tokens)"
USAGE_CACHE = "prompt cache this month: {read} tokens read, {written} written"
USAGE_MORE = "and {count} more"
USAGE_UNPRICED = "{tokens} of these tokens have no price and are not in the cost."

_LOCALES = Path(__file__).with_name("locales")
_DOMAIN = "parley"
_ENGLISH = "en"

#: Seconds that a message waits for the locale of its reader.
LOCALE_SECONDS = 0.5

#: The supported languages.
LANGUAGES = (_ENGLISH, *sorted(path.name for path in _LOCALES.iterdir() if path.is_dir()))


class MessageCatalog:
    """The bot's own messages in one language.

    A catalogue is called with the English message as key, and the values of its placeholders. Without a translation,
    the result is the English message.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        languages = [] if language == _ENGLISH else [language]
        self._translations = gettext.translation(_DOMAIN, _LOCALES, languages, fallback=language == _ENGLISH)

    def __call__(self, sentence: str, **facts: object) -> str:
        """Return a message with its placeholders filled in; without any `facts` they stay as they are."""
        text = self._translations.gettext(sentence)
        return text.format(**facts) if facts else text

    def format_error(self, sentence: str) -> str:
        """Return the translation of an English message, after a warning sign."""
        return f"⚠️ {self(sentence)}"

    def format_error_with_id(self, sentence: str, turn_id: str) -> str:
        return f"{self.format_error(sentence)} {self(TURN_ID, id=turn_id)}"

    def format_elapsed(self, seconds: int | str) -> str:
        return self(ELAPSED, seconds=seconds)

    def format_tool(self, tool: str) -> str:
        return self(USING_TOOL, tool=tool.replace("_", " "))

    def translate_ending(self, text: str) -> str:
        """Return an answer in which the core's English notes are translated."""
        notes = (CUT_OFF_NOTE, BLOCKED_NOTE, BROKEN_OFF_NOTE, UNCLEAR_NOTE, FILE_TOO_LARGE_NOTE, EMPTY_FILE_NOTE)
        for sentence in notes:
            text = text.replace(sentence, self(sentence))
        return text


_default = ContextVar("language", default=_ENGLISH)


def set_default(language: str) -> None:
    """Set the language for users whose locale is unknown, in the current `contextvars` context."""
    _default.set(language)


def messages_for(locale: str) -> MessageCatalog:
    """Return the messages for a platform's locale (`ko-KR`), or else in the default language."""
    return _load_catalog(find_language(locale) or _default.get())


async def resolve_locale(locale: Awaitable[str]) -> str:
    """Return a user's locale; after `LOCALE_SECONDS`, cancel the awaitable and return an empty text."""
    try:
        async with asyncio.timeout(LOCALE_SECONDS):
            return await locale
    except TimeoutError:
        return ""


def find_language(locale: str) -> str:
    """Return the first supported language of a locale or a list of them (`ko:en`), or an empty text."""
    names = (re.split("[-_.@]", name)[0].lower() for name in locale.split(":"))
    return next((name for name in names if name in LANGUAGES), "")


@cache
def _load_catalog(language: str) -> MessageCatalog:
    return MessageCatalog(language)


ENGLISH = _load_catalog(_ENGLISH)

# pages of sign-ins
CONNECT_SERVICE_TITLE = "Connect {service}"
CONNECT_SERVICE_USE = "{agent} will use {service} as you, {name}, when you ask it to."
CONNECT_SERVICE_CHECK = "First, {platform} confirms that you are {name}. If you are not, close this page."
SERVICE_CONNECTED = "{service} is connected"
CLOSE_PAGE = "You can close this page and go back to {platform}."
SERVICE_NOT_CONNECTED = "Not connected"
ALREADY_CONNECTED = "Already connected"
CREDENTIAL_USE = "It is stored encrypted, and only used when you ask for something."
CREDENTIAL_USER_NAME = "User name"
CREDENTIAL_PASSWORD = "Password"  # noqa: S105 - a label
CREDENTIAL_API_KEY = "API key"
CREDENTIAL_TOKEN = "Token"  # noqa: S105 - a label
FORM_UNREADABLE = "The form is too long, or can't be read."
PAGE_UNAVAILABLE = "This can't be done right now. Please try again in a moment."

# turn reports
WHY_THIS = "Why this answer?"
WHY_HELP = "show how an answer was made, visible only to you"
WHY_OPTION = "the id of a turn; default: your latest answer here"
WHY_PRIVATELY = "Use `{command}` or the message's menu: only you can see the answer."
WHY_NOT_ALLOWED = "Only the person who asked can see this, and only while it is stored."
WHY_TITLE = "**How this answer was made** (turn `{id}`)"
WHY_RUNNING = "It is still running."
WHY_FAILED = "It failed. The operator can look up the cause by this id."
WHY_STOPPED = "It was stopped."
WHY_NOT_STORED = "No report of it is stored."
WHY_RETRY = "This is a retry that continued the earlier attempt."
WHY_REGENERATE = "It was regenerated."
WHY_EDITED = "It answers the edited message."
WHY_AFTER_DECISION = "It continues after a decision or an answer."
WHY_MERGED = "It answers {count} messages at once."
WHY_ATTEMPTS = "Attempts: {count}, because of interruptions."
WHY_TOKENS = "Tokens: {read} input, {written} output"
WHY_CACHE = "Prompt cache: {read} tokens read, {written} written"
WHY_MODEL = "Model: `{model}`{took}; calls: {count}; tokens: {read} input, {written} output"
WHY_FALLBACK_MODEL = (
    "Model: `{model}` instead of `{other}`{took}; calls: {count}; tokens: {read} input, {written} output"
)
WHY_MODEL_FAILED = "Model: `{model}` failed{took}; calls: {count}"
WHY_MODEL_SUMMARY = "Summarized by `{model}`{took}; calls: {count}; tokens: {read} input, {written} output"
WHY_COST = "Cost: {cost}"
WHY_UNPRICED = "{tokens} tokens have no price and are not in the cost."
WHY_TOOL = "Tool `{tool}`{took}: {arguments}"
WHY_TOOL_FAILED = "Tool `{tool}` failed{took}: {arguments}; error: {error}"
WHY_TOOL_WAITS = "Tool `{tool}` waits for a person: {arguments}"
WHY_TOOL_RUNNING = "Tool `{tool}` is running: {arguments}"
WHY_MORE_TOOLS = "{count} more tool calls"
WHY_HISTORY = "History messages: {count}, {tokens} tokens"
WHY_SUMMARY = "Older messages were read as a summary."
WHY_CUT_TOKENS = "Older messages left out: {count}, because of the limit of {budget} tokens"
WHY_CUT_TURNS = "Older messages left out: {count}, because of the limit of turns: {turns}"
WHY_CONTEXT = "Messages of other people: {count}, {tokens} tokens"
WHY_CONTEXT_CUT = "Context messages left out: {count}, because of the token limit"
WHY_FILE = "File `{name}`: read"
WHY_FILE_SKIPPED = "File `{name}`: not read; {why}"
WHY_UNDECIDED = "`{tool}`: waits for a decision."
WHY_TIME = "Time: first text after {first} s, complete after {all} s"
WHY_TOTAL_TIME = "Time: {all} s"
WHY_WAITED = "It waited {waited} s before it started."
