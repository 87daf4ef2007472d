"""Message catalogue: the bot's own messages in each of its languages.

The constants below are the English messages and the keys of the catalogue in `locales`, like the messages of
`core.errors` and `core.models.finish_reasons`. `make words` updates the catalogue.
"""

import asyncio
import gettext
import re
from collections.abc import Awaitable
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from core.models.finish_reasons import CUT_OFF, WITHHELD

#: The text of a reply without text; the same in each language.
PLACEHOLDER = "…"

# in a reply
NO_ANSWER = "I have no answer to that."
RESET_STOPPED = "_Stopped: this conversation was started over._"
STOPPED = "_Stopped._"
WITHDRAWN = "_The question was deleted._"
RESTARTING = "_I am being restarted, and go on with this in a moment._"
TRIED = "I was interrupted several times while I answered this."
TOO_LONG = "This took longer than I may take."
GOES_ON = "_The answer goes on; all of it will be in a file._"
IN_FILE = "_The whole answer is in the file answer.md._"
NOT_HAD = "My words were refused here. They are in the file answer.md."
NOT_ATTACHED = "I could not attach the file {name} ({size}) here."
TURN = "(turn `{id}`)"
WAITED = " ({seconds} s)"
USING = "_Using {tool}…_"

# on a button
STOP = "Stop"
RETRY = "Retry"
REGENERATE = "Regenerate"
REVISE = "Answer the edited question"
GOOD = "Good answer"
BAD = "Bad answer"
APPROVE = "Approve"
ALWAYS = "Always for this tool here"
DENY = "Deny"

# of a call that waits for a decision
ASKS = "I need a decision before I go on."
MAY_I = "**May I use `{tool}`?**"
NOT_SHOWN = "_{count} more characters are not shown._"
SECRETS_HIDDEN = "_Hidden secrets in these arguments: {count}. Deny the call if you expect none._"
ASKER_DECIDES = "_Whoever asked decides, until {until} (UTC)._"
OTHERS_DECIDE = "_Somebody else than who asked decides, until {until} (UTC)._"
ALL_DECIDE = "_Anybody here can decide, until {until} (UTC)._"
NAMED_DECIDE = "_Those who are named for it decide, until {until} (UTC)._"
APPROVED = "✅ Approved by {name}, {when} (UTC)."
APPROVED_ALWAYS = "✅ Approved by {name}, {when} (UTC), for all calls of this tool in this conversation."
DENIED = "⛔ Denied by {name}, {when} (UTC)."
EXPIRED = "⛔ Denied: nobody decided in time."
VOID = "⛔ Denied: what led to it is not there any more."
SOMEBODY = "somebody"
ASKER_GONE = "The agent that asked for this is not here any more, so nothing was done."

# to who has pressed one
NOT_YOURS_TO_DECIDE = "You are not one of those who can decide this."
DECIDED = "This has been decided already."
NOT_YOURS = "Only the person who asked can have this tried again."
OVER = "This cannot be tried again any more."
NEWER = "More has been said since, so this is not answered again. Ask anew instead."
NOT_RESET = "More has been said since, so I have not started over. Say `reset` once more if you still want me to."
NOT_YOURS_TO_STOP = "Only the person who asked can stop this."
ENDED = "This has ended already."
NOTED = "Thank you, that is noted."
FORGOTTEN = "I do not remember this answer any more."
NOT_MINE = "I do not know this button."

# beside a reply
FORBIDDEN = "I may not write in {place}. Ask somebody who runs the server to let me, then ask me again."
LOCKED = "{place} is locked, so I cannot answer there."
READY = "The answer is there."

# to a command
NOT_HERE = "I am not set up to answer here."
RESET_DONE = "Started over: I remember nothing of this conversation."
NOTHING_TO_RESET = "There is no conversation of yours here that I remember."
STOPPING = "I stop."
NOTHING_RUNS = "There is nothing of yours here that I could stop."
MODEL_IS = "I answer with `{model}` here."
MODELS_ARE = "You can choose one of these with `model NAME`: {models}"
MODEL_CHOSEN = "From now on I answer with `{model}` here."
NO_SUCH_MODEL = "I have no model `{model}`. These can be chosen: {models}"
ONE_MODEL = "No other model can be chosen."
AGENT_IS = "The agent `{agent}` answers here."
AGENT_GONE = "`{agent}` was chosen here before, and cannot be chosen any more."
AGENTS_ARE = "You can choose one of these with `agent NAME`:"
AGENT_CHOSEN = (
    "From the next question on, `{agent}` answers here. It reads what was said before as another agent's words; say "
    "`reset` to begin anew."
)
NO_SUCH_AGENT = "No agent `{agent}` can be chosen here. These can:"
ONE_AGENT = "No other agent can be chosen here."
EXPORTED = "This is what was said in this conversation."
NO_SUCH_FORM = "I can give it as `md`, to be read, or as `json`, for programs."
MUTED = "I keep quiet here until somebody calls me by name or says `listen` to me."
NOT_MUTED = (
    "Here all that is said is for me, so I go on answering it. Where people talk with each other, I can keep quiet."
)
LISTENING = "I listen again: what follows on my answers is for me, even if nobody calls me by name."
HELPS = (
    "Call me by name, or write to me alone, and I answer. I know these commands, said to me or typed with the slash:"
)
HELPS_MENU = "In the menu of a message: {entries}"
NOT_FOR_YOU = "You may not write here, so I do nothing for you here."
NOTHING_TO_READ = "There is nothing in this message that I can read."
STATUS_AGENT = "Agent: `{agent}`"
STATUS_MODEL = "Model: `{model}`"
STATUS_SINCE = "Since: {when} (UTC)"
STATUS_MESSAGES = "Messages: {count}"
STATUS_HISTORY = "Remembered: {tokens} of at most {budget} tokens"
STATUS_USED = "Used so far: {tokens} tokens"
STATUS_WAITING = "Waiting: {count}"
STATUS_RUNS = "I am answering right now."
STATUS_RESTS = "I am not answering anything right now."

