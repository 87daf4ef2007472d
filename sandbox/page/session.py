"""One browser at the page: who its person is, where he looks, what he does; and what he is sent of it."""

import asyncio
import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from aiohttp import web

from sandbox.client.platform import ActionRefusedError, ClientLocation
from sandbox.client.session import ClientSession
from sandbox.page.bot_process import ManagedBot
from sandbox.page.calls import ApiCallList
from sandbox.page.faults import FaultSwitches
from sandbox.page.feed import BotFeedReader
from sandbox.page.pane import PlatformPane, pane_of, seen

Json = dict[str, Any]

#: Seconds between two looks at what has changed, and after which one is taken though nothing has.
PACE, REST = 0.06, 1.0


class PageSession:
    """Sends what there is to see, by keys, whenever it changes; and does what it is told.

    What comes is `{"id": ..., "do": ..., ...}`, and is answered with `{"id": ..., "told": ...}`, empty if there is
    nothing to tell. What goes is `{"set": {key: value}, "gone": [key]}`.
    """

    def __init__(
        self,
        panes: Mapping[str, PlatformPane],
        bot: ManagedBot,
        feed: BotFeedReader,
        calls: ApiCallList,
        switches: FaultSwitches,
    ) -> None:
        self._panes = panes
        self._bot = bot
        self._feed = feed
        self._calls = calls
        self._switches = switches
        self._sessions = {key: ClientSession(pane.platform) for key, pane in panes.items()}
        for session in self._sessions.values():
            session.focus()
        self._sent: dict[str, str] = {}
        self._deeds: dict[str, Callable[[Json], Awaitable[Any]]] = {
            "be": self._be,
            "go": self._go,
            "thread": self._thread,
            "say": self._say,
            "edit": self._edit,
            "delete": self._delete,
            "press": self._press,
            "react": self._react,
            "choose": self._choose,
            "submit": self._submit,
            "close": self._close,
            "fault": self._fault,
            "slow": self._slow,
            "kill": self._kill,
            "restart": self._restart,
            "prompt": self._prompt,
            "call": self._call,
        }

    async def serve(self, socket: web.WebSocketResponse, changed: Callable[[], Awaitable[None]]) -> None:
        """Serve the browser until it leaves; `changed` waits until something has."""
        doing: set[asyncio.Task[None]] = set()
        tasks = [
            asyncio.create_task(self._note(session), name="news of a place") for session in self._sessions.values()
        ]
        tasks.append(asyncio.create_task(self._show(socket, changed), name="what a browser shows"))
        try:
            async for message in socket:
                deed = asyncio.create_task(self._do(socket, json.loads(message.data)), name="deed")
                doing.add(deed)
                deed.add_done_callback(doing.discard)
        finally:
            for task in [*tasks, *doing]:
                task.cancel()
            await asyncio.gather(*tasks, *doing, return_exceptions=True)

    async def _note(self, session: ClientSession) -> None:
        async with aclosing(session.platform.changes()) as changes:
            async for happening in changes:
                if happening.message.author != session.user.name:  # what one says oneself is no news
                    session.record_event(happening)

    async def _show(self, socket: web.WebSocketResponse, changed: Callable[[], Awaitable[None]]) -> None:
        while not socket.closed:
            view = {key: json.dumps(value, ensure_ascii=False) for key, value in self._view().items()}
            news = {key: value for key, value in view.items() if self._sent.get(key) != value}
            gone = [key for key in self._sent if key not in view]
            self._sent = view
            if news or gone:
                values = ",".join(f"{json.dumps(key)}:{value}" for key, value in news.items())
                await socket.send_str(f'{{"set":{{{values}}},"gone":{json.dumps(gone)}}}')
            await asyncio.sleep(PACE)
            try:
                async with asyncio.timeout(REST):
                    await changed()
            except TimeoutError:
                pass

    def _view(self) -> dict[str, Any]:
        me = next(iter(self._sessions.values())).user.name
        people = [person.name for person in next(iter(self._panes.values())).platform.people]
        bot = self._bot
        about = {
            "state": bot.state,
            "told": bot.exit_reason,
            "log": bot.log_tail,
            "model": bot.model,
            "models": bot.models,
            "agent": bot.agent,
            "notices": [*bot.notices, *self._feed.notices],
            "slow": self._feed.slow,
        }
        view: dict[str, Any] = {"me": {"name": me, "people": people}, "bot": about, "faults": self._switches.view()}
        for key, pane in self._panes.items():
            view |= pane_of(pane, self._sessions[key])
        return view | self._calls.view() | self._feed.view()

    # What one does

    async def _do(self, socket: web.WebSocketResponse, order: Json) -> None:
        answer: Json = {"id": order.get("id")}
        try:
            answer["told"] = await self._deeds[order["do"]](order) or ""
        except ActionRefusedError as refusal:
            answer["told"] = str(refusal)
        except (ValueError, KeyError, TypeError) as error:
            words = str(error) if isinstance(error, ValueError) else "That cannot be done."
            answer["told"] = words[:1].upper() + words[1:]
        if not socket.closed:
            await socket.send_json(answer)

    def _at(self, order: Json) -> tuple[PlatformPane, ClientSession]:
        key = order["on"]
        return self._panes[key], self._sessions[key]

    async def _be(self, order: Json) -> None:
        for session in self._sessions.values():
            session.switch_user(next(person for person in session.platform.people if person.name == order["name"]))

    async def _go(self, order: Json) -> None:
        _, session = self._at(order)
        channel, thread = order["channel"], order.get("thread")
        place = next((one for one in session.list_places() if (one.channel, one.thread) == (channel, thread)), None)
        if place is None:
            raise ActionRefusedError("There is no such place.")
        session.open_place(place)

    async def _thread(self, order: Json) -> None:
        """Go to the thread of a message."""
        _, session = self._at(order)
        session.open_place(session.get_thread(seen(session, order["message"])))

    async def _say(self, order: Json) -> str:
        pane, session = self._at(order)
        text, place = str(order["text"]).strip(), session.place
        files = {str(file["name"]): _bytes(file["data"]) for file in order.get("files", ())}
        if text.startswith("/") and not text.startswith("//") and not files:
            name, _, rest = text[1:].partition(" ")
            await pane.platform.run_command(session.user, place, name, rest.strip())
            return ""
        if not text and not files:
            return ""
        said = await pane.platform.post_message(
            session.user, place, text.removeprefix("/") if text[:2] == "//" else text, files
        )
        if (
            place.is_dm and place.thread is None and place.thread_support.value == "all"
        ):  # Slack: each begins a conversation
            session.open_place(session.get_thread(said))
        return _unheard(pane.platform.bot_name, place, text)

    async def _edit(self, order: Json) -> None:
        pane, session = self._at(order)
        await pane.platform.edit_message(session.user, seen(session, order["message"]), str(order["text"]).strip())

    async def _delete(self, order: Json) -> None:
        pane, session = self._at(order)
        await pane.platform.delete_message(session.user, seen(session, order["message"]))

    async def _press(self, order: Json) -> None:
        pane, session = self._at(order)
        await pane.platform.click_button(session.user, seen(session, order["message"]), order["button"])

    async def _react(self, order: Json) -> None:
        pane, session = self._at(order)
        await pane.react(session, order["message"], order["emoji"])

    async def _choose(self, order: Json) -> None:
        pane, session = self._at(order)
        await pane.choose(session, order["message"], order["entry"])

    async def _submit(self, order: Json) -> None:
        pane, session = self._at(order)
        values = {str(name): str(value) for name, value in order["values"].items()}
        await pane.submit(session, order["modal"], values)

    async def _close(self, order: Json) -> None:
        pane, session = self._at(order)
        pane.close(session, order["modal"])

    async def _fault(self, order: Json) -> None:
        await self._switches.flip(order["on"], order["name"])

    async def _slow(self, order: Json) -> None:
        self._feed.slow = max(0.0, min(60.0, float(order["seconds"])))
        self._feed.notify()

    async def _kill(self, _: Json) -> None:
        await self._bot.kill()

    async def _restart(self, order: Json) -> None:
        await self._bot.restart(str(order.get("model", "")).strip())

    async def _prompt(self, order: Json) -> Json:
        return self._feed.prompts[order["ask"]]

    async def _call(self, order: Json) -> Json:
        return self._calls.whole(order["call"])


def _bytes(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except NotBase64:
        raise ValueError("the file did not arrive whole") from None


def _unheard(bot: str, place: ClientLocation, text: str) -> str:
    """What one has to know who spoke past the bot."""
    if place.is_dm or place.thread is not None or place.thread_support.value == "all" or f"@{bot}" in text.casefold():
        return ""
    return f"In a channel {bot} answers to @{bot}."
