import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import discord
import pytest

from chatrig.client.discord import DiscordPlatform
from chatrig.client.platform import ClientEventKind, ClientLocation, ClientMessage
from chatrig.client.session import ChatSession
from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect
from tests.terminal.conftest import DiscordBot


@pytest.fixture
def session(server: DiscordSimulator) -> ChatSession:
    return ChatSession(DiscordPlatform(server))


def list_texts(session: ChatSession) -> list[str]:
    """Return "author: plain text" of each message in the client's open place."""
    return [
        f"{message.author}: {message.plain_text}"
        for message in session.platform.list_messages(session.place, session.user)
    ]


def get_last_message(session: ChatSession) -> ClientMessage:
    return session.platform.list_messages(session.place, session.user)[-1]


async def run_lines(session: ChatSession, *lines: str) -> str:
    """Run command lines in the client, and return the last one's notice to the user."""
    notice = ""
    for line in lines:
        notice = await session.run_line(line)
    return notice


async def test_names_with_an_at_sign_become_mentions(session: ChatSession, discord_bot: DiscordBot) -> None:
    await run_lines(session, "/channel general", "@Bot and @grace, not ada@grace.example")
    received = await discord_bot.next_message()
    assert {user.name for user in received.mentions} == {"bot", "grace"}
    assert list_texts(session) == ["ada: @bot and @grace, not ada@grace.example"]
    assert get_last_message(session).markdown.startswith("**@bot** and **@grace**")


async def test_channel_mentions_show_channel_names(session: ChatSession, server: DiscordSimulator) -> None:
    await run_lines(session, "/channel general", f"see <#{server.channels['random'].id}>")
    assert (get_last_message(session).plain_text, get_last_message(session).markdown) == (
        "see #random",
        "see **#random**",
    )


async def test_a_forwarded_message_shows_its_content(session: ChatSession, server: DiscordSimulator) -> None:
    message = await server.post_message("grace", "general", "the disk is **full**")
    await server.forward_message("ada", message, "random")
    await run_lines(session, "/channel random")
    assert list_texts(session) == ["ada: Forwarded: the disk is **full**"]


async def test_direct_messages_have_no_threads(session: ChatSession, discord_bot: DiscordBot) -> None:
    await run_lines(session, "hello")
    received = await discord_bot.next_message()
    await received.channel.send("hello Ada")
    assert list_texts(session) == ["ada: hello", "bot: hello Ada"]
    assert await run_lines(session, "/thread last") == "Direct messages in Discord have no threads."


async def test_a_thread_starts_with_its_first_reply(session: ChatSession, server: DiscordSimulator) -> None:
    await run_lines(session, "/channel general", "why is\nthe sky blue?", "/thread last")
    assert server.threads("general") == []
    await run_lines(session, "anyone?", "/as grace", "no")
    (thread,) = server.threads("general")
    assert thread.name == "why is the sky blue?"
    assert [message.text for message in server.messages(thread)[1:]] == ["anyone?", "no"]
    assert list_texts(session) == ["ada: why is\nthe sky blue?", "ada: anyone?", "grace: no"]
    await run_lines(session, "/channel general")
    (root,) = session.platform.list_messages(session.place, session.user)
    assert root.newest_reply is not None
    assert (root.reply_count, root.newest_reply.plain_text) == (2, "no")
    assert session.platform.list_threads(session.user) == [
        ClientLocation(thread.parent.id if thread.parent else "", thread.id)
    ]


async def test_a_thread_of_the_bot_takes_replies(session: ChatSession, discord_bot: DiscordBot) -> None:
    await run_lines(session, "/channel general", "@bot hello")
    received = await discord_bot.next_message()
    thread = await received.create_thread(name="A talk")
    await thread.send("hello Ada")
    await run_lines(session, "/thread last", "and now?")
    assert (await discord_bot.next_message()).channel == thread
    assert session.place.name == "A talk"
    assert list_texts(session) == ["ada: @bot hello", "bot: hello Ada", "ada: and now?"]


async def test_a_thread_without_a_first_message_is_a_place(
    session: ChatSession, server: DiscordSimulator, discord_bot: DiscordBot
) -> None:
    channel = discord_bot.get_simulator_channel(server, "random")
    thread = await channel.create_thread(name="Loose", type=discord.ChannelType.public_thread)
    (place,) = session.platform.list_threads(session.user)
    assert place.name == "Loose"
    session.open_place(place)
    await run_lines(session, "hello")
    assert (await discord_bot.next_message()).channel.id == thread.id
    assert list_texts(session) == ["ada: hello"]


