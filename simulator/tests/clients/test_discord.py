"""discord.js and hikari in the local Discord: a scripted bot each, and one table.

The table lists the capabilities that both clients are tested for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chatrig.discord import DiscordMessage, DiscordSimulator, GuildChannel
from chatrig.discord.shapes import OBJECTS, SHAPES, find_event_errors, find_request_errors, find_response_errors
from chatrig.discord.state.permissions import PERMISSIONS
from tests.clients.client_script import CapabilityTable, ClientScript, Line, find_command, run_script

TABLE = CapabilityTable["DiscordClientRun"]()


@dataclass(frozen=True, slots=True)
class DiscordClientRun:
    """Local Discord with the user Ada and a client script as its bot."""

    server: DiscordSimulator
    client: ClientScript

    async def mention(
        self, step: str, argument: str = "", *, channel: GuildChannel | None = None, **details: Any
    ) -> DiscordMessage:
        """Post a message of Ada that mentions the bot with a step; return the message.

        A new channel, which has its own rate limits, is the default.

        Args:
            argument: text after the step.
            details: more arguments of `DiscordSimulator.post_message`.
        """
        place = channel or self.server.add_channel(step.lower())
        text = f"<@{self.server.bot_id}> {step} {argument}".strip()
        return await self.server.post_message("ada", place, text, **details)

    async def run_step(self, step: str, argument: str = "") -> tuple[list[DiscordMessage], Line]:
        """Mention the bot with a step, and wait for the script's JSON line.

        Returns:
            The later messages in the channel, and the line.
        """
        mention = await self.mention(step, argument)
        line = await self.client.read_step(step)
        return self.list_replies(mention), line

    def list_replies(self, mention: DiscordMessage) -> list[DiscordMessage]:
        return [message for message in self.server.messages(mention.channel) if int(message.id) > int(mention.id)]


@TABLE.row("start: identify, the cache, commands, a wrong token refused")
async def start(run: DiscordClientRun) -> None:
    line = await run.client.read_step("start")
    assert (line["user"], line["guilds"], line["wrongToken"]) == ("bot", ["Simulator"], 401)
    assert {"general", "random", "ideas"} <= set(line["channels"])
    names = ["Summarize", "ask", "slow", "whisper"]
    assert sorted(line["registered"]) == sorted(line["listed"]) == names


@TABLE.row("mention: the event, and a reply that pings its author")
async def mention(run: DiscordClientRun) -> None:
    (reply,), line = await run.run_step("mention")
    ada = run.server.people["ada"]
    assert line["content"] == f"<@{run.server.bot_id}> mention"
    assert (line["author"], line["isMentioned"], line["guild"]) == ("ada", True, "Simulator")
    assert line["channel"] == "mention"
    assert (reply.text, set(reply.pings)) == (f"hello @{ada.display_name}", {ada.id})
    assert reply.reply_to is not None


@TABLE.row("edits: typing, a placeholder, four edits, the final message with embed and buttons")
async def edits(run: DiscordClientRun) -> None:
    (reply,), line = await run.run_step("edits")
    assert [version.text for version in reply.versions] == ["…", *(f"so far {n}" for n in range(1, 5)), "done"]
    assert line == {"step": "edits", "isEdited": True, "embed": "Answer", "labels": ["stop", "Site"]}
    assert any(call.route == "POST /channels/{channel}/typing" for call in run.server.calls)


@TABLE.row("flags: a silent message, its embeds hidden and shown again")
async def flags(run: DiscordClientRun) -> None:
    _, line = await run.run_step("flags")
    silent, hidden = 1 << 12, 1 << 2
    assert line["flags"] == [silent, silent | hidden, silent]


@TABLE.row("delete: the bot's message, once")
async def delete(run: DiscordClientRun) -> None:
    replies, line = await run.run_step("delete")
    assert (replies, line["deletedTwice"]) == ([], 10008)


@TABLE.row("buttons: update, deferred update, ephemeral reply, ephemeral follow-up")
async def buttons(run: DiscordClientRun) -> None:
    (message,), _ = await run.run_step("buttons")
    await run.server.click_button("ada", message, "update")
    await run.client.read_step("#update")
    assert message.text == "pressed"
    await run.server.click_button("ada", message, "later")
    await run.client.read_step("#later")
    assert message.text == "pressed later"
    (whisper,) = await run.server.click_button("ada", message, "secret")
    assert (await run.client.read_step("#secret"))["respondedTwice"] == 40060
    assert (whisper.text, whisper.ephemeral_to) == ("psst", run.server.people["ada"])
    responses = await run.server.click_button("ada", message, "more")
    assert (await run.client.read_step("#more"))["content"] == "more"
    assert [answer.text for answer in responses] == ["more"]


@TABLE.row("selects: options, users, roles, channels, mentionables, with the objects")
async def selects(run: DiscordClientRun) -> None:
    (message,), _ = await run.run_step("selects")
    ada, random = run.server.people["ada"], run.server.channels["random"]
    role = run.server.assign_role("ada", "editors")
    await run.server.select_values("ada", message, "text", ["red", "blue"])
    assert (await run.client.read_step("#text"))["values"] == ["red", "blue"]
    for name, id_, expected in (
        ("user", ada.id, "ada"),
        ("role", role, "editors"),
        ("channel", random.id, "random"),
        ("mentionable", ada.id, "ada"),
    ):
        await run.server.select_values("ada", message, name, [id_])
        assert await run.client.read_step(f"#{name}") == {"step": f"#{name}", "values": [id_], "names": [expected]}


@TABLE.row("modal: open by a button, submit, reply")
async def modals(run: DiscordClientRun) -> None:
    (message,), _ = await run.run_step("modals")
    await run.server.click_button("ada", message, "open")
    await run.client.read_step("#open")
    (modal,) = run.server.modals("ada")
    values: dict[str, Any] = {"why": "why not", "colour": ["blue"]}
    (answer,) = await run.server.submit_modal(modal, {name: values[name] for name in modal.inputs})
    line = await run.client.read_step("form")
    assert line["why"] == "why not"
    assert line["colour"] == (["blue"] if "colour" in modal.inputs else None)
    assert answer.text == "thanks"
    assert run.server.modals("ada") == []


@TABLE.row("components V2: a container with text, section, separator and buttons")
async def components_v2(run: DiscordClientRun) -> None:
    (message,), line = await run.run_step("componentsV2")
    assert line["types"] == [10, 14, 9, 1]
    assert message.content.components[0]["type"] == 17


@TABLE.row("slash command: options, reply, autocomplete")
async def command(run: DiscordClientRun) -> None:
    choices = await run.server.autocomplete_option("ada", "general", "/ask", "what", "wh")
    assert (await run.client.read_step("autocomplete"))["typed"] == "wh"
    assert choices == ["wh!"]
    (answer,) = await run.server.run_command("ada", "general", "/ask", what="why", times=2, loud=True)
    line = await run.client.read_step("/ask")
    assert line == {"step": "/ask", "what": "why", "times": 2, "loud": True, "user": "ada"}
    assert answer.text == "you asked why"


@TABLE.row("slash command: deferred reply, its edit, a follow-up and its edit, deletion")
async def slow_command(run: DiscordClientRun) -> None:
    answer, followup = await wait_for_two(run, await run.server.run_command("ada", "random", "/slow"))
    assert (await run.client.read_step("/slow"))["content"] == "done"
    assert (answer.text, answer.deleted) == ("done", True)
    assert [version.text for version in followup.versions] == ["more", "still more"]


async def wait_for_two(run: DiscordClientRun, responses: list[DiscordMessage]) -> list[DiscordMessage]:
    await run.server.wait_for(lambda: len(responses) == 2)
    return responses


@TABLE.row("slash command in a direct message: ephemeral reply with the message")
async def whisper(run: DiscordClientRun) -> None:
    (answer,) = await run.server.run_command("grace", run.server.open_dm("grace"), "/whisper")
    assert (await run.client.read_step("/whisper"))["content"] == "psst"
    assert answer.ephemeral_to == run.server.people["grace"]


@TABLE.row("commands: one is created, edited and deleted")
async def one_command(run: DiscordClientRun) -> None:
    _, line = await run.run_step("oneCommand")
    assert line == {"step": "oneCommand", "edited": "Two", "listed": ["temporary"], "remaining": 0}


@TABLE.row("message menu: the message, an ephemeral reply")
async def menu(run: DiscordClientRun) -> None:
    message = await run.server.post_message("ada", run.server.add_channel("menu"), "this")
    (answer,) = await run.server.run_message_command("ada", message, "Summarize")
    assert (await run.client.read_step("/Summarize"))["target"] == message.id
    assert answer.text == "about this"


@TABLE.row("files up: names, description, bytes, one dropped by an edit")
async def upload(run: DiscordClientRun) -> None:
    (message,), line = await run.run_step("upload")
    assert line["names"] == ["a_b.txt", "b.bin"]
    assert line["description"] in ("bytes", None)  # hikari sends no descriptions
    assert (line["bytes"], line["remaining"]) == ([0, 255, 10], ["b.bin"])
    assert [file.name for file in message.content.attachments] == ["b.bin"]


@TABLE.row("files down: a person's file")
async def files(run: DiscordClientRun) -> None:
    await run.mention("files", files={"notes.txt": b"note"})
    line = await run.client.read_step("files")
    assert (line["name"], bytes(line["bytes"])) == ("notes.txt", b"note")


@TABLE.row("direct messages: a person's first one, an answer, one that the bot begins")
async def direct(run: DiscordClientRun) -> None:
    dm = run.server.open_dm("linus")
    await run.server.post_message("linus", dm, "hello")
    line = await run.client.read_step("directMessage")
    assert (line["content"], line["author"]) == ("hello", "linus")
    _, line = await run.run_step("direct")
    assert line["isDirect"]
    texts = [message.text for name in ("linus", "ada") for message in run.server.messages(run.server.open_dm(name))]
    assert texts == ["hello", "you wrote hello", "in private"]


@TABLE.row("threads: from a message, public, private, forum post; rename, archive, list")
async def threads(run: DiscordClientRun) -> None:
    _, line = await run.run_step("threads")
    assert line["types"] == [11, 11, 12, 11]
    assert {"from a message", "renamed", "private", "a post"} <= set(line["names"])
    assert (line["starter"], line["startedTwice"]) == (True, 160004)


@TABLE.row("threads: a person's thread, a mention and a reply in it, joins")
async def in_thread(run: DiscordClientRun) -> None:
    channel = run.server.add_channel("parent")
    thread = await run.server.start_thread("ada", await run.server.post_message("ada", channel, "root"), "talk")
    assert (await run.client.read_step("threadCreated"))["name"] == "talk"
    assert (await run.client.read_step("threadMembers"))["names"] == ["ada"]
    message = await run.mention("inThread", channel=thread)
    assert await run.client.read_step("inThread") == {"step": "inThread", "isThread": True, "parent": "parent"}
    assert [reply.text for reply in run.list_replies(message)] == ["here"]
    assert (await run.client.read_step("threadMembers"))["names"] == ["bot"]
    await run.server.post_message("grace", thread, "me too")
    assert (await run.client.read_step("threadMembers"))["names"] == ["grace"]


@TABLE.row("threads: members, the archived ones")
async def archived_threads(run: DiscordClientRun) -> None:
    _, line = await run.run_step("archivedThreads")
    assert line == {"step": "archivedThreads", "members": 2, "isMember": True, "names": ["old"]}


@TABLE.row("history: before, after, around, one message")
async def history(run: DiscordClientRun) -> None:
    channel = run.server.add_channel("history")
    for count in range(6):
        await run.server.post_message("ada", channel, f"{count}")
    await run.mention("history", channel=channel)
    line = await run.client.read_step("history")
    assert (line["before"], line["after"]) == (["2", "1"], ["5", "4"])
    assert (line["around"], line["one"]) == (["4", "3", "2"], "3")


@TABLE.row("reactions: three within the rate limit, one removed, an unknown emoji")
async def reactions(run: DiscordClientRun) -> None:
    message = await run.mention("reactions")
    assert (await run.client.read_step("reactions"))["unknown"] == 10014
    assert list(message.reactions) == ["👍", "🎉"]
    # discord.js forgets the first response of a route when it learns the name of its bucket.
    assert sum(call.rate_limited for call in run.server.calls if message.id in call.path) <= 1


@TABLE.row("reactions of people: listed, one removed, all removed")
async def clean_reactions(run: DiscordClientRun) -> None:
    channel = run.server.add_channel("clean")
    message = await run.server.post_message("ada", channel, "wave")
    for name in ("ada", "grace"):
        await run.server.add_reaction(name, message, "👋")
    await run.mention("cleanReactions", message.id, channel=channel)
    line = await run.client.read_step("cleanReactions")
    assert (line["users"], line["remaining"]) == (["ada", "grace"], ["grace"])
    assert message.reactions == {}


@TABLE.row("pins: one by the bot, listed and removed; one by a person")
async def pins(run: DiscordClientRun) -> None:
    message = await run.mention("pins")
    assert await run.client.read_step("pins") == {"step": "pins", "pinned": [message.id], "remaining": 0}
    await run.server.pin_message("ada", message)
    for _ in range(3):
        assert (await run.client.read_step("pinned"))["name"] == "pins"


@TABLE.row("bulk deletion")
async def bulk_delete(run: DiscordClientRun) -> None:
    replies, _ = await run.run_step("bulkDelete")
    assert replies == []


@TABLE.row("polls: a question, a vote, the voters, its end")
async def polls(run: DiscordClientRun) -> None:
    (message,), line = await run.run_step("poll")
    assert (line["question"], line["answers"]) == ("Tea?", ["yes", "no"])
    await run.server.vote("ada", message, 2)
    line = await run.client.read_step("voted")
    assert (line["answer"], line["voters"], line["isOver"]) == (2, ["ada"], True)


@TABLE.row("forwards: a message to another channel")
async def forward(run: DiscordClientRun) -> None:
    channel = run.server.add_channel("target")
    _, line = await run.run_step("forward", channel.id)
    (message,) = run.server.messages(channel)
    assert message.forwarded_message is not None
    assert line["content"] == message.forwarded_message.content.text


@TABLE.row("members: listed, searched, the bot's own nickname")
async def members(run: DiscordClientRun) -> None:
    _, line = await run.run_step("members")
    assert {"ada", "grace", "bot"} <= set(line["listed"])
    assert line["found"] == ["grace"]


@TABLE.row("channels: made, edited and deleted, with a webhook and an invite")
async def manage_channels(run: DiscordClientRun) -> None:
    _, line = await run.run_step("manageChannels")
    assert (line["topic"], line["isByWebhook"], line["deletedChannel"]) == ("second", True, 10003)
    assert line["code"]


@TABLE.row("events of people: edit, react, type, delete, join")
async def people(run: DiscordClientRun) -> None:
    message = await run.server.post_message("ada", run.server.add_channel("people"), "before")
    await run.server.edit_message("ada", message, "after")
    assert (await run.client.read_step("changed"))["content"] == "after"
    await run.server.add_reaction("ada", message, "👋")
    assert (await run.client.read_step(f"reacted {message.id}"))["emoji"] == "👋"
    await run.server.start_typing("ada", message.channel)
    assert (await run.client.read_step("typing"))["name"] == "ada"
    await run.server.delete_message("ada", message)
    assert (await run.client.read_step("deleted"))["id"] == message.id
    run.server.add_user("alan")
    assert (await run.client.read_step("joined"))["name"] == "alan"


@TABLE.row("directory: my guilds, users, members, channels, roles, the application")
async def directory(run: DiscordClientRun) -> None:
    _, line = await run.run_step("directory")
    assert (line["guilds"], line["user"], line["member"]) == (["Simulator"], "ada", "Ada Lovelace")
    assert line["memberCount"] >= 4
    assert {"general", "ideas"} <= set(line["channels"])
    assert {"@everyone", "editors"} <= set(line["roles"])
    assert line["application"] == run.server.bot_id
    assert {"ada", "grace", "linus"} <= set(line["members"])


@TABLE.row("refusals: each with Discord's error code")
async def errors(run: DiscordClientRun) -> None:
    secret = run.server.add_channel("secret", members=["ada"], bot=False)
    _, line = await run.run_step("errors", secret.id)
    assert line == {
        "step": "errors",
        "nowhere": 10003,
        "secret": 50001,
        "nothing": 10008,
        "nobody": 10013,
        "foreign": 50005,
        "empty": 50006,
        **dict.fromkeys(("long", "badButtons", "badEmbed"), 50035),
    }


@TABLE.row("rate limits: the client waits after a 429 for the route and a global one")
async def slow_down(run: DiscordClientRun) -> None:
    for scope in ("user", "global"):
        channel = run.server.add_channel(f"slow-{scope}")
        run.server.faults.rate_limit("POST /channels/{channel}/messages", 0.3, scope=scope)
        message = await run.mention("slowDown", channel=channel)
        await run.client.read_step("slowDown")
        assert [reply.text for reply in run.list_replies(message)] == ["at last"]


@TABLE.row("rate limits: after a 429 of Cloudflare the client waits, or reports it")
async def cloudflare_limit(run: DiscordClientRun) -> None:
    run.server.faults.rate_limit("POST /channels/{channel}/messages", 0.3, has_via_header=False)
    replies, line = await run.run_step("cloudflareLimit")
    assert [reply.text for reply in replies] == ([] if line["status"] == 429 else ["at last"])


@TABLE.row("server error: the client tries again after a 502")
async def retry(run: DiscordClientRun) -> None:
    run.server.faults.fail("POST /channels/{channel}/messages", status=502)
    (message,), _ = await run.run_step("retry")
    assert message.text == "again"


@TABLE.row("gateway: a cut connection is resumed, and no event is lost")
async def resume(run: DiscordClientRun) -> None:
    await run.server.drop_sockets()
    await run.mention("ping")
    await run.client.read_step("ping")
    await run.client.read_step("resumed")


@TABLE.row("gateway: op 7 is followed by a resume")
async def reconnect(run: DiscordClientRun) -> None:
    await run.server.refresh_sockets()
    await run.client.read_step("resumed")


@TABLE.row("gateway: an outage of the server begins and ends")
async def outage(run: DiscordClientRun) -> None:
    await run.server.set_guild_available(False)
    await run.client.read_step("unavailable")
    await run.server.set_guild_available(True)
    await run.client.read_step("available")


@TABLE.row("gateway: op 9 of a resumable session is followed by a resume")
async def resumable_session(run: DiscordClientRun) -> None:
    before = len(run.server.sessions)
    await run.server.invalidate_sessions(resumable=True)
    await run.client.read_step("resumed")
    assert len(run.server.sessions) == before


@TABLE.row("gateway: as many shards as recommended")
async def shards(run: DiscordClientRun) -> None:
    run.server.recommend_shards(2, max_concurrency=2)
    _, line = await run.run_step("shards")
    assert line["count"] == 2
    assert sorted(session.shard for session in run.server.sessions[-2:]) == [(0, 2), (1, 2)]
    run.server.recommend_shards(1)


@TABLE.row("gateway: without the message content intent, only mentions have text")
async def no_content(run: DiscordClientRun) -> None:
    await run.run_step("noContent")
    channel = run.server.add_channel("quiet")
    await run.server.post_message("ada", channel, "nobody reads this")
    await run.mention("ping", channel=channel)
    assert (await run.client.read_step("received"))["texts"] == ["", f"<@{run.server.bot_id}> ping"]
    await run.client.read_step("ping")


@TABLE.row("gateway: disallowed intents and a wrong token are refused")
async def refuse_login(run: DiscordClientRun) -> None:
    _, line = await run.run_step("refuseLogin")
    assert re.search("disallowed intent|4014", line["intents"])
    assert "token" in line["token"].lower()


@TABLE.row("gateway: op 9 is followed by a new session")
async def invalid_session(run: DiscordClientRun) -> None:
    before = len(run.server.sessions)
    await run.server.invalidate_sessions()
    await run.server.wait_for(lambda: len(run.server.sessions) > before and run.server.connection_count)
    await run.mention("ping", channel=run.server.add_channel("again"))
    await run.client.read_step("ping")


def find_all_faults(server: DiscordSimulator) -> Iterator[str]:
    """Yield each breach of Discord's specification by a request, response or event."""
    for call in server.calls:
        if call.route in server.faults.routes:
            if call.status < 400:
                yield from find_request_errors(call)
            is_of_cloudflare = call.status == 429 and call.response is None
            if call.status != 502 and not is_of_cloudflare:
                yield from find_response_errors(call)
    for event in server.events:
        if event.name in OBJECTS:
            yield from find_event_errors(event)


@pytest.mark.long
@pytest.mark.parametrize("script", ["discordjs.mjs", "hikari_bot.py"])
async def test_a_discord_client_works(script: str, subtests: pytest.Subtests, tmp_path: Path) -> None:
    command = find_command(script)
    async with DiscordSimulator() as server:
        server.privileged_intents.discard("guild_presences")
        server.permissions.update(PERMISSIONS)
        environment = {"DISCORD_API_URL": server.api_url, "DISCORD_TOKEN": server.bot_token}
        async with run_script(command, environment, tmp_path / "client.log") as client:
            await TABLE.check(subtests, DiscordClientRun(server, client))
        with subtests.test("requests, replies and events match Discord's specification"):
            if not SHAPES:
                pytest.skip("PLATFORM_SHAPES names no folder with the platforms' shapes")
            assert sorted(set(find_all_faults(server))) == []
