from typing import Any

from sandbox.slack import SlackSandbox
from sandbox.terminal.slack import SlackPlatform
from sandbox.terminal.view import Message, Person, Place
from tests.sandbox.terminal.conftest import Bot


async def test_a_stream_is_seen_growing_under_its_tasks_by_who_asked(slack: SlackSandbox, bot: Bot) -> None:
    platform, people = SlackPlatform(slack), slack.people
    question = await slack.say("ada", "general", "question")
    where: dict[str, Any] = {"channel": question.channel.id}
    task = {"type": "task_update", "id": "1", "title": "Looking…", "status": "in_progress"}
    to_ada = {"recipient_user_id": people["ada"].id, "recipient_team_id": slack.team_id}
    started = await bot.web.chat_startStream(**where, thread_ts=question.ts, chunks=[task], **to_ada)
    where["ts"] = started["ts"]

    def seen_by(name: str) -> Message:
        place = Place(question.channel.id, question.ts)
        return platform.messages(place, Person(people[name].id, name))[-1]

    found = [task | {"title": "Looked", "status": "complete"}, {"type": "markdown_text", "text": "**Found** it."}]
    assert (seen_by("ada").plain, seen_by("ada").pending) == ("Looking…", True)
    await bot.web.chat_appendStream(**where, chunks=found)
    assert seen_by("ada").plain == "✓ Looked\n**Found** it."
    assert seen_by("ada").text == "_✓ Looked_\n\n**Found** it."
    assert seen_by("grace").plain == "Looking…"
    await bot.web.chat_stopStream(**where)
    assert (seen_by("grace").plain, seen_by("grace").pending) == ("✓ Looked\n**Found** it.", False)