async def test_a_message_in_a_forum_starts_a_post(session: ChatSession, server: DiscordSimulator) -> None:
    await run_lines(session, "/channel ideas", "Paint it blue")
    (post,) = server.threads("ideas")
    assert post.name == "Paint it blue"
    assert list_texts(session) == ["ada: Paint it blue"]
    await run_lines(session, "/thread last", "or green")
    assert [message.text for message in server.messages(post)] == ["Paint it blue", "or green"]
    assert list_texts(session) == ["ada: Paint it blue", "ada: or green"]
    assert len(server.threads("ideas")) == 1


async def test_a_command_is_an_interaction(
    session: ChatSession, server: DiscordSimulator, discord_bot: DiscordBot
) -> None:
    discord_bot.answers.set()
    await run_lines(session, "/channel general", "/ask the weather")
    await server.wait_for(lambda: list_texts(session) == ["bot: About the weather"])
    assert get_last_message(session).ephemeral_to == session.user.id
    await run_lines(session, "/as grace")
    assert list_texts(session) == []


async def test_a_deferred_response_is_pending_until_edited(session: ChatSession, discord_bot: DiscordBot) -> None:
    async with aclosing(session.platform.changes()) as changes:
        await run_lines(session, "/ask what:the weather")
        first = await anext(changes)
        discord_bot.answers.set()
        second_change = await anext(changes)
    assert (first.kind, first.message.plain_text, first.message.is_pending) == (
        ClientEventKind.POSTED,
        "bot is thinking…",
        True,
    )
    assert (second_change.kind, second_change.message.plain_text, second_change.message.is_pending) == (
        ClientEventKind.UPDATED,
        "About the weather",
        False,
    )
    assert not second_change.message.is_edited


async def test_an_unanswered_command_shows_discords_error(session: ChatSession, discord_bot: DiscordBot) -> None:
    assert await run_lines(session, "/nothing") == "There is no command /nothing."
    assert await run_lines(session, "/channel ideas", "/ask") == "Commands do not work in a forum. Open a post first."


async def test_a_reply_shows_the_replied_message(session: ChatSession, discord_bot: DiscordBot) -> None:
    await run_lines(session, "hello")
    await (await discord_bot.next_message()).reply("to you too")
    referred = get_last_message(session).reply_to
    assert referred is not None
    assert (referred.author, referred.plain_text, get_last_message(session).reply_to is None) == ("ada", "hello", False)


async def test_files_and_embeds_are_shown_as_text(
    session: ChatSession, server: DiscordSimulator, discord_bot: DiscordBot
) -> None:
    view = discord.ui.View()
    view.add_item(discord.ui.Button(label="Stop", custom_id="stop"))
    view.add_item(discord.ui.Button(label="Read", url="https://a.example/"))
    embed = discord.Embed(title="Weather", description="**fine**")
    await run_lines(session, "/channel general")
    await discord_bot.get_simulator_channel(server, "general").send("Look", embed=embed, view=view)
    await server.post_message("grace", "general", "", files={"a.txt": b"a"})
    look, file = session.platform.list_messages(session.place, session.user)
    assert look.markdown == "Look\n\nWeather\n\n**fine**"
    assert look.plain_text == "Look\nWeather\n**fine**\nRead: https://a.example/\n[ Stop ]"
    assert file.plain_text == "[file a.txt]"


async def test_edits_and_reactions_are_shown(session: ChatSession, server: DiscordSimulator) -> None:
    message = await server.post_message("grace", "general", "one")
    async with aclosing(session.platform.changes()) as changes:
        await server.edit_message("grace", message, "two")
        await server.add_reaction("linus", message, "👍")
        await server.delete_message("grace", message)
        edited, reacted, deleted = [await anext(changes) for _ in range(3)]
    assert (edited.kind, edited.message.plain_text, edited.message.is_edited, edited.message.revision) == (
        ClientEventKind.UPDATED,
        "two",
        True,
        1,
    )
    assert [(reaction.emoji, reaction.count) for reaction in reacted.message.reactions] == [("👍", 1)]
    assert deleted.kind is ClientEventKind.DELETED


async def test_private_threads_are_hidden_from_other_users(server: DiscordSimulator) -> None:
    platform = DiscordPlatform(server)
    ada, grace, *_ = platform.people
    server.add_channel("secret", members=["grace"])
    message = await server.post_message("grace", "secret", "psst")
    await server.start_thread("grace", message, "whispers")
    assert [place.name for place in platform.list_threads(grace)] == ["whispers"]
    assert platform.list_threads(ada) == []
    session = ChatSession(platform)
    assert await run_lines(session, "/channel secret", "hello") == "ada is not in secret"


