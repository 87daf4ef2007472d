"""Language of the scenarios: what a user does on Slack or Discord, and what they see there.

A chat knows the local platform only, and nothing of the bot.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from slack_sdk.web.async_client import AsyncWebClient

from channels.i18n import messages as words
from chatrig.discord import DiscordMessage, DiscordSimulator, GuildChannel
from chatrig.slack import SlackFile, SlackMessage, SlackSimulator
from tests.fixtures.buttons import wait_for_button

PLATFORMS = ("slack", "discord")

#: The option of a Discord command that has one, by command.
_OPTIONS = {"model": "name", "agent": "name", "export": "form", "ask": "question", "why": "turn"}

#: Seconds of a call that does not end within a test.
HELD_SECONDS = 60

#: The API calls that edit a message.
_SLACK_EDIT, _DISCORD_EDIT = "chat.update", "PATCH /channels/{channel}/messages/{message}"


class Chat(Protocol):
    """Conversation of users with the bot: a thread in #general on Slack, the channel or a thread of it on Discord.

    Users are named by their names, such as "ada". A list of messages is in their order, oldest first.

    Attributes:
        simulator: the local platform.
        mention: the mention of the bot, as it is typed.
    """

    simulator: Any
    mention: str

    async def say(
        self, text: str, *, user: str = "ada", mentions_bot: bool = True, files: Mapping[str, bytes] | None = None
    ) -> Any:
        """Post a message, and return the platform's message.

        Args:
            files: contents by name.
        """

    async def answer(self, question: Any, text: str, *, user: str) -> None:
        """Write a message to the bot that refers to a question: a reply, or on Slack a message in its thread."""

    async def edit(self, message: Any, text: str, *, user: str = "ada") -> None:
        """Replace the text of the user's message; the mention stays."""

    async def delete(self, message: Any, *, user: str = "ada") -> None: ...

    async def delete_reply(self, message: Any) -> None:
        """Delete a message of the bot, as an admin."""

    async def redeliver(self, message: Any) -> None:
        """Let the bot receive a message again: in a second event on Slack, with a new connection on Discord."""

    async def delay_edit(self) -> None:
        """Let the platform take half a second for the bot's next edit of a message."""

    def is_editing(self) -> bool:
        """Return whether the platform has not answered an edit of the bot yet."""

    async def open_dm(self, user: str = "ada") -> None:
        """Continue in the user's direct messages with the bot, where no mention is typed."""

    async def open_thread(self) -> None:
        """Continue in a thread, in which the bot follows its authors: on Discord a new one, on Slack this one."""

    async def lose_events(self) -> None:
        """Drop the events that no bot has received, as the platform does after its last retry."""

    async def press(self, label: str, *, user: str = "ada") -> None:
        """Click the button `label` on the newest reply that has it."""

    async def fill_form(self, *entries: str, user: str = "ada") -> None:
        """Wait for the form that the bot opens for a user, enter values into its first fields, and submit it.

        Args:
            entries: texts; for a menu, the value of an option.
        """

    async def rate(self, label: str, *, user: str = "ada") -> None:
        """Rate the newest complete answer: a button on Slack, an entry of the message's menu on Discord."""

    async def run_command(self, name: str, argument: str = "", *, user: str = "ada") -> list[Any]:
        """Run a slash command, and return its private responses, to which later ones are appended."""

    def hold_private_message(self) -> None:
        """Let the next message of the bot that only one user sees take longer than any test."""

    def list_bot_messages(self) -> list[Any]:
        """Return the bot's messages in the channel, private ones too."""

    def list_replies(self) -> list[Any]:
        """Return the bot's public messages without those of only a file."""

    def list_files(self) -> list[tuple[str, bytes]]:
        """Return name and content of the bot's visible files."""

    def list_private_messages(self, user: str = "ada") -> list[str]:
        """Return the texts of the bot's messages that only this user sees."""

    def list_versions(self) -> list[list[str]]:
        """Return, for each public message of the bot, the texts that it has had."""

    def count_reactions(self) -> int:
        """Return the number of the bot's reactions."""