# to who gives a command or uses a shortcut in Slack
WHICH_TO_RESET = "Which conversation shall I forget?"
WHICH_TO_EXPORT = "Which conversation do you want to have?"
SENT_DIRECTLY = "I have sent it to you directly."
SENT_IN_THREAD = "The file is in the thread of that conversation."
YOUR_QUESTION = "Your question"
ASK = "Ask"
CANCEL = "Cancel"
NOT_A_MEMBER = "I cannot write there. Invite me to that channel, and ask again."

# to who is not answered
NOT_YOU = "I am not set up to answer you."
NOT_YOU_NOW = "I am not set up to answer this any more."
TOO_OFTEN = "That is more than I may answer for now. Ask me again in {minutes} min."
TOO_MANY_COMMANDS = "That was too many commands. Try again in {minutes} min."

# what the commands do
RESET_DOES = "start over: I forget what was said in this conversation"
STOP_DOES = "stop the answer that I am giving you"
STATUS_DOES = "tell the model, and what I remember and have used in this conversation"
AGENT_DOES = "tell which agent answers in this conversation, or choose another one"
MODEL_DOES = "tell which model answers in this conversation, or choose another one"
EXPORT_DOES = "give what was said in this conversation as a file"
MUTE_DOES = "keep quiet in this conversation unless somebody calls me by name"
LISTEN_DOES = "listen again to what follows on my answers"
HELP_DOES = "tell what I can do"
AGENT_NAME = "the agent to be chosen"
MODEL_NAME = "the model to be chosen"
EXPORT_FORM = "to be read (md), or for programs (json)"
ASK_DOES = "ask me something"
ASK_WHAT = "the question"
ASK_ABOUT = "Ask about this"
A_NAME, A_TURN, A_QUESTION = "NAME", "TURN", "QUESTION"
ABOUT_THIS = "What do you say to that message?"

# on what is spent
CAP_UNTIL = "I can go on from {day}, 00:00 (UTC); before that, {who} can allow more."
CAP_OPERATOR = "whoever runs me"
CAP_ADMINS = "one of my admins"
STOOD_IN = "_`{model}` has answered in the place of `{other}`, which could not._"
USAGE_DOES = "tell you alone what you have spent, and what was spent here"
USAGE_PRIVATELY = "That is for you alone: use `/usage`."
USAGE_IS = "What the models have cost, as far as answers have come to their end:"
USAGE_YOURS = "You"
USAGE_HERE = "Here"
USAGE_ALL = "In all"
USAGE_SPENT = "{day} today ({day_tokens} tokens), {month} this month ({month_tokens} tokens)"
USAGE_CACHE = "prompt cache this month: {read} tokens read, {written} written"
USAGE_MORE = "and {count} more"
USAGE_UNPRICED = "Of these, {tokens} tokens have no price that I know, and are not in the cost."

_LOCALES = Path(__file__).with_name("locales")
_DOMAIN = "parley"
_ENGLISH = "en"

#: Seconds that a message waits for the locale of its reader.
LOCALE_SECONDS = 0.5

#: The supported languages.
LANGUAGES = (_ENGLISH, *sorted(path.name for path in _LOCALES.iterdir() if path.is_dir()))


class MessageCatalog:
    """Messages of one language; a call translates a message and fills in its placeholders."""

    def __init__(self, language: str) -> None:
        self.language = language
        languages = [] if language == _ENGLISH else [language]
        self._translations = gettext.translation(_DOMAIN, _LOCALES, languages, fallback=language == _ENGLISH)

    def __call__(self, sentence: str, **facts: object) -> str:
        said = self._translations.gettext(sentence)
        return said.format(**facts) if facts else said

    def format_error(self, sentence: str) -> str:
        return f"⚠️ {self(sentence)}"

    def format_error_with_id(self, sentence: str, turn_id: str) -> str:
        """Return an error message with the id by which an operator finds the cause."""
        return f"{self.format_error(sentence)} {self(TURN, id=turn_id)}"

    def format_elapsed(self, seconds: int | str) -> str:
        return self(WAITED, seconds=seconds)

    def format_tool(self, tool: str) -> str:
        return self(USING, tool=tool.replace("_", " "))

    def translate_ending(self, text: str) -> str:
        """Return an unfinished answer with its note translated."""
        for sentence in (CUT_OFF, WITHHELD):
            text = text.replace(sentence, self(sentence))
        return text