async def test_a_button_is_clicked_by_its_label(
    session: ChatSession, server: DiscordSimulator, discord_bot: DiscordBot
) -> None:
    pressed = asyncio.get_running_loop().create_future()

    class AskView(discord.ui.View):
        @discord.ui.button(label="Again", custom_id="again:1")
        async def press_again(self, interaction: discord.Interaction, _button: discord.ui.Button["AskView"]) -> None:
            await interaction.response.defer()
            pressed.set_result(interaction.user.name)

    await run_lines(session, "/channel general")
    assert await run_lines(session, "/press again") == "There is no button 'again' here. There are no buttons."
    await discord_bot.get_simulator_channel(server, "general").send("It failed.", view=AskView(timeout=None))
    assert list_texts(session) == ["bot: It failed.\n[ Again ]"]
    assert await run_lines(session, "/as grace", "/press AG") == ""
    assert await asyncio.wait_for(pressed, 30) == "grace"


async def test_own_messages_are_edited_deleted_and_sent_with_files(
    session: ChatSession, server: DiscordSimulator, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(b"a;b")
    assert await run_lines(session, "/channel general", "/edit hm") == "ada has no messages here."
    await server.post_message("grace", "general", "hello")
    assert (
        await run_lines(session, "see #here", "/edit @grace look", "/as grace", "hm", "/as ada", "/edit hey @grace")
        == ""
    )
    assert list_texts(session) == ["grace: hello", "ada: hey @grace", "grace: hm"]
    assert (await run_lines(session, "/edit")).startswith("Add the")
    assert await run_lines(session, "/as grace", "/delete", f"/file {tmp_path}/a.csv what is it?") == ""
    assert list_texts(session)[1:] == ["ada: hey @grace", "grace: what is it?\n[file a.csv]"]
    assert [a.data for a in server.messages("general")[-1].content.attachments] == [b"a;b"]
    assert "Cannot read" in await run_lines(session, f"/file {tmp_path}/b.csv")
    assert await run_lines(session, "/channel ideas", f"/file {tmp_path}/a.csv x") == (
        "Start the post with text, then send the file in it."
    )


class FormModal(discord.ui.Modal, title="Report"):
    why = discord.ui.TextInput[Any](label="Reason", custom_id="why", max_length=10)
    size = discord.ui.Label[Any](
        text="Size",
        component=discord.ui.Select(
            custom_id="size", options=[discord.SelectOption(label=one, value=one, default=one == "m") for one in "sm"]
        ),
    )

    async def on_submit(self, interaction: discord.Interaction) -> None:
        assert isinstance(self.size.component, discord.ui.Select)
        await interaction.response.send_message(f"{self.why.value} {self.size.component.values[0]}")


class ContextMenuBot(DiscordBot):
    """discord.py client with message commands that open a modal or quote the message."""

    def __init__(self) -> None:
        super().__init__()

        @self.tree.context_menu(name="Report this")
        async def report(interaction: discord.Interaction, message: discord.Message) -> None:
            await interaction.response.send_modal(FormModal())

        @self.tree.context_menu(name="Quote")
        async def quote(interaction: discord.Interaction, message: discord.Message) -> None:
            await interaction.response.send_message(f"> {message.content}")


async def test_the_text_of_a_message_command_fills_its_modal(
    session: ChatSession, server: DiscordSimulator, connect: Connect
) -> None:
    await connect(server, bot=ContextMenuBot())
    await server.post_message("grace", "general", "it broke")
    assert await run_lines(session, "/channel general", "/menu report: too long") == ""
    assert list_texts(session) == ["grace: it broke", "bot: too long m"]
    assert await session.run_line("/menu report: far too long now") == "Reason takes 0 to 10 characters"
    await server.post_message("grace", "general", "again")
    assert await session.run_line("/menu quote: why") == "This command opened no form for the text: /menu Quote"
    assert list_texts(session)[-1] == "bot: > again"


async def test_buttons_in_containers_are_clicked(
    session: ChatSession, server: DiscordSimulator, discord_bot: DiscordBot
) -> None:
    class ContainerView(discord.ui.LayoutView):
        section = discord.ui.Container[Any](
            discord.ui.Section("hello", accessory=discord.ui.Button(label="Beside", custom_id="beside")),
            discord.ui.ActionRow(discord.ui.Button(label="Below", custom_id="below")),
        )

    await run_lines(session, "/channel general")
    await discord_bot.get_simulator_channel(server, "general").send(view=ContainerView(timeout=None))
    assert get_last_message(session).buttons == {"Beside": "beside", "Below": "below"}