class SlackChat:
    """Conversation in a thread of a Slack channel."""

    def __init__(self, simulator: SlackSimulator, channel: str = "general") -> None:
        self.simulator = simulator
        self.mention = f"<@{simulator.bot_user_id}>"
        self.channel = simulator.channels[channel]
        self.root: SlackMessage | None = None

    async def say(
        self, text: str, *, user: str = "ada", mentions_bot: bool = True, files: Mapping[str, bytes] | None = None
    ) -> SlackMessage:
        attachments = [SlackFile(f"F{number}", name, data) for number, (name, data) in enumerate((files or {}).items())]
        message = await self.simulator.post_message(
            user,
            self.channel,
            f"{self.mention} {text}" if mentions_bot else text,
            thread_ts=self.root.ts if self.root else None,
            files=attachments,
        )
        self.root = self.root or message
        return message

    async def answer(self, question: SlackMessage, text: str, *, user: str) -> None:
        await self.simulator.post_message(user, self.channel, f"{self.mention} {text}", thread_ts=question.thread_ts)

    async def edit(self, message: SlackMessage, text: str, *, user: str = "ada") -> None:
        await self.simulator.edit_message(user, message, f"{self.mention} {text}")

    async def delete(self, message: SlackMessage, *, user: str = "ada") -> None:
        await self.simulator.delete_message(user, message)

    async def delete_reply(self, message: SlackMessage) -> None:
        client = AsyncWebClient(self.simulator.bot_token, base_url=self.simulator.api_url)
        await client.chat_delete(channel=self.channel.id, ts=message.ts)

    async def redeliver(self, message: SlackMessage) -> None:
        await self.simulator.redeliver(message)

    async def delay_edit(self) -> None:
        self.simulator.faults.delay(_SLACK_EDIT, 0.5)

    def is_editing(self) -> bool:
        return any(call.method == _SLACK_EDIT and not call.status for call in self.simulator.calls)

    async def open_dm(self, user: str = "ada") -> None:
        self.channel = self.simulator.open_dm(user)
        self.root = None

    async def open_thread(self) -> None:
        pass

    async def lose_events(self) -> None:
        await self.simulator.discard_pending()

    async def press(self, label: str, *, user: str = "ada") -> None:
        message, action = await wait_for_button(self.simulator, label, self.list_replies)
        assert await self.simulator.click_button(user, message, action)

    async def fill_form(self, *entries: str, user: str = "ada") -> None:
        (form,) = await self.simulator.wait_for(lambda: self.simulator.modals(user))
        assert await self.simulator.submit_modal(form, **{f"field-{n}": entry for n, entry in enumerate(entries)})

    async def rate(self, label: str, *, user: str = "ada") -> None:
        await self.press(label, user=user)

    async def run_command(self, name: str, argument: str = "", *, user: str = "ada") -> list[SlackMessage]:
        return await self.simulator.run_command(user, self.channel, f"/{name}", argument)

    def hold_private_message(self) -> None:
        self.simulator.faults.delay(("chat.postEphemeral", "response_url"), HELD_SECONDS)

    def list_replies(self) -> list[SlackMessage]:
        return [m for m in self.list_bot_messages() if m.ephemeral_to is None and not m.files]

    def list_files(self) -> list[tuple[str, bytes]]:
        return [(file.name, file.data) for message in self.list_bot_messages() for file in message.files]

    def list_private_messages(self, user: str = "ada") -> list[str]:
        return [m.text for m in self.list_bot_messages() if m.ephemeral_to == self.simulator.people[user].id]

    def list_versions(self) -> list[list[str]]:
        return [[version.text for version in message.versions] for message in self.list_replies()]

    def count_reactions(self) -> int:
        return sum(len(m.reactions) for m in self.simulator.messages(self.channel))

    def list_bot_messages(self) -> list[SlackMessage]:
        return [m for m in self.simulator.messages(self.channel) if m.user == self.simulator.bot_user_id]


