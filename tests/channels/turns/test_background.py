"""Background tools and tickets on both platforms, through the real clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext

from channels.i18n import messages as words
from chatrig.models import CallTool, Pause, ReceivedRequest, Say
from core.errors import TicketError
from core.store.schema import jobs as jobs_table
from core.tools.tool import background
from core.turns.automation.jobs import FinishResult, JobResult, get_event_key
from core.turns.automation.tickets import Ticket, finish_ticket, get_ticket, set_running_store
from core.turns.claims import derive_turn_id
from tests.channels.platforms import PLATFORMS, Chat, run_conversation, run_simulator, wait_for_texts
from tests.channels.wiring import PUBLIC_URL
from tests.scenarios.chat import run_command

pytestmark = pytest.mark.parametrize("platform", PLATFORMS)


def script(tool: str, **arguments: Any) -> Callable[[ReceivedRequest], Any]:
    """Return a model that calls a tool once, and then answers with the last message that it read."""

    def answer(request: ReceivedRequest) -> Any:
        roles = [role for role, _ in request.messages]
        if "tool" not in roles:
            return [CallTool(tool, arguments, id="call_1")]
        return "It runs." if roles[-1] == "tool" else f"Result: {request.text}"

    return answer


@asynccontextmanager
async def run_chat(platform: str, folder: Path, tool: Any, **settings: Any) -> AsyncIterator[Chat]:
    """Run a bot with one tool, which a user has asked for."""
    model = script(tool.name, **settings.pop("arguments", {}))
    async with (
        run_simulator(platform) as simulator,
        run_conversation(simulator, folder, model, core={"tools": [tool]}, **settings) as chat,
    ):
        services = chat.bot.services
        placing = asyncio.create_task(chat.bot.triggered.run_placing({platform: chat.bot.adapter.place}))
        set_running_store(services.jobs.store)
        try:
            await chat.say("count the stars")
            yield chat
        finally:
            set_running_store(None)
            placing.cancel()
            await asyncio.wait([placing])


async def list_jobs(chat: Chat) -> list[Any]:
    async with chat.bot.database.read() as connection:
        return list((await connection.execute(sa.select(jobs_table).order_by(jobs_table.c.created_at))).all())


async def wait_for_job(chat: Chat) -> Any:
    (row,) = await chat.bot.database.wait_until(lambda: list_jobs(chat), lambda rows: len(rows) == 1)
    return row


async def test_the_result_of_a_background_tool_is_a_turn_for_its_author(platform: str, tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def count_stars(sky: str) -> dict[str, int]:
        """Count the stars."""
        await may_end.wait()
        return {"stars": 9_096}

    tool = FunctionTool(background(count_stars))
    async with run_chat(platform, tmp_path, tool, arguments={"sky": "north"}) as chat:
        await wait_for_texts(chat, lambda found: found == ["It runs."])
        (asked,) = await chat.bot.wait_for_turns(1)
        assert asked.state == "done"
        job = await wait_for_job(chat)
        (listed,) = await chat.bot.services.jobs.store.list_of_person(platform, job.author)
        assert listed.call == 'count_stars({"sky": "north"})'
        may_end.set()
        _, header, answer = await wait_for_texts(
            chat, lambda found: len(found) == 3 and found[-1].startswith("Result: ")
        )
        assert header == f"{mention_of(platform)} ✅ `count_stars` is done"
        assert '"stars": 9096' in answer
        assert 'count_stars({"sky": "north"}), has ended' in answer
        _, told = await chat.bot.wait_for_turns(2)
        assert told.session == asked.session
        assert told.id == derive_turn_id(get_event_key(job.id))


async def test_a_background_tool_that_fails_says_so(platform: str, tmp_path: Path) -> None:
    @background
    def count_stars() -> int:
        """Count the stars."""
        raise RuntimeError("clouds, and sk-0123456789abcdef")

    async with run_chat(platform, tmp_path, FunctionTool(count_stars)) as chat:
        _, header, answer = await wait_for_texts(
            chat, lambda found: len(found) == 3 and found[-1].startswith("Result: ")
        )
        assert header == f"{mention_of(platform)} ⚠️ `count_stars` failed"
        assert "RuntimeError: clouds" in answer
        assert "sk-0123456789abcdef" not in answer


async def test_a_job_reads_the_session_but_cannot_change_it(platform: str, tmp_path: Path) -> None:
    refusals = list[str]()

    async def count_stars(tool_context: ToolContext) -> str:
        """Count the stars."""
        acts: list[Callable[[], Any]] = [
            lambda: tool_context.state.update({"stars": 1}),
            lambda: tool_context.state.setdefault("stars", 1),
            lambda: tool_context.request_confirmation(hint="really?"),
            lambda: tool_context.save_artifact("stars.txt", None),  # type: ignore[arg-type]
            get_ticket,
        ]
        for act in acts:
            try:
                result = act()
                await result if isinstance(result, Awaitable) else None
            except Exception as error:
                refusals.append(str(error))
        return str(tool_context.state["temp:speaker"]["name"])

    async with run_chat(platform, tmp_path, FunctionTool(background(count_stars))) as chat:
        _, _, answer = await wait_for_texts(chat, lambda found: len(found) == 3 and found[-1].startswith("Result: "))
        assert "ada" in answer.partition("> ")[2].lower()
        assert len(refusals) == 5


async def test_a_cancelled_job_answers_nothing(platform: str, tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def count_stars() -> None:
        """Count the stars."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with run_chat(platform, tmp_path, FunctionTool(background(count_stars))) as chat:
        await wait_for_texts(chat, lambda found: found == ["It runs."])
        job = await wait_for_job(chat)
        assert await chat.bot.services.jobs.cancel(job.id, author=job.author)
        await asyncio.wait_for(ended.wait(), 5)
        assert await chat.bot.services.jobs.store.finish(job.id, JobResult("late")) is FinishResult.CANCELLED
        assert len(await chat.bot.list_turns()) == 1