_default = ContextVar("language", default=_ENGLISH)


def set_default(language: str) -> None:
    """Set the language for users whose locale is not known, one of `LANGUAGES`."""
    _default.set(language)


def messages_for(locale: str) -> MessageCatalog:
    """Return the messages of a language.

    Args:
        locale: a user's locale as a platform names it (`ko`, `ko-KR`, `ko_KR.UTF-8`); empty if it is not known.
    """
    return _load_catalog(find_language(locale) or _default.get())


async def resolve_locale(locale: Awaitable[str]) -> str:
    """Return a locale that is looked up; empty if that takes longer than `LOCALE_SECONDS`."""
    try:
        async with asyncio.timeout(LOCALE_SECONDS):
            return await locale
    except TimeoutError:
        return ""


def find_language(locale: str) -> str:
    """Return the first supported language of a locale or a list of them (`ko:en`); empty if none is."""
    names = (re.split("[-_.@]", name)[0].lower() for name in locale.split(":"))
    return next((name for name in names if name in LANGUAGES), "")


@cache
def _load_catalog(language: str) -> MessageCatalog:
    return MessageCatalog(language)


ENGLISH = _load_catalog(_ENGLISH)

# of what an answer was made of, to who asked for it
WHY = "Why?"
WHY_THIS = "Why this answer?"
WHY_DOES = "tell you alone what an answer of mine was made of"
WHY_TURN = "the id of a turn; without one, your latest answer here"
WHY_PRIVATELY = "That is for you alone: use `/why`, or the menu of the message."
WHY_NOT_YOURS = "I can tell you nothing about this: only who asked can know, and for as long as I remember."
WHY_TITLE = "**What this answer was made of** (turn `{id}`)"
WHY_RUNS = "I am at it still."
WHY_FAILED = "It failed. Whoever runs me finds the cause under this id."
WHY_STOPPED = "It was stopped."
WHY_LOST = "What it was made of is not known any more."
WHY_RETRY = "It was tried again, and went on with what had been done before."
WHY_REGENERATE = "It was answered anew."
WHY_REVISE = "It was answered anew, as the question was edited."
WHY_DECIDED = "It goes on with what was decided."
WHY_SEVERAL = "It answers {count} messages at once."
WHY_ATTEMPTS = "It was begun {count} times, since I was interrupted."
WHY_TOKENS = "Tokens: {read} read, {written} written"
WHY_CACHE = "Prompt cache: {read} tokens read, {written} written"
WHY_MODEL = "Model: `{model}`{took}; calls: {count}; tokens: {read} read, {written} written"
WHY_MODEL_INSTEAD = (
    "Model: `{model}`, in place of `{other}`{took}; calls: {count}; tokens: {read} read, {written} written"
)
WHY_MODEL_FAILED = "Model: `{model}` has failed{took}; calls: {count}"
WHY_MODEL_SUMMARY = "Summed up afterwards by `{model}`{took}; calls: {count}; tokens: {read} read, {written} written"
WHY_COST = "Cost: {cost}"
WHY_UNPRICED = "No price is known for {tokens} tokens; they are not in the cost."
WHY_TOOL = "Tool `{tool}`{took}: {arguments}"
WHY_TOOL_FAILED = "Tool `{tool}` has failed{took}: {arguments}; it said: {error}"
WHY_TOOL_ASKS = "Tool `{tool}` needs a decision: {arguments}"
WHY_TOOL_OPEN = "Tool `{tool}` has not ended: {arguments}"
WHY_TOOLS_MORE = "{count} more calls of tools"
WHY_HISTORY = "Messages of this conversation: {count}; tokens: {tokens}"
WHY_SUMMARY = "What was said before that was read as a summary."
WHY_CUT_TOKENS = "Older messages left out: {count}, for there is room for {budget} tokens"
WHY_CUT_TURNS = "Older messages left out: {count}. The model reads the newest {turns} questions with their answers."
WHY_OTHERS = "Messages of others: {count}; tokens: {tokens}"
WHY_OTHERS_CUT = "Messages of others left out: {count}, for want of room"
WHY_FILE = "File `{name}`: read"
WHY_FILE_NOT = "File `{name}`: not read; {why}"
WHY_WAITS = "`{tool}`: nobody has decided yet."
WHY_TIME = "Time: the first word after {first} s, all after {all} s"
WHY_TIME_ALL = "Time: {all} s"
WHY_WAITED = "Before that it had waited for {waited} s."
