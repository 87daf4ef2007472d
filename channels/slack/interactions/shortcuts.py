"""The shortcuts in the menu of a message.

Slack: docs.slack.dev/interactivity/implementing-shortcuts and docs.slack.dev/surfaces/modals.
"""

import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from channels.commands.handlers import Ways
from channels.i18n import messages as words
from channels.i18n.messages import Words
from channels.intake.context import about
from channels.intake.handler import Call, Intake, too_often
from channels.rate_limits.caller import RefusedError
from channels.slack.access import Seen
from channels.slack.events.content import said
from channels.slack.events.mentions import Names
from channels.slack.events.parser import attachment, name_of
from channels.slack.interactions.commands import COMMANDS, asking
from channels.slack.interactions.responses import Doer, Private
from channels.slack.replies.surface import SlackSurface
from channels.slack.session_ids import NAME, event_key, session_id
from channels.slack.settings import Direct
from channels.slack.text import escaped, inert, titled, to_words
from core.errors import StoreError, SurfaceError
from core.identity import BOT
from core.inbox_message import Attachment, Inbound, storable
from core.secret_redaction import traced

log = logging.getLogger(__name__)

ASK, WHY, RESET = "ask", "why", "reset"

#: What people read in the menu, by what a use of it is known by.
SHORTCUTS: Mapping[str, str] = {ASK: words.ASK_ABOUT, WHY: words.WHY_THIS, RESET: "Start over here"}

#: What Slack shows of each in its settings.
ABOUT: Mapping[str, str] = {
    ASK: "Asks a question about a message, in its thread",
    WHY: "Tells you alone what an answer was made of",
    RESET: "Forgets the conversation in the thread of a message",
}

#: How commands are given. Slack: what is in its menus is of one language.
WAYS = Ways({command.name: written for written, command in COMMANDS.items()}, "", lambda _: list(SHORTCUTS.values()))

#: What the modal is known by, and what is filled into it.
ASKED, QUESTION = "asked", "question"

#: The most characters of a message that a question about it quotes, and of all that a modal keeps, as Slack has it.
QUOTED, KEPT = 2_000, 3_000


