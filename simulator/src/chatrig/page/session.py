"""Session of one browser on the page: its user, its open channels and its actions."""

import asyncio
import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from aiohttp import web

from chatrig.client.extension import SimulatorExtension
from chatrig.client.managed_bot import ManagedBot
from chatrig.client.platform import ActionRefusedError, ClientLocation
from chatrig.client.session import ChatSession
from chatrig.page.calls import ApiCallList
from chatrig.page.faults import FaultSwitches
from chatrig.page.pane import PlatformPane, create_pane_view, find_message

Json = dict[str, Any]

#: Shortest and longest time between two updates of the page.
MIN_UPDATE_SECONDS, MAX_UPDATE_SECONDS = 0.06, 1.0


class PageSession:
    """Session of one browser: sends the page's content to it, and runs its actions.

    The content is a JSON object; its changes are sent as `{"set": {key: value}, "removed": [key]}`. An action
    `{"id": ..., "action": ..., ...}` is answered by `{"id": ..., "result": ...}`: the requested data, a text for the
    user (also about a failure), or "".
    """

    def __init__(
        self,
        panes: Mapping[str, PlatformPane],
        calls: ApiCallList,
        switches: FaultSwitches,
        extension: SimulatorExtension,
    ) -> None:
        self._panes = panes
        self._calls = calls
        self._switches = switches
        self._extension = extension
        self._sessions = {key: ChatSession(pane.platform) for key, pane in panes.items()}
        for session in self._sessions.values():
            session.focus()
        self._sent_values: dict[str, str] = {}
        self._actions: dict[str, Callable[[Json], Awaitable[Any]]] = {
            "switch_user": self._switch_user,
            "open_place": self._open_place,
            "open_thread": self._open_thread,
            "post_message": self._post_message,
            "edit_message": self._edit_message,
            "delete_message": self._delete_message,
            "click_button": self._click_button,
            "select_values": self._select_values,
            "toggle_reaction": self._toggle_reaction,
            "use_menu_entry": self._use_menu_entry,
            "submit_modal": self._submit_modal,
            "close_modal": self._close_modal,
            "toggle_fault": self._toggle_fault,
            "kill_bot": self._kill_bot,
            "restart_bot": self._restart_bot,
            "get_call": self._get_call,
            **{name: partial(action, self._sessions) for name, action in extension.actions.items()},
        }

    async def serve(self, socket: web.WebSocketResponse, changed: Callable[[], Awaitable[None]]) -> None:
        """Send changes to a browser, and run its actions, until it disconnects.

        Actions that are running then are cancelled.

        Args:
            changed: waits for the next change of a local platform or the bot.
        """
        actions: set[asyncio.Task[None]] = set()
        tasks = [
            asyncio.create_task(self._watch_platform(session), name="unread counts")
            for session in self._sessions.values()
        ]
        tasks.append(asyncio.create_task(self._send_updates(socket, changed), name="page updates"))
        try:
            async for message in socket:
                action = asyncio.create_task(self._run_action(socket, json.loads(message.data)), name="page action")
                actions.add(action)
                action.add_done_callback(actions.discard)
        finally:
            for task in [*tasks, *actions]:
                task.cancel()
            await asyncio.gather(*tasks, *actions, return_exceptions=True)

    async def _watch_platform(self, session: ChatSession) -> None:
        async with aclosing(session.platform.changes()) as changes:
            async for event in changes:
                if event.message.author != session.user.name:  # the user's own messages are read
                    session.record_event(event)

    async def _send_updates(self, socket: web.WebSocketResponse, changed: Callable[[], Awaitable[None]]) -> None:
        """Send the changed keys of the page's content after each change.

        The content is computed at most every `MIN_UPDATE_SECONDS`, and also without a change after
        `MAX_UPDATE_SECONDS`.

        Args:
            changed: waits for the next change of a local platform or the bot.
        """
        while not socket.closed:
            view = {key: json.dumps(value, ensure_ascii=False) for key, value in self._create_view().items()}
            changed_values = {key: value for key, value in view.items() if self._sent_values.get(key) != value}
            removed_keys = [key for key in self._sent_values if key not in view]
            self._sent_values = view
            if changed_values or removed_keys:
                values = ",".join(f"{json.dumps(key)}:{value}" for key, value in changed_values.items())
                await socket.send_str(f'{{"set":{{{values}}},"removed":{json.dumps(removed_keys)}}}')
            await asyncio.sleep(MIN_UPDATE_SECONDS)
            try:
                async with asyncio.timeout(MAX_UPDATE_SECONDS):
                    await changed()
            except TimeoutError:
                pass

    def _create_view(self) -> dict[str, Any]:
        user_name = next(iter(self._sessions.values())).user.name
        people = [person.name for person in next(iter(self._panes.values())).platform.people]
        bot = self._extension.bot
        view: dict[str, Any] = {
            "me": {"name": user_name, "people": people},
            "bot": {"state": bot.state, "exit_reason": bot.exit_reason, "log": bot.log_tail} if bot else None,
            "faults": self._switches.create_view(),
        }
        for key, pane in self._panes.items():
            view |= create_pane_view(pane, self._sessions[key])
        return view | self._calls.create_view() | dict(self._extension.create_view(self._sessions))

    # Actions of the user

    async def _run_action(self, socket: web.WebSocketResponse, action: Json) -> None:
        """Run an action of the browser; send its result, or a text about its failure.

        Args:
            action: the action's JSON, with its name in `action`.
        """
        answer: Json = {"id": action.get("id")}
        try:
            answer["result"] = await self._actions[action["action"]](action) or ""
        except ActionRefusedError as refusal:
            answer["result"] = str(refusal)
        except (ValueError, KeyError, TypeError) as error:
            text = str(error) if isinstance(error, ValueError) else "This did not work."
            answer["result"] = text[:1].upper() + text[1:]
        if not socket.closed:
            await socket.send_json(answer)

    def _get_pane(self, action: Json) -> tuple[PlatformPane, ChatSession]:
        """Return the pane and the chat session of the platform in `action["platform"]`.

        Args:
            action: an action's JSON; `platform` is `slack` or `discord`.

        Raises:
            KeyError: `platform` is missing or another text.
        """
        key = action["platform"]
        return self._panes[key], self._sessions[key]

    async def _switch_user(self, action: Json) -> None:
        for session in self._sessions.values():
            session.switch_user(next(person for person in session.platform.people if person.name == action["name"]))

    async def _open_place(self, action: Json) -> None:
        _, session = self._get_pane(action)
        channel, thread = action["channel"], action.get("thread")
        place = next(
            (place for place in session.list_places() if (place.channel, place.thread) == (channel, thread)), None
        )
        if place is None:
            raise ActionRefusedError("This channel or thread does not exist.")
        session.open_place(place)

    async def _open_thread(self, action: Json) -> None:
        """Show the thread of a message in a pane.

        Without a thread, the pane shows an empty one, which the first message posted there begins.

        Args:
            action: an action's JSON, with the `platform` and the id of the `message`.
        """
        _, session = self._get_pane(action)
        session.open_place(session.get_thread(find_message(session, action["message"])))

    async def _post_message(self, action: Json) -> str:
        """Post the message or run the slash command that the user has typed.

        A text that begins with `//` is a message that begins with `/`. Without text and files, nothing is posted.

        Args:
            action: an action's JSON, with the `platform`, the `text`, and optionally `files` with `name` and `data`
                (base64).

        Returns:
            A hint for the user if the message needs a mention of the bot, else "".
        """
        pane, session = self._get_pane(action)
        text, place = str(action["text"]).strip(), session.place
        files = {str(file["name"]): _decode_file(file["data"]) for file in action.get("files", ())}
        if text.startswith("/") and not text.startswith("//") and not files:
            name, _, rest = text[1:].partition(" ")
            await pane.platform.run_command(session.user, place, name, rest.strip())
            return ""
        if not text and not files:
            return ""
        await session.post_message(text.removeprefix("/") if text[:2] == "//" else text, files)
        return _mention_hint(pane.platform.bot_name, place, text)

    async def _edit_message(self, action: Json) -> None:
        pane, session = self._get_pane(action)
        await pane.platform.edit_message(
            session.user, find_message(session, action["message"]), str(action["text"]).strip()
        )

    async def _delete_message(self, action: Json) -> None:
        pane, session = self._get_pane(action)
        await pane.platform.delete_message(session.user, find_message(session, action["message"]))

    async def _click_button(self, action: Json) -> None:
        pane, session = self._get_pane(action)
        await pane.platform.click_button(session.user, find_message(session, action["message"]), action["button"])

    async def _select_values(self, action: Json) -> None:
        pane, session = self._get_pane(action)
        message, values = find_message(session, action["message"]), [str(value) for value in action["values"]]
        await pane.platform.select_values(session.user, message, action["menu"], values)

    async def _toggle_reaction(self, action: Json) -> None:
        pane, session = self._get_pane(action)
        await pane.toggle_reaction(session, action["message"], action["emoji"])

    async def _use_menu_entry(self, action: Json) -> None:
        pane, session = self._get_pane(action)
        await pane.use_menu_entry(session, action["message"], action["entry"])

    async def _submit_modal(self, action: Json) -> None:
        pane, session = self._get_pane(action)
        values = {str(name): [str(value) for value in values] for name, values in action["values"].items()}
        await pane.platform.submit_form(session.user, action["modal"], values)

    async def _close_modal(self, action: Json) -> None:
        pane, session = self._get_pane(action)
        pane.platform.close_form(session.user, action["modal"])

    async def _toggle_fault(self, action: Json) -> None:
        await self._switches.toggle(action["platform"], action["name"])

    async def _kill_bot(self, _: Json) -> None:
        await self._get_bot().kill()

    async def _restart_bot(self, _: Json) -> None:
        await self._get_bot().restart()

    def _get_bot(self) -> ManagedBot:
        if self._extension.bot is None:
            raise ActionRefusedError("The simulator did not start this bot.")
        return self._extension.bot

    async def _get_call(self, action: Json) -> Json:
        return self._calls.get_details(action["call"])


def _decode_file(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except NotBase64:
        raise ValueError("The file was not uploaded completely.") from None


def _mention_hint(bot: str, place: ClientLocation, text: str) -> str:
    """Return a hint if a text to a channel does not mention the bot; else "".

    DMs, threads and forums need no mention.

    Args:
        bot: the bot's name in lower case, without `@`.
    """
    if place.is_dm or place.thread is not None or place.thread_support.value == "all" or f"@{bot}" in text.casefold():
        return ""
    return f"In a channel, mention @{bot} to get an answer."
