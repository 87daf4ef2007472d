"""Updates of the replies of turns, after a user edited or deleted a message, or changed a schedule of the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from channels.base import File
from channels.i18n import messages as words
from channels.platform import Platforms
from channels.replies.buttons import answer_buttons, growing_buttons
from channels.replies.reply import FILE_NAME, Reply
from channels.settings import ExtraButton, ReplySettings
from channels.turns.schedules import schedule_buttons
from channels.turns.turn_state import TurnState
from core.agents.runtime import AgentRuntime
from core.concurrency.tasks import BackgroundTasks
from core.conversations.service import ConversationService, LatestTurn
from core.errors import TurnLostError
from core.store.turn_states import ACTIVE_STATES
from core.tools.human_request_service import HumanRequestService
from core.turns.automation.schedules import ScheduleStore

#: Seconds between two checks of whether a turn in another process has ended.
POLL_SECONDS = 1.0

#: Generated files with one answer. Discord: a message has at most ten files, one of them for a long text.
MAX_FILES = 9


class ReplyRerenderer:
    """Edits the replies of turns after a user edited or deleted a message, or changed a schedule of the turn.

    Each method works in a background task, which logs its errors.

    Attributes:
        turn_states: the turns that this process runs, by their ids.
    """

    def __init__(
        self,
        platforms: Platforms,
        runtime: AgentRuntime,
        conversations: ConversationService,
        human_requests: HumanRequestService,
        schedules: ScheduleStore,
        *,
        settings: ReplySettings,
        background: BackgroundTasks,
    ) -> None:
        self._platforms = platforms
        self._runtime = runtime
        self._conversations = conversations
        self._human_requests = human_requests
        self._schedules = schedules
        self._settings = settings
        self._background = background
        self.turn_states = dict[str, TurnState]()

    def rerender(self, turn_id: str, *, ending: str = "") -> None:
        """Update the reply of the newest turn that answers the same messages as a turn.

        While this process runs the turn, only the buttons of the reply change, at once. Any other reply is edited once
        its turn has ended in any process. It then gets the stored text and files, and current buttons, or `ending` (an
        untranslated sentence) in their place. It stays as it is in these cases:

        - The turn is unknown, failed, was cancelled or deleted, or has no stored text.
        - The turn does not end within the time limit of a run.
        - One of the reply's messages is missing on the platform.

        While the turn is active, a newer turn of the same messages takes its place. Afterwards, a newer turn or another
        change of its `LatestTurn` stops the edit.
        """
        self._background.start(self._rerender(turn_id, ending), name=f"update of turn {turn_id}")

    async def _rerender(self, turn_id: str, ending: str) -> None:
        newest = await self._conversations.get_latest_turn(turn_id)
        if newest is None or self._update_growing_buttons(newest):
            return
        latest = await self._wait_until_ended(newest)
        if latest is None or latest.state != "done" or not latest.text:
            return
        platform = self._platforms[latest.inbound.platform]
        surface = platform.create_surface(latest.inbound.address, turn_id=latest.origin)
        if tuple(await surface.find_message_ids(latest.message_ids)) != latest.message_ids:
            return
        say = words.messages_for(await words.resolve_locale(platform.get_locale(latest.inbound)))
        extra_buttons = (
            frozenset[ExtraButton]()
            if await self._human_requests.list_of_turn(latest.turn_id)
            else self._settings.extra_buttons
        )
        controls = schedule_buttons(await self._schedules.list_of_turn(latest.origin), say)
        controls += answer_buttons(latest.turn_id, say, extra_buttons, is_revised=latest.is_revised)
        files = await load_files(self._runtime, latest.session_id, latest.origin)
        with suppress(TurnLostError):
            async with Reply(
                surface,
                known_ids=latest.message_ids,
                save_ids=_keep_ids,
                check_owned=partial(self._check_unchanged, latest),
                max_messages=self._settings.max_messages,
                say=say,
            ) as reply:
                controls = [] if ending else controls
                await reply.close(latest.text, ending=ending and say(ending), buttons=controls, files=files)

    def _update_growing_buttons(self, latest: LatestTurn) -> bool:
        """Update the buttons of a turn's reply, and return whether this process is still writing the reply."""
        state = self.turn_states.get(latest.turn_id)
        if state is None or state.reply is None or state.reply.is_closed:
            return False
        state.is_revised = latest.is_revised
        state.reply.update_buttons(growing_buttons(latest.turn_id, state.reply.say, is_revised=latest.is_revised))
        return True

    async def _wait_until_ended(self, latest: LatestTurn) -> LatestTurn | None:
        """Wait until a turn, or a newer one of its messages, has ended; None if it was deleted or takes too long."""
        ended: LatestTurn | None = latest
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.time_limit):
                while ended is not None and ended.state in ACTIVE_STATES:
                    await asyncio.sleep(POLL_SECONDS)
                    ended = await self._conversations.get_latest_turn(latest.turn_id)
                return ended
        return None

    async def _check_unchanged(self, latest: LatestTurn) -> None:
        if await self._conversations.get_latest_turn(latest.turn_id) != latest:
            raise TurnLostError(f"turn {latest.turn_id} has changed")


async def load_files(runtime: AgentRuntime, session_id: str, origin: str) -> Sequence[File]:
    """Return the first `MAX_FILES` files that the agent generated for an answer, in the order in which they were saved.

    A name that occurs twice, or is `FILE_NAME`, gets the file's position as prefix, such as `2-plot.png`. An image
    without a description gets its name as `alt`.
    """
    files = list[File]()
    names = {FILE_NAME}
    for generated in (await runtime.list_generated_files(session_id, origin))[:MAX_FILES]:
        name = generated.name if generated.name not in names else f"{len(files) + 1}-{generated.name}"
        names.add(name)
        alt = generated.alt or (name if generated.mime_type.startswith("image/") else "")
        files.append(File(name, generated.data, alt))
    return files


async def _keep_ids(_ids: Sequence[str]) -> None:
    """Store nothing: the messages of a reply that is only edited have the same ids."""
