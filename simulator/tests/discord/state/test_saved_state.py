import json

import aiohttp

from chatrig.discord import DiscordSimulator


async def test_a_later_simulator_continues_from_a_saved_state(server: DiscordSimulator) -> None:
    direct = server.open_dm("ada")
    private = server.add_channel("private", members=["grace"])
    question = await server.post_message("ada", "general", f"<@{server.bot_id}> hi", files={"a.txt": b"content"})
    await server.add_reaction("ada", question, "👋")
    thread = await server.start_thread("ada", question, "a thread")
    await server.post_message("grace", thread, "in it")
    await server.post_message("grace", "general", "and I?", reply_to=question)
    await server.post_message("ada", direct, "direct")
    gone = await server.post_message("ada", "random", "gone")
    await server.delete_message("ada", gone)
    state = server.save_state()

    async with DiscordSimulator(state=json.loads(json.dumps(state))) as later:
        assert later.save_state() == state
        assert (later.bot_token, later.people, later.guild_id) == (server.bot_token, server.people, server.guild_id)
        asked, answered = later.messages("general")
        assert (asked.content.attachments[0].data, list(asked.reactions)) == (b"content", ["👋"])
        assert answered.reply_to is asked
        (loaded_thread,) = later.threads("general")
        assert asked.thread is loaded_thread
        assert [message.text for message in later.messages(loaded_thread)][-1] == "in it"
        assert [message.text for message in later.messages(later.open_dm("ada"))] == ["direct"]
        assert later.channels["private"].members == private.members
        assert later.messages("random") == []
        headers = {"Authorization": f"Bot {later.bot_token}"}
        url = f"{later.api_url}/channels/{direct.id}/messages"
        async with aiohttp.ClientSession() as session, session.post(url, json={"content": "yes"}, headers=headers) as r:
            assert r.status == 200, await r.text()
        assert later.messages(direct.id)[1].author.id == later.bot_id