class DiscordChat:
    """Conversation in a Discord channel or thread."""

    def __init__(self, simulator: DiscordSimulator, place: GuildChannel | None = None) -> None:
        self.simulator = simulator
        self.mention = f"<@{simulator.bot_id}>"
        self.place = place or simulator.channels["general"]

    async def say(
        self, text: str, *, user: str = "ada", mentions_bot: bool = True, files: Mapping[str, bytes] | None = None
    ) -> DiscordMessage:
        text = f"{self.mention} {text}" if mentions_bot else text
        return await self.simulator.post_message(user, self.place, text, files=files)

    async def answer(self, question: DiscordMessage, text: str, *, user: str) -> None:
        await self.simulator.post_message(user, self.place, f"{self.mention} {text}", reply_to=question)

    async def edit(self, message: DiscordMessage, text: str, *, user: str = "ada") -> None:
        await self.simulator.edit_message(user, message, f"{self.mention} {text}")

    async def delete(self, message: DiscordMessage, *, user: str = "ada") -> None:
        await self.simulator.delete_message(user, message)

    async def delete_reply(self, message: DiscordMessage) -> None:
        await self.simulator.delete_messages([message])

    async def redeliver(self, message: DiscordMessage) -> None:
        await self.simulator.invalidate_sessions()

    async def delay_edit(self) -> None:
        self.simulator.faults.delay(_DISCORD_EDIT, 0.5)

    def is_editing(self) -> bool:
        return any(call.route == _DISCORD_EDIT and not call.status for call in self.simulator.calls)

    async def open_dm(self, user: str = "ada") -> None:
        self.place = self.simulator.open_dm(user)

    async def open_thread(self) -> None:
        message = await self.simulator.post_message("ada", self.place, "numbers")
        self.place = await self.simulator.start_thread("ada", message, "numbers")

    async def lose_events(self) -> None:
        pass  # a new gateway session gets no earlier event

    async def press(self, label: str, *, user: str = "ada") -> None:
        message, action = await wait_for_button(self.simulator, label, self.list_replies)
        responses = await self.simulator.click_button(user, message, action)
        assert not [m.text for m in responses if m.author.id != self.simulator.bot_id]

    async def fill_form(self, *entries: str, user: str = "ada") -> None:
        (form,) = await self.simulator.wait_for(lambda: self.simulator.modals(user))
        values = {
            name: [entry] if "options" in field else entry
            for (name, field), entry in zip(form.inputs.items(), entries, strict=False)
        }
        await self.simulator.submit_modal(form, values)
        assert not self.simulator.modals(user)

    async def rate(self, label: str, *, user: str = "ada") -> None:
        message, _ = await wait_for_button(self.simulator, words.REGENERATE, self.list_replies)
        await self.simulator.run_message_command(user, message, label)

    async def run_command(self, name: str, argument: str = "", *, user: str = "ada") -> list[DiscordMessage]:
        options = {_OPTIONS[name]: argument} if argument else {}
        return await self.simulator.run_command(user, self.place, name, **options)

    def hold_private_message(self) -> None:
        self.simulator.faults.delay("PATCH /webhooks/{application}/{token}/messages/{message}", HELD_SECONDS)

    def list_replies(self) -> list[DiscordMessage]:
        return [m for m in self.list_bot_messages() if m.ephemeral_to is None and (m.text or m.buttons)]

    def list_files(self) -> list[tuple[str, bytes]]:
        return [(file.name, file.data) for message in self.list_bot_messages() for file in message.content.attachments]

    def list_private_messages(self, user: str = "ada") -> list[str]:
        return [m.text for m in self.list_bot_messages() if m.ephemeral_to == self.simulator.people[user]]

    def list_versions(self) -> list[list[str]]:
        return [[version.text for version in message.versions] for message in self.list_replies()]

    def count_reactions(self) -> int:
        return sum(len(m.reactions) for m in self.simulator.messages(self.place))

    def list_bot_messages(self) -> list[DiscordMessage]:
        return [m for m in self.simulator.messages(self.place) if m.author.id == self.simulator.bot_id]


def open_chat(simulator: Any, channel: str = "general") -> Chat:
    if isinstance(simulator, SlackSimulator):
        return SlackChat(simulator, channel)
    return DiscordChat(simulator, simulator.channels[channel])


def list_texts(chat: Chat) -> list[str]:
    return [message.text for message in chat.list_replies()]


def list_buttons(chat: Chat) -> list[list[str]]:
    """Return the button labels of each public message of the bot."""
    return [list(message.buttons) for message in chat.list_replies()]


async def wait_for_texts(chat: Chat, predicate: Callable[[list[str]], object]) -> list[str]:
    """Wait until the texts of the bot's public messages satisfy `predicate`, and return them.

    Raises:
        TimeoutError: with the current texts.
    """
    try:
        await chat.simulator.wait_for(lambda: predicate(list_texts(chat)))
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{list_texts(chat)}") from None
    return list_texts(chat)


async def wait_for_answers(chat: Chat, *texts: str) -> None:
    """Wait until the bot's public messages are exactly these, and all are complete."""
    await wait_for_texts(chat, lambda found: found == list(texts))
    await chat.simulator.wait_for(lambda: not any(words.STOP in labels for labels in list_buttons(chat)))


async def run_command(chat: Chat, name: str, argument: str = "", *, user: str = "ada") -> str:
    """Run a slash command, and return its response, which only the user sees."""
    responses = await chat.run_command(name, argument, user=user)
    await chat.simulator.wait_for(lambda: responses and not getattr(responses[0], "loading", False))
    text = str(responses[0].text)
    assert text in chat.list_private_messages(user)
    return text


async def export(chat: Chat) -> str:
    """Run the command `export`, and return its text and all files."""
    return await run_command(chat, "export") + "".join(data.decode() for _, data in chat.list_files())


async def wait_for_reactions(chat: Chat, count: int) -> None:
    await chat.simulator.wait_for(lambda: chat.count_reactions() == count)


async def wait_for_private_message(chat: Chat, text: str, *, user: str = "ada") -> None:
    """Wait until only this user sees exactly this message of the bot."""
    try:
        await chat.simulator.wait_for(lambda: chat.list_private_messages(user) == [text])
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{chat.list_private_messages(user)}") from None