class Shortcuts:
    """Does them.

    Args:
        take: takes in a question.
    """

    def __init__(
        self,
        surface: Callable[[Inbound], SlackSurface],
        names: Names,
        private: Private,
        intake: Intake,
        take: Callable[[Call], Awaitable[None]],
        *,
        direct: Direct,
    ) -> None:
        self._surface = surface
        self._names = names
        self._private = private
        self._intake = intake
        self._take = take
        self._direct = direct

    async def use(self, body: Mapping[str, Any], seen: Seen) -> None:
        """Do what a shortcut is for.

        Raises:
            SurfaceError: who has used it cannot be answered.
        """
        doer, message = Doer.of_press(body), body["message"]
        root = doer.thread_ts or str(body["message_ts"])
        locale = await words.told(self._names.people.locale(doer.team, doer.user))
        if body.get("callback_id") == ASK:
            await self._ask(doer, words.of(locale), _kept(doer, root, message))
        elif body.get("callback_id") == WHY:
            session, ts = session_id(doer.team, doer.channel, root, self._direct), str(body["message_ts"])
            asker, key = asking(doer, session, root, locale, seen), event_key(doer.team, doer.channel, ts)
            await self._private.answer(doer, (await self._intake.commands.why_of(ts, key, asker)).text)
        elif body.get("callback_id") == RESET:
            session = session_id(doer.team, doer.channel, root, self._direct)
            said = await self._intake.commands.run("reset", "", asking(doer, session, root, locale, seen))
            await self._private.answer(doer, said.text)

    async def _ask(self, doer: Doer, say: Words, kept: str) -> None:
        try:
            await self._private.show(doer, _modal(say, kept))
        except SurfaceError as error:
            log.warning("a modal cannot be opened: %s", error)
            await self._private.answer(doer, say.sorry(error.public))

    async def submitted(self, body: Mapping[str, Any], seen: Seen) -> None:
        """Have a question answered that was filled in. It is shown in the thread, for all to see what is answered; of
        one that is not answered nothing is.

        Raises:
            SurfaceError: who has asked cannot be told why it is not answered.
            StoreError: the question is not stored yet, and is as soon as the database can.
        """
        view, doer, (who, spot) = body["view"], Doer.of_modal(body), seen
        user, team = doer.user, doer.team
        kept = json.loads(view["private_metadata"])
        asked = storable(str(view["state"]["values"][QUESTION][QUESTION]["value"] or "")).strip()
        channel, root, author = kept["channel"], kept["root"], kept["author"]
        is_bot = author.startswith(BOT)
        names = await self._names.of(team, [kept["text"]], {user} if is_bot else {user, author})
        about_whom = kept["name"] if is_bot else names[author]
        question = Inbound(
            event_key=doer.event_key,
            session_id=session_id(team, channel, root, self._direct),
            place=doer.place,
            channel=NAME,
            address={
                "team": team,
                "channel": channel,
                "thread_ts": root,
                "ts": root,
                "user": user,
                "user_team": doer.home or team,
                "title": titled(escaped(asked)),
            },
            author=user,
            text=escaped(asked),
            sent_at=time.time(),
            attachments=tuple(Attachment(**file) for file in kept["files"]),
            visitor=who,
            spot=spot,
            brings=(about(author, about_whom, to_words(kept["text"], names), float(kept["ts"])),),
        )
        say = words.of(await words.told(self._names.people.locale(team, user)))
        try:
            if await self._intake.knows(question):
                return
        except StoreError as error:
            log.error("a question cannot be stored: %s", traced(error))
            await self._private.answer(doer, say.sorry(error.public))
            return
        if limited := await self._intake.limited(question):
            await self._private.answer(doer, too_often(limited, say))
            return
        surface = self._surface(question)
        try:
            ts = await surface.announce(f"**{inert(names[user])}**: {inert(asked)}")
        except RefusedError:
            await self._private.answer(doer, say(words.NOT_A_MEMBER))
            return

        async def send_away(text: str) -> None:
            await surface.clear([ts])
            await self._private.answer(doer, text)

        asked_there = replace(question, address={**question.address, "ts": ts}, sent_at=float(ts))
        await self._take(Call(asked_there, is_called=True, send_away=send_away))


def _modal(say: Words, kept: str) -> dict[str, Any]:
    asked = {"type": "plain_text_input", "action_id": QUESTION, "multiline": True}
    label = _plain(say(words.YOUR_QUESTION))
    return {
        "type": "modal",
        "callback_id": ASKED,
        "private_metadata": kept,
        "title": _plain(say(words.ASK_ABOUT)),
        "submit": _plain(say(words.ASK)),
        "close": _plain(say(words.CANCEL)),
        "blocks": [{"type": "input", "block_id": QUESTION, "label": label, "element": asked}],
    }


def _kept(doer: Doer, root: str, message: Mapping[str, Any]) -> str:
    """What the modal is to keep of the message that it is about; of a long one, the beginning."""
    bot = str(message.get("bot_id") or "")
    kept = {
        "channel": doer.channel,
        "root": root,
        "author": f"{BOT}{bot}" if bot else str(message.get("user") or ""),
        "name": name_of(message, bot) if bot else "",
        "ts": str(message["ts"]),
        "url": doer.response_url,
        "text": said({**message, "files": ()})[:QUOTED],
        "files": [asdict(attachment(file)) for file in message.get("files") or ()],
    }
    while len(written := json.dumps(kept, ensure_ascii=False)) > KEPT and (kept["files"] or kept["text"]):
        longest = "files" if kept["files"] else "text"
        kept[longest] = kept[longest][: len(kept[longest]) // 2]
    return written


def _plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}
