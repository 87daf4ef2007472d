"""Handler of Slack's interactions: commands, button presses, shortcuts, modals.

Slack: docs.slack.dev/interactivity. It waits for 3 seconds for the acknowledgement, and delivers an interaction once.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from slack_bolt.async_app import AsyncAck

from channels.commands.handlers import CommandResult
from channels.commands.services import PlatformServices
from channels.i18n import messages as words
from channels.intake.context import about_reference
from channels.intake.handler import IntakeHandler, Retract
from channels.intake.incoming import Incoming, IncomingMessage
from channels.rate_limits.retries import RefusedError
from channels.slack.access import SlackIdentityResolver
from channels.slack.client.blocks import pressed_id
from channels.slack.events.authors import resolve_authors
from channels.slack.interactions.commands import MAX_CHOICES, choice_buttons, choice_text, parse_choice
from channels.slack.interactions.forms import FIELD_PREFIX, answer_modal, parse_form
from channels.slack.interactions.responses import PrivateResponder, ResponseTarget
from channels.slack.interactions.shortcuts import ASK_INPUT, ask_modal, make_command_syntax, modal_metadata
from channels.slack.platform import SlackPlatform
from channels.slack.session_ids import event_key, session_id, thread_ts_of
from channels.slack.text import escape, escape_tokens, make_title, render_times, to_plain_text
from core.errors import StoreError, SurfaceError
from core.inbox.entries import InboxEntry
from core.messages.identity import BOT_PREFIX
from core.messages.inbox_message import Attachment, InboxMessage, storable_text
from core.observability.secret_redaction import format_error
from core.tools.human_requests import Question

log = logging.getLogger(__name__)

#: Seconds that a check of a submitted form may take before the form is acknowledged without it. Slack waits for 3.
FORM_CHECK_SECONDS = 1.0


class SlackIntakeHandler(IntakeHandler):
    """Handles messages, slash commands, presses, shortcuts and submitted modals."""

    must_refuse = False
    _platform: SlackPlatform

    def __init__(self, platform: SlackPlatform, services: PlatformServices, identities: SlackIdentityResolver) -> None:
        syntax = make_command_syntax(platform.settings.command_prefix)
        super().__init__(platform, services, platform.queued_reactions, syntax=syntax, cipher=platform.cipher)
        self._bot_loop_limit = platform.settings.bot_loop_limit
        self._dm_sessions = platform.settings.dm_sessions
        self._identities = identities
        self._directory = platform.directory
        self._responder = PrivateResponder(platform)

    async def accept(self, incoming: Incoming) -> None:
        if isinstance(incoming, IncomingMessage):
            if incoming.inbound.is_bot and await self._is_bot_loop(incoming.inbound.session_id):
                return
            incoming = await self._identities.resolve_message(incoming)
        await super().accept(incoming)

    async def _is_bot_loop(self, session: str) -> bool:
        limit = self._bot_loop_limit
        return await self._services.conversations.count_newest_bot_messages(session, limit) >= limit

    async def deny_privately(self, message: InboxMessage, text: str) -> None:
        team, channel, user, thread, ts = (
            str(message.address[name]) for name in ("team", "channel", "user", "thread_ts", "ts")
        )
        # Slack: an ephemeral message in a thread is shown only if the thread exists
        target = ResponseTarget(team, channel, user, "" if thread == ts else thread, "", message.event_key)
        await self._responder.send_ephemeral(target, text)

    async def receive_command(self, ack: AsyncAck, body: Mapping[str, Any]) -> None:
        target = ResponseTarget.of_command(body)
        argument = str(body.get("text") or "").strip()
        syntax = self.commands.syntax
        sent = str(body["command"])
        name = syntax.find_name(sent)
        if sent != (command := syntax.format_slash_command(name)):
            log.warning("Slack sent %s, not %s: update the app by `parley manifest slack`", sent, command)
        await self._receive(ack, target.to_entry("command", {"name": name, "argument": argument}))

    async def receive_stop(self, ack: AsyncAck, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Receive a press of Slack's own stop button as a `stop` for the messages before the press."""
        target = ResponseTarget.of_stop(body)
        pressed_at = float(event.get("event_ts") or float(body["event_time"]) + 1)  # the latter is in whole seconds
        session = session_id(target.team, target.channel, target.thread_ts, self._dm_sessions)
        values = {"name": "stop", "argument": ""}
        entry = target.to_entry("command", values, session=session, root=target.thread_ts)
        message = replace(entry.message, sent_at=pressed_at)
        await self._receive(ack, replace(entry, message=message, until=pressed_at))

    async def receive_press(self, ack: AsyncAck, body: Mapping[str, Any], action: Mapping[str, Any]) -> None:
        target = ResponseTarget.of_message(body)
        await self._receive(ack, target.to_entry("press", {"button": pressed_id(action)}, root=target.thread_ts))

    async def receive_choice(self, ack: AsyncAck, body: Mapping[str, Any], action: Mapping[str, Any]) -> None:
        """Receive a press that chooses a session as the command for that session: see `choice_buttons`."""
        target = ResponseTarget.of_message(body)
        choice = parse_choice(pressed_id(action), target.place)
        if choice is None:
            await ack()
            return
        name, argument, session = choice
        values = {"name": name, "argument": argument, "replaces": True}
        await self._receive(ack, target.to_entry("command", values, session=session, root=thread_ts_of(session)))

    async def receive_reset(self, ack: AsyncAck, body: Mapping[str, Any]) -> None:
        target = ResponseTarget.of_message(body)
        root = target.thread_ts or str(body["message_ts"])
        session = session_id(target.team, target.channel, root, self._dm_sessions)
        values = {"name": "reset", "argument": ""}
        await self._receive(ack, target.to_entry("command", values, session=session, root=root))

    async def receive_why(self, ack: AsyncAck, body: Mapping[str, Any]) -> None:
        target = ResponseTarget.of_message(body)
        root = target.thread_ts or str(body["message_ts"])
        session = session_id(target.team, target.channel, root, self._dm_sessions)
        ts = str(body["message_ts"])
        files = [str(file.get("id")) for file in body["message"].get("files") or ()]
        values = {"action": "why", "message": ts, "key": event_key(target.team, target.channel, ts), "files": files}
        await self._receive(ack, target.to_entry("menu", values, session=session, root=root))

    async def open_prompt_form(self, ack: AsyncAck, body: Mapping[str, Any]) -> None:
        self._services.background.start(self._open_prompt_form(body), name="form")
        await ack()

    async def open_answer_form(self, ack: AsyncAck, body: Mapping[str, Any], action: Mapping[str, Any]) -> None:
        question_id = pressed_id(action).rpartition(":")[2]
        self._services.background.start(self._open_answer_form(body, question_id), name="form")
        await ack()

    async def receive_prompt(self, ack: AsyncAck, body: Mapping[str, Any], view: Mapping[str, Any]) -> None:
        metadata = json.loads(view["private_metadata"])
        target = ResponseTarget.of_form(body, metadata)
        root = metadata["root"]
        text = storable_text(str(view["state"]["values"][ASK_INPUT][ASK_INPUT]["value"] or "")).strip()
        session = session_id(target.team, target.channel, root, self._dm_sessions)
        values = {"text": text, "about": metadata}
        await self._receive(ack, target.to_entry("prompt", values, session=session, root=root))

    async def receive_answer(self, ack: AsyncAck, body: Mapping[str, Any], view: Mapping[str, Any]) -> None:
        """Receive a submitted form, or show the errors of its entries in the form."""
        if errors := await self._find_form_errors(body):
            await ack(response_action="errors", errors=errors)
            return
        target = ResponseTarget.of_form(body, json.loads(view["private_metadata"]))
        question, entries = parse_form(view)
        values = {"question": question, "entries": entries}
        await self._receive(ack, target.to_entry("answer", values, root=target.thread_ts))

    async def _receive(self, ack: AsyncAck, entry: InboxEntry) -> None:
        """Process an interaction in the background, and acknowledge it once it is stored or refused.

        This takes at most `ACK_SECONDS`: see `IntakeHandler.receive`.
        """
        is_stored = asyncio.Event()

        async def acknowledge(_: InboxEntry) -> bool:
            is_stored.set()
            return True

        async def process() -> None:
            try:
                await self.receive(entry, partial(self._identify, entry), acknowledge)
            finally:
                is_stored.set()

        self._services.background.start(process(), name=entry.kind)
        await is_stored.wait()
        await ack()

    async def _find_form_errors(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Check the entries of a submitted form before its acknowledgement; return errors by block id.

        There are none if the question is closed, or the check fails or takes longer than `FORM_CHECK_SECONDS`. The form
        is then processed, and the user gets any errors in a message.
        """
        id_, entries = parse_form(body["view"])
        team = str((body.get("team") or {}).get("id") or "")
        user = str(body["user"]["id"])
        try:
            async with asyncio.timeout(FORM_CHECK_SECONDS):
                question = await self._services.human_requests.get(id_)
                say = words.messages_for(await words.resolve_locale(self._directory.get_locale(team, user)))
        except (StoreError, SurfaceError, TimeoutError) as error:
            log.warning("a form cannot be checked before its acknowledgement: %s", format_error(error))
            return {}
        if not isinstance(question, Question) or question.verdict is not None:
            return {}
        errors = self.presses.answers.check(question, entries, say)
        return {f"{FIELD_PREFIX}{position}": text for position, text in errors.items()}

    async def _identify(self, parsed: InboxEntry) -> InboxEntry | str:
        """Return an interaction with its author's user groups, locale and name, or a text that refuses it.

        The text is empty if the app is not installed in the workspace.
        """
        target = ResponseTarget(**parsed.surface)
        with suppress(StoreError):  # a command that needs the database fails with a message
            if not await self._platform.is_installed(target.team):
                return ""
        locale = await words.resolve_locale(self._directory.get_locale(target.team, target.user))
        try:
            actor, location = await self._identities.resolve_interaction(
                target.team, target.channel, target.user, home_team=target.home_team
            )
        except SurfaceError as error:
            log.warning("the author of an interaction cannot be identified: %s", error)
            return words.messages_for(locale).format_error(error.public)
        name = (
            (await self._directory.get_names(target.team, [target.user]))[target.user]
            if parsed.kind in ("press", "answer", "form")
            else ""
        )
        message = replace(parsed.message, actor=actor, location=location)
        return replace(parsed, message=message, locale=locale, name=name)

    async def _open_prompt_form(self, body: Mapping[str, Any]) -> None:
        opener = await self._authorize_form(body)
        if opener is None:
            return
        target = ResponseTarget.of_message(body)
        say = words.messages_for(opener.locale)
        try:
            (message,) = await resolve_authors(self._directory, target.team, [body["message"]])
            await self._responder.open_modal(target, ask_modal(say, modal_metadata(target, message)))
        except SurfaceError as error:
            log.warning("a modal cannot be opened: %s", error)
            await self._refuse(opener, say.format_error(error.public))

    async def _open_answer_form(self, body: Mapping[str, Any], question_id: str) -> None:
        opener = await self._authorize_form(body)
        if opener is None:
            return
        target = ResponseTarget.of_message(body)
        say = words.messages_for(opener.locale)
        user = self.get_user(opener)
        try:
            question = await self.presses.answers.find_open(question_id, user, say)
            if isinstance(question, str):
                await self._responder.send_ephemeral(target, question)
                return
            entries = question.drafts.get(user.id, {})
            await self._responder.open_modal(target, answer_modal(question, entries, target, say))
        except (StoreError, SurfaceError) as error:
            log.warning("a form cannot be opened: %s", format_error(error))
            await self._refuse(opener, say.format_error(error.public))

    async def _authorize_form(self, body: Mapping[str, Any]) -> InboxEntry | None:
        """Identify the user who wants to open a form; None if they have no access and were told so."""
        target = ResponseTarget.of_message(body)
        parsed = target.to_entry("form", {})
        authorized = await self.authorize(parsed, partial(self._identify, parsed))
        if isinstance(authorized, str):
            await self._refuse(parsed, authorized)
            return None
        return authorized

    async def find_session(self, entry: InboxEntry) -> InboxEntry | None:
        """Return a slash command with the id of the user's latest session in the channel.

        For `reset` and `export`, the user is shown buttons to choose from if they have several sessions; the result is
        then None.
        """
        message = entry.message
        name = entry.values["name"]
        argument = entry.values["argument"]
        if message.session_id:
            return entry
        target = ResponseTarget(**entry.surface)
        say = words.messages_for(entry.locale)
        found = await self._services.conversations.list_recent(
            message.place, message.author, MAX_CHOICES, until=entry.until
        )
        if text := choice_text(name, argument, found):
            await self._responder.offer_choices(target, say(text), choice_buttons(name, argument, found))
            return None
        if not found or name == "why":  # the latest answer is that of the latest prompt, in any session
            return entry
        root = thread_ts_of(found[0].session_id)
        address = {**message.address, "thread_ts": root, "ts": root}
        return replace(entry, message=replace(message, session_id=found[0].session_id, address=address))

    async def answer(self, entry: InboxEntry, result: CommandResult) -> None:
        target = ResponseTarget(**entry.surface)
        text = render_times(result.text)
        replaces = "replaces" in entry.values
        if entry.kind in ("press", "answer"):
            await self._responder.send_ephemeral(target, text, result.buttons)
            return
        if result.is_visible and not target.response_url:
            return
        if result.file is not None:
            say = words.messages_for(entry.locale)
            thread_ts = entry.message.address["thread_ts"]
            text = await self._responder.deliver_file(target, text, result.file, say, thread_ts=thread_ts)
        await self._responder.respond(target, text, result.buttons, replaces=replaces)

    async def post_prompt(self, entry: InboxEntry) -> tuple[InboxMessage, Retract] | None:
        """Post a user's prompt about a message in its thread: see `IntakeHandler.post_prompt`."""
        target = ResponseTarget(**entry.surface)
        prompt = entry.values["text"]
        message = entry.values["about"]
        user = target.user
        author, is_bot = message["author"], message["author"].startswith(BOT_PREFIX)
        names = await self._directory.get_names(target.team, {user} if is_bot else {user, author}, [message["text"]])
        author_name = message["name"] if is_bot else names[author]
        title = make_title(escape(prompt))
        inbound = replace(
            entry.message,
            text=escape(prompt),
            address={
                **entry.message.address,
                "user": user,
                "user_team": target.home_team or target.team,
                "title": title,
            },
            attachments=tuple(Attachment(**file) for file in message["files"]),
            references=(
                about_reference(
                    *(author, author_name, to_plain_text(message["text"], names), float(message["ts"])),
                    key=event_key(target.team, target.channel, message["ts"]),
                ),
            ),
        )
        surface = self._platform.create_surface(inbound.address, turn_id=inbound.event_key)
        try:
            ts = await surface.post_text(f"**{escape_tokens(names[user])}**: {escape_tokens(prompt)}")
        except RefusedError:
            await self._responder.respond(target, words.messages_for(entry.locale)(words.NOT_A_MEMBER))
            return None

        async def retract(text: str) -> None:
            await surface.delete(ts)
            await self._responder.respond(target, text)

        return replace(inbound, address={**inbound.address, "ts": ts}, sent_at=float(ts)), retract
