"""Parley's additions to the simulator: turns, models, the tour and keys on the page, and the tour in the terminal."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from bot.simulator.inspector_store import InspectorStore
from bot.simulator.process import BotProcess
from bot.simulator.tour import STEPS, TourState, find_tour_state
from chatrig.client.extension import Action, Sessions, SimulatorExtension, TerminalCommand
from chatrig.client.session import ChatSession

Json = Mapping[str, Any]

#: Longest delay of a model call, in seconds.
MAX_MODEL_DELAY_SECONDS = 60.0

#: Limit of a message from the bot: prompts may be long.
MAX_MESSAGE_BYTES = 16 * 2**20


class ParleyExtension(SimulatorExtension):
    """Additions of Parley to the page and the terminal.

    Attributes:
        bot: the process of the bot; set it before browsers connect.
        inspector_path: the path of the WebSocket to which the bot sends turns and calls, with a secret token.
    """

    bot: BotProcess
    static_folder = Path(__file__).with_name("page")

    def __init__(self, title: str) -> None:
        self.title = title
        self.inspector = InspectorStore()
        self.inspector_path = f"inspector/{secrets.token_urlsafe()}"
        self.actions: Mapping[str, Action] = {
            "select_model": self._select_model,
            "set_model_delay": self._set_model_delay,
            "take_step": self._take_step,
            "start_tour": self._start_tour,
            "end_tour": self._end_tour,
            "save_key": self._save_key,
            "get_prompt": self._get_prompt,
        }
        help_line = "/tour  take the scripted tour; /tour end ends it"
        progress = "Restarting the bot…"
        self.commands = {
            "/tour": TerminalCommand(help_line, progress, self._run_tour),
            "/tour end": TerminalCommand("", progress, self._run_tour_end),
        }

    def set_up(self, app: web.Application) -> None:
        app.router.add_get(f"/{self.inspector_path}", self._serve_inspector_socket)

    def create_view(self, sessions: Sessions) -> Json:
        """Return the turns of `InspectorStore.create_view`, and the bot's models and tour as `parley`."""
        bot = self.bot
        states = {key: asdict(_find_tour_state(session)) for key, session in sessions.items()} if bot.is_tour else {}
        parley = {
            "model": bot.model,
            "models": bot.models,
            "agent_models": asdict(bot.agent_models) if bot.agent_models else None,
            "agent": bot.agent,
            "tour": {"steps": [[step.title, step.prompt] for step in STEPS], "states": states} if states else None,
            "lacks_key": bot.lacks_key,
            "notices": bot.notices,
            "model_delay": self.inspector.model_delay,
        }
        return {"parley": parley, **self.inspector.create_view()}

    def list_notices(self) -> Sequence[str]:
        return self.bot.describe_models()

    async def wait_for_change(self) -> None:
        await self.inspector.wait_for_change()

    async def _serve_inspector_socket(self, request: web.Request) -> web.WebSocketResponse:
        """Store what the bot sends, until it disconnects; its models are unknown again then."""

        async def send_model_delay() -> None:
            sent_delay = 0.0
            while True:
                if self.inspector.model_delay != sent_delay:
                    sent_delay = self.inspector.model_delay
                    await socket.send_json({"model_delay": sent_delay})
                await self.inspector.wait_for_change()

        socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE_BYTES, heartbeat=20)
        await socket.prepare(request)
        sending = asyncio.create_task(send_model_delay(), name="model delay")
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self.inspector.apply_updates(message.json())
        finally:
            self.inspector.agent_models = None
            sending.cancel()
            await asyncio.wait([sending])
        return socket

    # Actions of the page

    async def _select_model(self, _: Sessions, action: Json) -> None:
        await self.bot.restart(str(action["model"]).strip())

    async def _set_model_delay(self, _: Sessions, action: Json) -> None:
        self.inspector.model_delay = max(0.0, min(MAX_MODEL_DELAY_SECONDS, float(action["seconds"])))
        self.inspector.notify()

    async def _take_step(self, sessions: Sessions, action: Json) -> str:
        """Post the message of a step; return a hint for the user if another step is not done."""
        session = sessions[action["platform"]]
        state = _find_tour_state(session)
        place = session.place
        if state.open_step is not None:
            step = STEPS[state.open_step]
            need = "press a button of" if state.waits_for_user else "wait for the answer of"
            return f"First {need} “{step.title}”."
        prompt = STEPS[action["step"]].prompt
        await session.post_message(prompt if place.is_dm or place.thread else f"@{session.platform.bot_name} {prompt}")
        return ""

    async def _start_tour(self, *_: object) -> None:
        await self.bot.start_tour()

    async def _end_tour(self, *_: object) -> None:
        await self.bot.end_tour()

    async def _save_key(self, _: Sessions, action: Json) -> None:
        await self.bot.save_key(str(action["key"]), str(action.get("vendor", "")))

    async def _get_prompt(self, _: Sessions, action: Json) -> Json:
        return self.inspector.prompts[action["model_call"]]

    # Commands of the terminal

    async def _run_tour(self) -> str:
        await self.bot.start_tour()
        return self._describe_exit() or f"The tour has begun. Write: {STEPS[0].prompt} (/tour end ends it)"

    async def _run_tour_end(self) -> str:
        await self.bot.end_tour()
        return self._describe_exit() or "\n".join(["The tour has ended.", *self.bot.describe_models()])

    def _describe_exit(self) -> str:
        return "" if self.bot.state == "running" else f"The bot is not running. {self.bot.exit_reason}".strip()


def _find_tour_state(session: ChatSession) -> TourState:
    messages = session.platform.list_messages(session.place, session.user)
    replies = ((message, message.newest_reply) for message in messages)
    return find_tour_state([message for pair in replies for message in pair if message is not None])