async def test_a_ticket_is_finished_from_outside(platform: str, tmp_path: Path) -> None:
    tickets = list[Ticket]()

    async def count_stars() -> dict[str, str]:
        """Count the stars."""
        tickets.append(await get_ticket())
        return {"status": "pending", "leaked": tickets[0].key}

    async with run_chat(platform, tmp_path, FunctionTool(count_stars)) as chat:
        await wait_for_texts(chat, lambda found: found == ["It runs."])
        (ticket,) = tickets
        assert ticket.url == f"{PUBLIC_URL}/tickets/{ticket.id}"
        assert ticket.key not in str(chat.bot.model.requests)
        with pytest.raises(TicketError, match="the key is wrong"):
            await finish_ticket(ticket.id, 1, key="plt_wrong")
        turn = await finish_ticket(ticket.id, {"stars": 5}, key=ticket.key)
        assert await finish_ticket(ticket.id, {"stars": 6}, key=ticket.key) == turn
        _, _, answer = await wait_for_texts(chat, lambda found: len(found) == 3 and found[-1].startswith("Result: "))
        assert '"stars": 5' in answer
        _, told = await chat.bot.wait_for_turns(2)
        assert told.id == turn


async def test_a_long_running_tool_of_adk_is_finished_by_its_own_id(platform: str, tmp_path: Path) -> None:
    def count_stars() -> dict[str, str]:
        """Count the stars."""
        return {"status": "pending", "ticket-id": "star-42"}

    async with run_chat(platform, tmp_path, LongRunningFunctionTool(count_stars)) as chat:
        await wait_for_texts(chat, lambda found: found == ["It runs."])
        assert "star-42" in str(chat.bot.model.requests[-1])
        with pytest.raises(TicketError, match="no such ticket"):
            await finish_ticket("star-43")
        turn = await finish_ticket("star-42", error="clouds")
        assert await finish_ticket("star-42", "stars") == turn
        _, header, _ = await wait_for_texts(chat, lambda found: len(found) == 3 and found[-1].startswith("Result: "))
        assert header == f"{mention_of(platform)} ⚠️ `count_stars` failed"


async def test_the_ticket_of_a_tool_that_fails_is_cancelled(platform: str, tmp_path: Path) -> None:
    tickets = list[Ticket]()

    async def count_stars() -> None:
        """Count the stars."""
        tickets.append(await get_ticket())
        raise RuntimeError("the observatory is closed")

    async with run_chat(platform, tmp_path, FunctionTool(count_stars)) as chat:
        await wait_for_texts(chat, lambda found: found == ["It runs."])
        with pytest.raises(TicketError, match="cancelled"):
            await finish_ticket(tickets[0].id, 1)


async def test_a_reset_cancels_the_ticket(platform: str, tmp_path: Path) -> None:
    async def count_stars() -> dict[str, str]:
        """Count the stars."""
        return {"status": "pending", "ticket": (await get_ticket()).id}

    async with run_chat(platform, tmp_path, FunctionTool(count_stars)) as chat:
        await wait_for_texts(chat, lambda found: found == ["It runs."])
        job = await wait_for_job(chat)
        await chat.say("!reset")
        await wait_for_texts(chat, lambda found: len(found) == 2)
        with pytest.raises(TicketError, match="reset"):
            await finish_ticket(job.id, 1)


