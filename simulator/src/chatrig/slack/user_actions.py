"""Actions of the users of the local Slack."""

from collections.abc import Mapping, Sequence, Set
from time import monotonic
from typing import Any
from uuid import uuid4

from chatrig.lookup import find_named
from chatrig.slack.api.assistant import STARTED_EVENT, STOPPED_EVENT, AssistantMethods, AssistantThread
from chatrig.slack.api.views import ViewMethods
from chatrig.slack.events.dispatcher import SlackEventDispatcher
from chatrig.slack.interactions.commands import SlashCommands
from chatrig.slack.interactions.delivery import SlackInteractions
from chatrig.slack.interactions.input_values import InputValue
from chatrig.slack.openid import OpenIDMethods
from chatrig.slack.state.controls import BlockControl
from chatrig.slack.state.markup import SlackContent
from chatrig.slack.state.messages import BROADCAST_SUBTYPE, ME_SUBTYPE, SlackConversation, SlackFile, SlackMessage
from chatrig.slack.state.payloads import SlackPayloads
from chatrig.slack.state.views import SlackView
from chatrig.slack.state.workspace import SLACKBOT, Workspace, WorkspaceUser, create_id


class SlackUserActions:
    """Actions of the users of the local Slack, and queries of the things they see.

    Users and channels can be objects, names or ids. An unknown name or id raises `ValueError` in each method. An
    acknowledgement of the app is in time within `ACK_TIMEOUT_SECONDS`, divided by the simulator's `speed`.
    """

    people: dict[str, WorkspaceUser]
    channels: dict[str, SlackConversation]
    shortcuts: dict[str, str]
    subscriptions: set[str]
    _workspace: Workspace
    _events: SlackEventDispatcher
    _payloads: SlackPayloads
    _assistant: AssistantMethods
    _commands: SlashCommands
    _interactions: SlackInteractions
    _views: ViewMethods
    _openid: OpenIDMethods
    _commands_url: str
    _installed_actions: Set[str] | None

    async def post_message(
        self,
        user: WorkspaceUser | str,
        channel: SlackConversation | str,
        text: str,
        *,
        thread_ts: str | None = None,
        is_broadcast: bool = False,
        is_me: bool = False,
        files: Sequence[str | SlackFile] = (),
        app: str | None = None,
        blocks: Sequence[Mapping[str, Any]] | None = None,
    ) -> SlackMessage:
        """Post a message as a user, and return it.

        A user who posts in a public channel joins it; Slackbot (`USLACKBOT`) posts everywhere.

        Args:
            thread_ts: the timestamp of the thread's root message; None for a message outside threads.
            is_broadcast: whether the reply is also sent to the channel.
            is_me: whether the message is a command `/me`.
            files: the files; a string is the name of an empty file.
            app: the name of another app that posts with the user's own token; None for Slack's client. The message has
                the bot of the app, too.
            blocks: the Block Kit blocks of the app, which are not checked; None for none.

        Raises:
            ValueError: the user is not in the private channel or DM, or the thread does not exist.
        """
        author, place = self._find_user(user), self._find_channel(channel)
        if place.type == "channel" and author.id != SLACKBOT:
            place.members.add(author.id)
        if author.id not in place.members | {SLACKBOT}:
            raise ValueError(f"{author.name} is not in {place.name}")
        return self._workspace.post_message(
            place,
            SlackContent(text, blocks),
            user=author.id,
            bot_id=None if app is None else self._workspace.get_bot_id(app),
            thread_ts=self._check_thread(place, thread_ts),
            subtype=ME_SUBTYPE if is_me else BROADCAST_SUBTYPE if is_broadcast else "file_share" if files else None,
            client_msg_id=str(uuid4()) if app is None and author.id != SLACKBOT else None,
            files=tuple(file if isinstance(file, SlackFile) else SlackFile(create_id("F"), file) for file in files),
        )

    async def mention_bot(
        self, user: WorkspaceUser | str, channel: SlackConversation | str, text: str, *, thread_ts: str | None = None
    ) -> SlackMessage:
        """Post a message that begins with a mention of the bot: see `post_message`."""
        mention = f"<@{self._workspace.bot.id}>"
        return await self.post_message(user, channel, f"{mention} {text}", thread_ts=thread_ts)

    async def post_dm(self, user: WorkspaceUser | str, text: str) -> SlackMessage:
        """Post a message in the user's DM with the bot: see `post_message`."""
        return await self.post_message(user, self._workspace.open_dm(self._find_user(user)), text)

    async def edit_message(self, user: WorkspaceUser | str, message: SlackMessage, text: str) -> None:
        """Replace the text of a user's own message.

        Raises:
            ValueError: the message is deleted, or its author is another user.
        """
        self._check_own(user, message)
        self._workspace.update_message(message, SlackContent(text), edited=True)

    async def delete_message(self, user: WorkspaceUser | str, message: SlackMessage) -> None:
        """Delete a user's own message.

        Raises:
            ValueError: the message is deleted, or its author is another user.
        """
        self._check_own(user, message)
        self._workspace.delete_message(message)

    async def share_message(
        self, user: WorkspaceUser | str, message: SlackMessage, channel: SlackConversation | str, text: str = ""
    ) -> SlackMessage:
        """Post a message that shares another message, and return the new one.

        The user need not be a member of the channel, and does not join it.

        Args:
            message: the shared message.
            channel: the channel of the new message.
            text: the text above the shared message.
        """
        return self._workspace.post_message(
            self._find_channel(channel),
            SlackContent(text),
            user=self._find_user(user).id,
            client_msg_id=str(uuid4()),
            attachments=(self._payloads.message_attachment(message, is_share=True, is_msg_unfurl=True),),
        )

    async def unfurl_link(self, message: SlackMessage, linked: SlackMessage) -> None:
        """Show the preview of a linked message in a message, in place of its attachments.

        Slack does this shortly after a post with a link. A subscribed app receives `message_changed`. An "(edited)" of
        the message stays: `edited` is in each message that was edited (docs.slack.dev/reference/events/message).

        Args:
            linked: the message to which the link points.
        """
        message.attachments = (self._payloads.message_attachment(linked, is_msg_unfurl=True),)
        self._workspace.update_message(message, message.content, edited=None)

    async def post_as_other_bot(
        self,
        name: str,
        channel: SlackConversation | str,
        text: str,
        *,
        thread_ts: str | None = None,
        blocks: Sequence[Mapping[str, Any]] | None = None,
        attachments: Sequence[Mapping[str, Any]] = (),
        has_user: bool = False,
    ) -> SlackMessage:
        """Post a message as another app, and return it.

        Args:
            name: name of the app; the same name is the same app.
            attachments: the attachments, which are not checked.
            has_user: whether the app posts as its bot user; else the message has a name in place of a user.
            thread_ts: the timestamp of the thread's root message; None for a message outside threads.
            blocks: the Block Kit blocks, which are not checked; None for none.

        Raises:
            ValueError: the thread does not exist.
        """
        place = self._find_channel(channel)
        return self._workspace.post_message(
            place,
            SlackContent(text, blocks, attachments=tuple(attachments)),
            user=self._workspace.add_bot_user(name).id if has_user else None,
            bot_id=self._workspace.get_bot_id(name),
            username=None if has_user else name,
            subtype=None if has_user else "bot_message",
            thread_ts=self._check_thread(place, thread_ts),
        )

    async def add_reaction(self, user: WorkspaceUser | str, message: SlackMessage, reaction: str) -> None:
        """Add a user's reaction to a message; if it exists already, nothing changes.

        A subscribed app receives `reaction_added`.

        Args:
            reaction: the emoji's name (`thumbsup`).

        Raises:
            ValueError: there is no such emoji.
        """
        if not self._workspace.has_emoji(reaction):
            raise ValueError(f"there is no emoji {reaction}")
        self._workspace.add_reaction(message, self._find_user(user).id, reaction)

    async def remove_reaction(self, user: WorkspaceUser | str, message: SlackMessage, reaction: str) -> None:
        """Remove a user's reaction from a message; if it does not exist, nothing changes.

        A subscribed app receives `reaction_removed`.

        Args:
            reaction: the emoji's name.
        """
        self._workspace.remove_reaction(message, self._find_user(user).id, reaction)

    async def pin_message(self, user: WorkspaceUser | str, message: SlackMessage) -> None:
        """Pin a message to its channel as a user; a former pin is replaced.

        A subscribed app receives `pin_added`.
        """
        self._workspace.set_pin(message, self._find_user(user).id, is_pinned=True)

    async def unpin_message(self, user: WorkspaceUser | str, message: SlackMessage) -> None:
        """Unpin a message from its channel as a user.

        A subscribed app receives `pin_removed`, even if the message was not pinned.
        """
        self._workspace.set_pin(message, self._find_user(user).id, is_pinned=False)

    async def join_channel(
        self,
        user: WorkspaceUser | str,
        channel: SlackConversation | str,
        *,
        inviter: WorkspaceUser | str | None = None,
    ) -> None:
        """Add a user to a channel, and post Slack's message about it.

        The message is posted for a user who is a member already, too.

        Args:
            user: the user; `bot_user_id` adds the bot.
            inviter: the user who invites them; None if they join on their own.
        """
        invited_by = None if inviter is None else self._find_user(inviter).id
        self._workspace.join_channel(self._find_channel(channel), self._find_user(user).id, inviter=invited_by)

    async def leave_channel(self, user: WorkspaceUser | str, channel: SlackConversation | str) -> None:
        """Remove a user from a channel, and post Slack's message about it.

        The message is posted for a user who is not a member, too.

        Args:
            user: the user; `bot_user_id` removes the bot.
        """
        self._workspace.leave_channel(self._find_channel(channel), self._find_user(user).id)

    def deactivate_user(self, user: WorkspaceUser | str) -> None:
        """Deactivate the account of a user, who leaves all channels without a message.

        `users.info` tells it with `deleted`, and so does the event `user_change`, if the app subscribes to it.
        """
        leaver = self._find_user(user)
        self._workspace.deactivate_user(leaver.id)
        self._events.dispatch_user_changed(leaver)

    async def start_assistant_thread(
        self, user: WorkspaceUser | str, context: SlackConversation | str | None = None
    ) -> SlackMessage:
        """Start an assistant thread in a user's DM with the bot.

        A missing DM is created. The event `assistant_thread_started` is sent if the app subscribes to it. The feature
        `assistant_view` is not checked.

        Args:
            user: the user, in whose DM the thread is.
            context: the channel that the user sees; None for none.

        Returns:
            The root message of the thread.
        """
        person = self._find_user(user)
        root = self._workspace.post_message(
            self._workspace.open_dm(person),
            SlackContent("New Assistant Thread"),
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            subtype="assistant_app_thread",
        )
        self._dispatch_assistant_thread(STARTED_EVENT, person, root, context)
        return root

    async def change_assistant_context(
        self, user: WorkspaceUser | str, root: SlackMessage, context: SlackConversation | str
    ) -> None:
        """Open another channel beside an assistant thread.

        The event `assistant_thread_context_changed` is sent if the app subscribes to it.

        Args:
            root: the root message of the thread.
            context: the channel that the user then sees.
        """
        self._dispatch_assistant_thread("assistant_thread_context_changed", self._find_user(user), root, context)

    async def open_home(self, user: WorkspaceUser | str, tab: str = "messages") -> None:
        """Open the `home` or `messages` tab of the app's home as a user.

        The event `app_home_opened` is sent if the app subscribes to it.
        """
        person = self._find_user(user)
        home = self._views.open_views.homes.get(person.id) if tab == "home" else None
        view = self._views.open_views.to_payload(home) if home is not None else None
        self._events.dispatch_home_opened(person, self._workspace.open_dm(person), tab, view)

    async def view_entities(self, user: WorkspaceUser | str, *entities: Mapping[str, Any]) -> None:
        """View another channel or item as a user while the app is visible.

        The event `app_context_changed` is sent if the app subscribes to it.

        Args:
            entities: the viewed items, such as `{"type": "slack#/types/channel_id", "value": "C123"}`.
        """
        person = self._find_user(user)
        self._events.dispatch_context_changed(person, self._workspace.open_dm(person), entities)

    async def run_command(
        self, user: WorkspaceUser | str, channel: SlackConversation | str, command: str, text: str = ""
    ) -> list[SlackMessage]:
        """Run a slash command (`/name`) as a user, and wait for its acknowledgement.

        Slackbot posts an error if the app has no connection, does not acknowledge in time, or sends a wrong response.

        Returns:
            The responses so far, or Slackbot's error; later posts to the `response_url` are appended to the same list.

        Raises:
            ValueError: the installed manifest has no such command; without a manifest, each name is accepted.
        """
        self._check_installed(command)
        return await self._commands.run_command(
            self._find_user(user), self._find_channel(channel), command, text, self._commands_url
        )

    async def click_button(self, user: WorkspaceUser | str, target: SlackMessage | SlackView, action_id: str) -> bool:
        """Click a button, or select an option of a menu.

        Args:
            target: the message or view with the button.
            action_id: the action id of a button; the `value` of a feedback button or option. Prefix it with `BLOCK_ID/`
                if several blocks have it.

        Returns:
            False if Slack sent an action that the app did not acknowledge in time; True otherwise. For an option of an
            input block without `dispatch_action`, Slack sends nothing.

        Raises:
            ValueError: the message or view has no such button, or the user does not see it.
        """
        return await self._interactions.click_button(self._find_user(user), target, action_id, self._commands_url)

    async def set_input(
        self, user: WorkspaceUser | str, target: SlackMessage | SlackView, action_id: str, value: InputValue
    ) -> bool:
        """Enter a value into an input or a menu of a message or view.

        Args:
            target: the message or view.
            action_id: the action id of the element, or `BLOCK_ID/ACTION_ID` if several blocks have it.
            value: a text, an option's value, a date, a time, a Unix time, a user or channel; a list for several. None
                or "" removes the value.

        Returns:
            False if Slack sent an action that the app did not acknowledge in time; True otherwise. For an input block
            without `dispatch_action`, Slack sends nothing.

        Raises:
            ValueError: the element does not exist or does not accept the value.
        """
        return await self._interactions.set_input(self._find_user(user), target, action_id, value, self._commands_url)

    def list_inputs(
        self, user: WorkspaceUser | str | None, message: SlackMessage
    ) -> list[tuple[str, dict[str, Any], Any]]:
        """Return the input elements of a message with their values for a user.

        Args:
            user: the user; None for the initial values only.

        Returns:
            A tuple of block id, element and value for each input element. The value is the entered or else the initial
            one, as in payloads. If both are missing, it is None, or [] for an element with several values.
        """
        return self._interactions.list_inputs(user if user is None else self._find_user(user), message)

    def list_controls(self, message: SlackMessage) -> list[BlockControl]:
        """Return the buttons and menu options of a message with their block ids."""
        return self._interactions.list_controls(message)

    async def use_shortcut(self, user: WorkspaceUser | str, message: SlackMessage, callback_id: str) -> bool:
        """Use a message shortcut; return whether the app acknowledged it in time.

        Args:
            callback_id: the callback id of the shortcut.

        Raises:
            ValueError: the installed manifest has no such shortcut; without a manifest, each id is accepted.
        """
        self._check_installed(callback_id)
        return await self._interactions.use_shortcut(self._find_user(user), message, callback_id, self._commands_url)

    async def submit_modal(self, view: SlackView, **values: InputValue) -> bool:
        """Enter values into a modal and submit it; return whether the app accepted them.

        An accepted view closes, unless the app's response updates it or pushes another one. Otherwise it stays open.
        Then `view.errors` has the errors by block id: those of the app, or of empty required inputs. A view with empty
        required inputs is not sent. `view.errors` is empty if the app did not acknowledge in time or sent a wrong
        response.

        Args:
            view: the modal, on top of its stack.
            values: values by action id; other inputs have their present values.

        Raises:
            ValueError: the modal is not open, is covered, has no such input, or does not accept a value.
        """
        return await self._interactions.submit_modal(view, values)

    def close_modal(self, view: SlackView, *, whole_stack: bool = False) -> None:
        """Close the top view of a modal without submitting it.

        If the app is connected, `view_closed` is sent for each closed view with `notify_on_close`.

        Args:
            whole_stack: close all views of the modal, as the button in its corner does. `clear_on_close` of the view
                has the same effect.

        Raises:
            ValueError: the modal is not open, or another view covers it.
        """
        self._interactions.close_modal(view, whole_stack=whole_stack)

    async def click_stop(self, user: WorkspaceUser | str, message: SlackMessage) -> None:
        """Click Slack's own stop button of an agent's message as a user.

        It ends the live streams in the thread, and the event `agent_session_stopped` is sent. The session stays
        `processing` until the app sets another status.

        Raises:
            ValueError: there is no button: the agent is not processing, or does not subscribe to the event.
        """
        session = self.find_session(message)
        if session is None or session.status != "processing" or STOPPED_EVENT not in self.subscriptions:
            raise ValueError("there is no stop button")
        stopped = []
        for streamed in self._workspace.thread_messages(session.channel, session.thread_ts):
            if streamed.stream is not None and streamed.stream.is_live:
                streamed.stream.ends_at = monotonic()
                stopped.append(streamed.ts)
        self._events.dispatch_session_stopped(self._find_user(user), session.channel, session.thread_ts, stopped)

    # Queries

    def find_session(self, message: SlackMessage) -> AssistantThread | None:
        """Return the agent session of the thread that a message is in or begins.

        It is None if the thread has none.
        """
        return self._assistant.find_session(message.channel, message.thread_ts or message.ts)

    @property
    def sessions(self) -> list[AssistantThread]:
        """All agent sessions of the workspace."""
        return self._assistant.sessions

    def get_loading_text(self, message: SlackMessage) -> str:
        """Return the loading text that a message's thread shows now; "" if it shows none.

        The app sets it with `assistant.threads.setStatus`. It disappears after two platform minutes, or when the app
        posts in the thread.
        """
        return self._assistant.get_loading_text(message.channel, message.thread_ts or message.ts)

    def get_thread_title(self, message: SlackMessage) -> str:
        """Return the title of a message's thread; "" if the app set none."""
        return self._assistant.get_title(message.channel, message.thread_ts or message.ts)

    def find_message(self, ts: str) -> SlackMessage | None:
        """Return the message with this timestamp, also a deleted one; None without one."""
        return next((message for message in self._workspace.all_messages() if message.ts == ts), None)

    def find_file(self, id_: str) -> SlackFile | None:
        """Return the file with this id; None if no message has it.

        Files of deleted and ephemeral messages are found, too.
        """
        messages = self._workspace.all_messages()
        return next((file for message in messages for file in message.files if file.id == id_), None)

    def modals(self, user: WorkspaceUser | str) -> list[SlackView]:
        """Return the open modal views of a user; the last one is on top."""
        return [view for view in self._views.open_views.modals if view.user == self._find_user(user)]

    def find_home(self, user: WorkspaceUser | str) -> SlackView | None:
        """Return the home tab that the app published for a user; None without one."""
        return self._views.open_views.homes.get(self._find_user(user).id)

    # Sign in with Slack

    async def sign_in(self, user: WorkspaceUser | str, url: str) -> str:
        """Sign in with Slack as a user: approve the request at an authorization URL.

        Args:
            url: the address with the query that the app wrote; the part before the query is not checked.

        Returns:
            The redirect of the browser, with `code` and `state`. The code is valid once, for ten minutes.

        Raises:
            ValueError: Slack would show an error and not redirect, or the user is unknown.
        """
        return self._openid.approve(url, self._workspace, self._find_user(user))

    async def deny_sign_in(self, url: str) -> str:
        """Deny the request at an authorization URL; return the redirect of the browser, with `error` and `state`.

        Raises:
            ValueError: Slack would show an error and not redirect.
        """
        return self._openid.deny(url)

    # Internals

    def _dispatch_assistant_thread(
        self, type_: str, user: WorkspaceUser, root: SlackMessage, context: SlackConversation | str | None
    ) -> None:
        channel = None if context is None else self._find_channel(context)
        self._events.dispatch_assistant_thread(type_, user, root, channel)

    def _find_user(self, user: WorkspaceUser | str) -> WorkspaceUser:
        return user if isinstance(user, WorkspaceUser) else find_named("user", user, self.people, self._workspace.users)

    def _find_channel(self, channel: SlackConversation | str) -> SlackConversation:
        return (
            channel
            if isinstance(channel, SlackConversation)
            else find_named("channel", channel, self.channels, self._workspace.channels)
        )

    def _check_thread(self, channel: SlackConversation, thread_ts: str | None) -> str | None:
        """Return `thread_ts` unchanged if it is None or a message of the channel.

        Raises:
            ValueError: there is no such message.
        """
        if thread_ts is not None and self._workspace.find_message(channel, thread_ts) is None:
            raise ValueError(f"there is no message {thread_ts} in {channel.name}")
        return thread_ts

    def _check_installed(self, name: str) -> None:
        """Raise `ValueError` if the installed manifest lacks a command or callback id.

        Without a manifest, every name is accepted.
        """
        if self._installed_actions is not None and name not in self._installed_actions:
            raise ValueError(f"the manifest has no {name}")

    def _check_own(self, user: WorkspaceUser | str, message: SlackMessage) -> None:
        """Raise `ValueError` if a message is deleted, or its author is another user."""
        if message.deleted or message.user != self._find_user(user).id:
            raise ValueError("users can edit and delete only their own messages that are not deleted")
