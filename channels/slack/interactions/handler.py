"""What people do in Slack beside writing: commands, presses, shortcuts and modals.

Slack: it waits for 3 seconds to hear that it was received, and does not deliver it again.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from channels.access import Admission
from channels.i18n import messages as words
from channels.i18n.messages import Words
from channels.intake.handler import Intake
from channels.services import Desk
from channels.slack.access import Seen, Visits
from channels.slack.client.blocks import pressed
from channels.slack.interactions.commands import COMMANDS, PICK, SlashCommands
from channels.slack.interactions.responses import KEPT_AT, Doer, Private
from channels.slack.interactions.shortcuts import ASKED, Shortcuts
from channels.slack.session_ids import NAME
from channels.slack.users import People
from core.errors import StoreError, SurfaceError
from core.inbox.interactions import ACK_SECONDS, Errand
from core.privacy.vault import Seal

log = logging.getLogger(__name__)

#: What is to be done for somebody.
Deed = Callable[[Seen], Coroutine[Any, Any, None]]

#: Seconds that identifying the user may take before the interaction is stored.
LOOK_SECONDS = 1.0


class Deeds:
    """Has what is asked for done, if who asks may speak, and once.

    Args:
        is_installed: whether the app is in the workspace of that id; raises `StoreError` if nobody can tell.
    """

    def __init__(
        self,
        desk: Desk,
        intake: Intake,
        visits: Visits,
        people: People,
        *,
        private: Private,
        commands: SlashCommands,
        shortcuts: Shortcuts,
        seal: Seal,
        is_installed: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._desk = desk
        self._intake = intake
        self._visits = visits
        self._people = people
        self._private = private
        self._commands = commands
        self._shortcuts = shortcuts
        self._seal = seal
        self._is_installed = is_installed

    async def take(self, body: Mapping[str, Any]) -> bool:
        """Start to process an interaction, and return when Slack may be told that it was received.

        That is when it is stored, or after `ACK_SECONDS`.

        Returns:
            False if the payload is no interaction.
        """
        if self._deed(body) is None:
            return False
        stored = asyncio.Event()
        self._intake.run(self._process(body, stored), name=str(body.get("type") or body.get("command")))
        with suppress(TimeoutError):
            async with asyncio.timeout(ACK_SECONDS):
                await stored.wait()
        return True

    async def _process(self, body: Mapping[str, Any], stored: asyncio.Event) -> None:
        """Store an interaction, set `stored`, and do what it asks for; a denied one is not stored."""
        try:
            seen = await self._seen(body)
            is_denied = seen is not None and self._desk.door.admits(*seen) is not Admission.ADMITTED
            errand = None if is_denied else await self._kept(body)
        finally:
            stored.set()
        if is_denied and seen is not None:
            await self._admits(body, seen)
        elif errand is not None:
            await self._do(errand, body)

    async def _seen(self, body: Mapping[str, Any]) -> Seen | None:
        """Who does something, and where; nothing if that cannot be told at once."""
        with suppress(SurfaceError, TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                return await self._resolve(body)
        return None

    async def _resolve(self, body: Mapping[str, Any]) -> Seen:
        doer = Doer.of_deed(body)
        return await self._visits.resolve_interaction(doer.team, doer.channel, doer.user, home=doer.home)

    async def _kept(self, body: Mapping[str, Any]) -> Errand | None:
        """Store an interaction and return it; None if it was stored before."""
        kept = {**body, KEPT_AT: time.time()}
        errand = Errand(f"{NAME}:{_key_of(body)}", {"body": self._seal.close(json.dumps(kept))})
        return errand if await self._desk.errands.keep(NAME, errand) else None

    async def _do(self, errand: Errand, body: Mapping[str, Any]) -> None:
        """Do what somebody has asked for, if he may; what is broken off before that is left to another worker."""
        async with self._desk.errands.doing(errand):
            if (deed := self._deed(body)) is not None and (seen := await self._seen_to_do(body)) is not None:
                await deed(seen)

    async def _seen_to_do(self, body: Mapping[str, Any]) -> Seen | None:
        """Who does something, and where, if he may; who may not, or cannot be seen, is told."""
        try:
            seen = await self._resolve(body)
        except SurfaceError as error:
            log.warning("it cannot be seen who does something: %s", error)
            public = error.public
            await self._tell(body, lambda say: say.sorry(public))
            return None
        return seen if await self._admits(body, seen) else None

    async def again(self, errand: Errand) -> None:
        """Do what a worker has left undone who is gone."""
        body = self._seal.open(str(errand.what["body"]))
        await self._do(errand, json.loads(body) if body else {})

    async def _admits(self, body: Mapping[str, Any], seen: Seen) -> bool:
        """Whether somebody may do what he does; if he may not, he is told."""
        with suppress(StoreError):  # he will be told why it is not done
            if not await self._is_installed(Doer.of_deed(body).team):
                return False
        if (refused := await self._intake.refusal(*seen)) is None:
            return True
        if refused:
            sentence = refused
            await self._tell(body, lambda say: say(sentence))
        return False

    async def _tell(self, body: Mapping[str, Any], word: Callable[[Words], str]) -> None:
        """Tell somebody, in his language, and nobody else, why what he does is not done."""
        somebody = Doer.of_deed(body)
        say = words.of(await words.told(self._people.locale(somebody.team, somebody.user)))
        tell = self._private.whisper if body.get("type") == "block_actions" else self._private.answer
        await tell(somebody, word(say))

    def _deed(self, body: Mapping[str, Any]) -> Deed | None:
        """What is to be done for what somebody has done; none if it is an event."""
        if body.get("command") in COMMANDS:
            return partial(self._commands.take, body)
        match body.get("type"):
            case "block_actions":
                return partial(self._take_presses, body)
            case "message_action":
                return partial(self._shortcuts.use, body)
            case "view_submission" if body["view"].get("callback_id") == ASKED:
                return partial(self._shortcuts.submitted, body)
        return None

    async def _take_presses(self, body: Mapping[str, Any], seen: Seen) -> None:
        for action in body.get("actions", ()):
            if (id_ := pressed(action)).startswith(PICK):
                await self._commands.pick(body, id_, seen)
            else:
                await self._take_press(Doer.of_press(body), id_, seen)

    async def _take_press(self, doer: Doer, button: str, seen: Seen) -> None:
        """Do what the button asks for, and tell the one who pressed it, and nobody else, if there is a word to say."""
        locale = await words.told(self._people.locale(doer.team, doer.user))
        names = await self._people.names(doer.team, [doer.user])
        name, (who, spot) = names[doer.user], seen
        if word := await self._intake.press(button, visitor=who, spot=spot, locale=locale, name=name):
            await self._private.whisper(doer, word)


def _key_of(body: Mapping[str, Any]) -> str:
    """What tells one thing that somebody does from all others."""
    return str((body.get("view") or {}).get("id") if body.get("type") == "view_submission" else body.get("trigger_id"))
