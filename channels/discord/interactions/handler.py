"""What people do in Discord beside writing: commands, presses of buttons and menus of messages, kept until it is done.

Discord: it tells of an interaction once, and waits for 3 seconds to hear that it was received.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from channels.access import Admission
from channels.commands.handlers import PRIVATE, Asker, Said
from channels.discord.interactions.responses import ORIGINAL, Token
from channels.discord.replies.surface import DiscordSurface
from channels.discord.session_ids import NAME
from channels.discord.text import inert
from channels.i18n import messages as words
from channels.intake.handler import Call, Intake, too_often
from channels.rate_limits.caller import RefusedError
from channels.services import Desk
from core.errors import StoreError, SurfaceError
from core.identity import Visitor
from core.inbox.interactions import Errand
from core.inbox_message import Attachment, Inbound
from core.privacy.vault import Seal
from core.secret_redaction import traced

log = logging.getLogger(__name__)

Does = Literal["command", "press", "ask", "why"]


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody has asked for by an interaction.

    Attributes:
        of: what it is about (JSON): of a command its `name` and `argument`, of a press the `button`, of a question its
            `text`, `files` and `brings` (see `Inbound`) and how it is `shown` to all, of an answer the `message` in
            whose menu it was asked why, and its `key` as a question.
        by: what lets the bot answer it: see `Token`, whose token is sealed.
    """

    does: Does
    of: Mapping[str, Any]
    asker: Asker
    by: Mapping[str, str]

    @property
    def is_aside(self) -> bool:
        """Whether the bot has nothing but the interaction to answer by."""
        return "token" in self.asker.address

    def to_json(self) -> dict[str, Any]:
        return asdict(replace(self, asker=replace(self.asker, until=self.asker.sent_at)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Deed":
        """Read what `to_json` made. What was said since is none of what it was to stop."""
        return cls(**{**data, "asker": Asker.from_json(data["asker"])})


class Deeds:
    """Has what is asked for done, and once, and tells who has asked for it what comes of it.

    Args:
        seal: closes what is kept.
        take: takes in a question; raises `StoreError` if it cannot be kept.
        surface: the place with an address.
        token: what one allows that was kept: see `Token`.
    """

    def __init__(
        self,
        desk: Desk,
        intake: Intake,
        seal: Seal,
        *,
        take: Callable[[Call], Awaitable[None]],
        surface: Callable[[Mapping[str, Any]], DiscordSurface],
        token: Callable[[Mapping[str, Any]], Token],
    ) -> None:
        self._desk = desk
        self._intake = intake
        self._seal = seal
        self._take = take
        self._surface = surface
        self._token = token

    async def keep(self, deed: Deed) -> bool:
        """Store an interaction, unless its user is denied, and return whether it is new."""
        if self._desk.door.admits(_who(deed.asker), deed.asker.spot) is not Admission.ADMITTED:
            return True
        return await self._desk.errands.keep(NAME, self._errand(deed))

    async def drop(self, deed: Deed) -> None:
        """Delete a stored interaction without processing it."""
        await self._desk.errands.done(self._errand(deed))

    def _errand(self, deed: Deed) -> Errand:
        return Errand(deed.asker.event_key, {"deed": self._seal.close(json.dumps(deed.to_json()))})

    async def do(self, deed: Deed) -> None:
        """Do what was acknowledged; what is broken off before that is left to another worker."""
        await self._do(deed, self._errand(deed), is_again=False)

    async def again(self, errand: Errand) -> None:
        """Do what a worker has left undone who is gone, if that may be as yet."""
        if kept := self._seal.open(str(errand.what["deed"])):
            await self._do(Deed.from_json(json.loads(kept)), errand, is_again=True)
        else:
            await self._desk.errands.done(errand)

    async def _do(self, deed: Deed, errand: Errand, *, is_again: bool) -> None:
        async with self._desk.errands.doing(errand):
            try:
                await self._attempt(deed, is_again=is_again)
            except SurfaceError as error:
                log.error("who has asked for something cannot be told: %s", error)

    async def _attempt(self, deed: Deed, *, is_again: bool) -> None:
        if deed.does == "press":
            await self._press(deed)
        elif deed.does == "ask":
            await self._ask(deed, is_again=is_again)
        elif is_again and (refusal := await self.refusal(deed.does, deed.asker)):
            await self._send_away(deed, refusal)
        else:
            await self._tell(deed, await self._said(deed))

    async def refusal(self, does: Does, asker: Asker) -> str:
        """What somebody is told who may not have it done, in his language; empty if he may. Discord: what nobody
        answers is seen to have failed, so he is told however often he asks.
        """
        say = words.of(asker.locale)
        if refused := await self._intake.refusal(_who(asker), asker.spot, is_owed=True):
            return say(refused)
        limited = await self._intake.limited(asker) if does == "ask" else None
        return too_often(limited, say) if limited else ""

    async def turn_away(self, does: Does, by: Mapping[str, str], refusal: str, *, is_private: bool) -> None:
        """Tell the user alone that the interaction is denied.

        Args:
            is_private: whether the acknowledgement is visible to the user alone.
        """
        token = self._token(by)
        try:
            if does == "press":
                await token.whisper(refusal)
            elif is_private:
                await token.answer(refusal)
            else:
                await token.delete(ORIGINAL)
                await token.whisper(refusal)
        except SurfaceError as error:
            log.error("who has asked for something cannot be told: %s", error)

    async def _press(self, deed: Deed) -> None:
        """Do what a button asks for, and tell the one who pressed it, and nobody else, if there is a word to say."""
        asker = deed.asker
        word = await self._intake.press(
            str(deed.of["button"]),
            visitor=_who(asker),
            spot=asker.spot,
            locale=asker.locale,
            name=str(asker.address["speaker"]),
        )
        if word:
            await self._token(deed.by).whisper(word)

    async def _said(self, deed: Deed) -> Said:
        if deed.does == "why":
            return await self._intake.commands.why_of(deed.of["message"], deed.of["key"], deed.asker)
        return await self._intake.commands.run(deed.of["name"], deed.of["argument"], deed.asker)

    async def _tell(self, deed: Deed, said: Said) -> None:
        """Answer a command to its user alone, or in the conversation if Discord refuses the answer."""
        try:
            await self._token(deed.by).answer(said.text, said.file)
        except RefusedError:
            if deed.is_aside:
                raise
            if said.file is not None:  # it was made for the asker alone
                public = replace(deed.asker, is_private=False)
                said = await self._intake.commands.run(deed.of["name"], deed.of["argument"], public)
            private = PRIVATE.get("why" if deed.does == "why" else deed.of["name"])
            text = words.of(deed.asker.locale)(private) if private else said.text  # all see it there
            await self._surface({**deed.asker.address, "apart": deed.asker.event_key}).say(text, said.file)

    async def _ask(self, deed: Deed, *, is_again: bool) -> None:
        """Have a question answered, for all to see where the bot may write, else for the asker alone."""
        asker = deed.asker
        try:
            if is_again and await self._intake.knows(asker):
                return
            if is_again and (refusal := await self.refusal(deed.does, asker)):
                await self._send_away(deed, refusal)
                return
            address = dict(asker.address)
            if not deed.is_aside:  # the answer replies to what says who asked
                address |= {"message": await self._show(deed), "shown": True}
            await self._take(Call(_inbound(deed, address), is_called=True, send_away=partial(self._send_away, deed)))
        except StoreError as error:
            log.error("a question cannot be kept: %s", traced(error))
            await self._send_away(deed, words.of(asker.locale).sorry(error.public))

    async def _send_away(self, deed: Deed, text: str) -> None:
        """Tell the asker alone why it is not done; of a question, what was shown of it to all is taken back."""
        token = self._token(deed.by)
        if deed.does == "ask" and not deed.is_aside:
            await token.delete(ORIGINAL)
            await token.whisper(text)
        else:
            await token.answer(text)

    async def _show(self, deed: Deed) -> str:
        """Show a question to all and return the id of the message.

        If Discord refuses it as the answer to the interaction, it is a message of its own.
        """
        with suppress(RefusedError):
            return str(await self._token(deed.by).answer(deed.of["shown"]))
        address = deed.asker.address
        who = inert(str(address["speaker"]))
        apart = self._surface({**address, "apart": deed.asker.event_key})
        return await apart.announce(f"**{who}**\n{deed.of['shown']}")


def _who(asker: Asker) -> Visitor:
    return asker.visitor or Visitor(NAME, asker.author)


def _inbound(deed: Deed, address: Mapping[str, Any]) -> Inbound:
    asker = deed.asker
    assert asker.session_id is not None, "an interaction tells where it was given"
    return replace(
        asker.message(asker.session_id, deed.of["text"]),
        address=address,
        attachments=tuple(Attachment(**file) for file in deed.of["files"]),
        brings=tuple(deed.of["brings"]),
        visitor=asker.visitor,
        spot=asker.spot,
    )
