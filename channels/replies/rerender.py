"""Updates of the replies of ended turns, after a user edited or deleted a message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from channels.base import Channel, File, Surface
from channels.i18n import messages as words
from channels.replies.buttons import answer_buttons
from channels.replies.reply import FILE_NAME, Reply
from channels.settings import ExtraButton, ReplySettings
from core.agents.runtime import AgentRuntime
from core.conversations.service import ConversationService, LatestTurn
from core.errors import StoreError, SurfaceError, TurnLostError
from core.secret_redaction import format_error
from core.store.turn_states import ACTIVE_STATES
from core.tools.human_request_service import HumanRequestService

log = logging.getLogger(__name__)

#: Seconds between two checks of whether a turn in another process has ended.
POLL_SECONDS = 1.0

#: Generated files with one answer. Discord: a message has at most ten files, one of them for a long text.
MAX_FILES = 9


class ReplyRerenderer:
    """Edits the replies of ended turns after a user edited or deleted a message.

    Args:
        runtime: the runtime with the generated files of the turns.
        human_requests: the store of approvals and questions.
    """

    def __init__(
        self,
        runtime: AgentRuntime,
        conversations: ConversationService,
        human_requests: HumanRequestService,
        settings: ReplySettings,
    ) -> None:
        self._runtime = runtime
        self._conversations = conversations
        self._human_requests = human_requests
        self._settings = settings

    async def rerender(self, channel: Channel, turn: LatestTurn, *, ending: str = "") -> None:
        """Wait until a turn has ended in any process, then edit its reply.

        The reply gets the stored text and files, and current buttons. It stays as it is in these cases:

        - The turn failed, was cancelled or deleted, or has no stored text.
        - The turn does not end within the time limit of a run.
        - One of the reply's messages is missing on the platform.

        While `turn` is active, a newer turn of the same messages takes its place. Afterwards, a newer turn or another
        change of its `LatestTurn` stops the edit without an error.

        Args:
            channel: the adapter of the platform with the reply.
            turn: the newest turn that answers the edited or deleted message.
            ending: an untranslated sentence to show below the reply in place of its buttons; empty for none.

        Raises:
            StoreError: the turn cannot be read.
            SurfaceError: the reply cannot be shown.
        """
        latest = await self._wait_until_ended(turn)
        if latest is None or latest.state != "done" or not latest.text:
            return
        surface = channel.create_surface(latest.inbound.address, turn_id=latest.origin)
        if tuple(await surface.find_message_ids(latest.chunks)) != latest.chunks:
            return
        say = words.messages_for(await words.resolve_locale(channel.get_locale(latest.inbound)))
        extra_buttons = (
            frozenset[ExtraButton]()
            if await self._human_requests.list_of_turn(latest.turn_id)
            else self._settings.extra_buttons
        )
        controls = answer_buttons(latest.turn_id, say, extra_buttons, is_revised=latest.is_revised)
        files = await load_files(self._runtime, latest.session_id, latest.origin)
        with suppress(TurnLostError):
            async with Reply(
                surface,
                known_ids=latest.chunks,
                save_ids=_keep_ids,
                check_owned=partial(self._check_unchanged, latest),
                max_messages=self._settings.max_messages,
                say=say,
            ) as reply:
                controls = [] if ending else controls
                await reply.close(latest.text, ending=ending and say(ending), buttons=controls, files=files)

    async def delete_orphans(self, turn_id: str, surface: Surface, orphans: Sequence[str]) -> None:
        """Delete messages that this process posted after another one had claimed the turn.

        Messages that the other process has stored as part of its reply are not deleted. If the other process uses one
        that it has not stored yet, it posts that message again. Failures are logged.

        Args:
            turn_id: the id of the turn, or of an earlier one that answered the same messages.
            surface: the surface of the reply.
            orphans: the platform's ids of the messages.
        """
        try:
            latest = await self._conversations.get_latest_turn(turn_id)
            known = latest.chunks if latest is not None else ()
            await surface.delete_messages([id_ for id_ in orphans if id_ not in known])
        except (StoreError, SurfaceError) as error:
            log.warning("turn %s: orphaned messages cannot be deleted: %s", turn_id, format_error(error))

    async def _wait_until_ended(self, latest: LatestTurn) -> LatestTurn | None:
        """Wait until a turn has ended, by a query every `POLL_SECONDS`.

        Returns:
            The ended turn: `latest`, or a newer one that answers the same messages. None if it was deleted, or has not
            ended within the time limit of a run.
        """
        ended: LatestTurn | None = latest
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.time_limit):
                while ended is not None and ended.state in ACTIVE_STATES:
                    await asyncio.sleep(POLL_SECONDS)
                    ended = await self._conversations.get_latest_turn(latest.turn_id)
                return ended
        return None

    async def _check_unchanged(self, latest: LatestTurn) -> None:
        """Check that a turn is unchanged, and still the newest that answers its messages.

        Raises:
            TurnLostError: a query returns another `LatestTurn`, or none.
        """
        if await self._conversations.get_latest_turn(latest.turn_id) != latest:
            raise TurnLostError(f"turn {latest.turn_id} has changed")


async def load_files(runtime: AgentRuntime, session_id: str, origin: str) -> Sequence[File]:
    """Return the first `MAX_FILES` files that the agent generated for an answer.

    Args:
        origin: the id of the first turn that answered the messages: see `Turn.origin`.

    Returns:
        The files, in the order in which they were saved. A name that occurs twice, or is `FILE_NAME`, gets the file's
        position as prefix, such as `2-plot.png`. An image without a description gets its name as `alt`.

    Raises:
        StoreError: the files cannot be read.
    """
    files, names = list[File](), {FILE_NAME}
    for generated in (await runtime.list_generated_files(session_id, origin))[:MAX_FILES]:
        name = generated.name if generated.name not in names else f"{len(files) + 1}-{generated.name}"
        names.add(name)
        alt = generated.alt or (name if generated.mime_type.startswith("image/") else "")
        files.append(File(name, generated.data, alt))
    return files


async def _keep_ids(_ids: Sequence[str]) -> None:
    """Store nothing: the messages of a reply that is only edited have the same ids."""