async def test_a_person_sees_and_cancels_their_jobs(platform: str, tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def count_stars(sky: str) -> None:
        """Count the stars."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    tool = FunctionTool(background(count_stars))
    async with run_chat(platform, tmp_path, tool, arguments={"sky": "north"}) as chat:
        await wait_for_texts(chat, lambda found: found == ["It runs."])
        assert await run_command(chat, "schedule", user="linus") == words.NO_SCHEDULES
        listed = await run_command(chat, "schedule")
        assert '⏳ `count_stars({"sky": "north"})`, since ' in listed
        message = next(each for each in chat.list_bot_messages() if each.ephemeral_to and each.buttons)
        (button,) = message.buttons.values()
        await chat.simulator.click_button("ada", message, button)
        await chat.simulator.wait_for(lambda: words.JOB_CANCELLED in chat.list_private_messages())
        await asyncio.wait_for(ended.wait(), 5)
        assert (await wait_for_job(chat)).state == "cancelled"


async def test_an_approved_job_is_that_of_the_author(platform: str, tmp_path: Path) -> None:
    begun = list[str]()

    async def count_stars() -> int:
        """Count the stars."""
        begun.append("begun")
        return 9_096

    tool = FunctionTool(background(count_stars), require_confirmation=True)
    async with run_chat(platform, tmp_path, tool) as chat:
        await chat.simulator.wait_for(lambda: any(words.APPROVE in each.buttons for each in chat.list_replies()))
        assert begun == []
        await chat.press(words.APPROVE)
        texts = await wait_for_texts(chat, lambda found: found and found[-1].startswith("Result: "))
        assert f"{mention_of(platform)} ✅ `count_stars` is done" in texts
        assert "> 9096" in texts[-1]
        assert begun == ["begun"]
        (asked, *_) = await chat.bot.list_turns()
        (job,) = await list_jobs(chat)
        assert (job.session, job.state) == (asked.session, "finished")


async def test_a_regenerated_answer_has_a_job_of_its_own(platform: str, tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def count_stars() -> int:
        """Count the stars."""
        await may_end.wait()
        return 9_096

    async with run_chat(platform, tmp_path, FunctionTool(background(count_stars))) as chat:
        await wait_for_texts(chat, lambda found: found == ["It runs."])
        await chat.bot.wait_for_turns(1)
        await chat.press(words.REGENERATE)
        await chat.bot.wait_for_turns(2)
        assert len({job.id for job in await list_jobs(chat)}) == 2
        may_end.set()
        await chat.bot.wait_for_turns(4)
        assert [job.state for job in await list_jobs(chat)] == ["finished"] * 2


async def test_a_job_of_several_authors_mentions_the_newest_and_has_no_rights(platform: str, tmp_path: Path) -> None:
    begin = asyncio.Event()

    async def count_stars() -> int:
        """Count the stars."""
        return 9_096

    def tell_speaker(tool_context: ToolContext) -> str:
        """Tell who speaks."""
        speakers.append(tool_context.state["temp:speaker"]["id"])
        return "told"

    speakers = list[str]()

    def answer(request: ReceivedRequest) -> Any:
        if "wait" in request.text and "tool" not in [role for role, _ in request.messages]:
            return [Pause(begin), Say("waited")]
        if "The background job" in request.text:
            return "told" if request.messages[-1][0] == "tool" else [CallTool("tell_speaker", {}, id="call_2")]
        return "It runs." if request.messages[-1][0] == "tool" else [CallTool("count_stars", {}, id="call_1")]

    tools = [FunctionTool(background(count_stars)), FunctionTool(tell_speaker)]
    async with (
        run_simulator(platform) as simulator,
        run_conversation(simulator, tmp_path, answer, core={"tools": tools}, follow="everyone") as chat,
    ):
        placing = asyncio.create_task(chat.bot.triggered.run_placing({platform: chat.bot.adapter.place}))
        try:
            await chat.say("wait", user="ada")
            await chat.bot.database.wait_until(chat.bot.list_turns, lambda rows: len(rows) == 1)
            await chat.say("count", user="ada")
            await chat.say("yes, count", user="linus")
            await chat.bot.database.wait_until(chat.bot.list_inbox_messages, lambda rows: len(rows) == 3)
            begin.set()
            texts = await wait_for_texts(chat, lambda found: found[-1:] == ["told"])
            assert any(text.startswith("@linus" if platform == "slack" else "@Linus") for text in texts), texts
            assert speakers == [""]
        finally:
            placing.cancel()
            await asyncio.wait([placing])


def mention_of(platform: str) -> str:
    """Return the mention of Ada as the local platform shows it."""
    return "@ada" if platform == "slack" else "@Ada Lovelace"
