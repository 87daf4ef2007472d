"""Features of ADK (workflows, sub-agents, requests) in a user's own agent."""

import asyncio
from pathlib import Path
from typing import Any

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedResponse
from core.tools.results import MAX_RESULT_CHARACTERS
from tests.acceptance.conftest import StartBot
from tests.acceptance.platforms import Platform

AGENT = '''
import asyncio
import time

from google.adk.agents import LlmAgent
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.code_executors.unsafe_local_code_executor import UnsafeLocalCodeExecutor
from google.adk.planners import PlanReActPlanner
from google.adk.plugins import BasePlugin
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool, ToolContext, load_memory
from google.genai import types
from pydantic import BaseModel

from core.tools import restrict_to


class Form(BaseModel):
    name: str
    age: int


class Notes(BasePlugin):
    async def before_agent_callback(self, *, agent, callback_context):
        callback_context.state["seen"] = [*callback_context.state.get("seen", []), agent.name]


def fails() -> str:
    """Fails."""
    raise KeyError("of the tool")


async def hangs() -> str:
    """Hangs."""
    await asyncio.Event().wait()


def huge() -> str:
    """Tells very much."""
    return "x" * 10_000_000


def blob() -> bytes:
    """Gives bytes."""
    return bytes(range(256))


def blocks() -> str:
    """Blocks."""
    time.sleep(0.3)
    return "blocked"


def weather(tool_context: ToolContext) -> str:
    """Tells the weather, and needs no more words."""
    tool_context.actions.skip_summarization = True
    return "It rains."


def order(what: str) -> dict:
    """Orders it, which takes days."""
    return {"status": "pending", "ticket": 7}


def whoami(tool_context: ToolContext) -> str:
    """Tells for whom it works."""
    return f"for {tool_context.state['temp:speaker']['name']}"


@restrict_to("admins")
def erase() -> str:
    """Erases it."""
    return "erased"


def closed(callback_context):
    if "closed?" in str(callback_context.user_content):
        return types.ModelContent("We are closed.")


hanging = FunctionTool(hangs)
hanging.seconds = 0.3
keeper = LlmAgent(name="keeper", instruction="You are the keeper for {temp:speaker}.", tools=[whoami, erase])
coder = LlmAgent(name="coder", instruction="You are the coder.", code_executor=UnsafeLocalCodeExecutor())
planner = LlmAgent(name="planner", instruction="You are the planner.", planner=PlanReActPlanner())
clerk = LlmAgent(name="clerk", instruction="You are the clerk.", output_schema=Form, output_key="form")
front = LlmAgent(
    name="front",
    instruction="You are the front. Filled in: {form?}. Seen: {seen}",
    before_agent_callback=closed,
    tools=[fails, hanging, huge, blob, blocks, weather, LongRunningFunctionTool(order), AgentTool(keeper), load_memory],
    sub_agents=[coder, planner, clerk],
)
app = App(
    name="brought",
    root_agent=front,
    plugins=[Notes("notes")],
    resumability_config=ResumabilityConfig(is_resumable=True),
    context_cache_config=ContextCacheConfig(),
)
'''

TROUBLE = ("fails", "hangs", "huge", "blob", "blocks")


def script(request: ReceivedRequest) -> ScriptedResponse:
    agent = next(
        name for name in ("keeper", "coder", "planner", "clerk", "front") if f"You are the {name}" in request.system
    )
    history = str(request.body["messages"])
    match agent:
        case "keeper" if not request.tool_results:
            return [CallTool("whoami", {}, id="k1"), CallTool("erase", {}, id="k2")]
        case "keeper":
            return Say(
                " and ".join("no" if "may not be used" in str(r.content) else "yes" for r in request.tool_results)
            )
        case "coder" if "42" in history:
            return Say("It is 42.")
        case "coder":
            return Say("Let me see.\n```tool_code\nprint(6 * 7)\n```\n", pieces=3)
        case "planner":
            return Say("/*PLANNING*/ I think. /*FINAL_ANSWER*/ It is done.", pieces=4)
        case "clerk":
            return Say('{"name": "Ada", "age": 36}')
    return front(request)


def front(request: ReceivedRequest) -> ScriptedResponse:
    if "recall!" in request.text:
        if not request.tool_results:
            return CallTool("load_memory", {"query": SECRET}, id="m1")
        return Say(str(SECRET in str(request.tool_results[0].content)))
    if SECRET in request.text:
        return Say("Noted.")
    wish = next(word for word in (*REQUESTS, "trouble", "weather", "order", "rights") if f"{word}!" in request.text)
    if wish in REQUESTS and not request.tool_results:
        return CallTool("transfer_to_agent", {"agent_name": REQUESTS[wish]}, id="t1")
    if not request.tool_results:
        calls = {"trouble": TROUBLE, "rights": ("keeper",)}.get(wish, (wish,))
        given = {"keeper": {"request": "erase it"}, "order": {"what": "tea"}}
        return [CallTool(name, given.get(name, {}), id=f"c{nth}") for nth, name in enumerate(calls)]
    results = {result.name: str(result.content) for result in request.tool_results}
    if wish == "trouble":
        wrong = [name for name in TROUBLE if "error" in results[name]]
        is_short = max(map(len, results.values())) < 2 * MAX_RESULT_CHARACTERS
        return Say(f"{', '.join(wrong)}; {is_short}; {'blocked' in results['blocks']}")
    return Say(next(iter(results.values())))


#: Text of a direct message that no channel may show.
SECRET = "falcon"

#: Requests, and the agents that handle them.
REQUESTS = {"code": "coder", "plan": "planner", "form": "clerk"}


async def test_features_of_adk_agents_work_on_both_platforms(start: StartBot, tmp_path: Path) -> None:
    (tmp_path / "brought").mkdir()
    (tmp_path / "brought" / "agent.py").write_text(AGENT)
    bot = await start(AGENT=str(tmp_path / "brought"))
    bot.answer = script
    ran = "Let me see.\n\n```python\nprint(6 * 7)\n```\n\n```\nCode execution result:\n42\n```\n\nIt is 42."
    cases = {
        "closed?": "We are closed.",
        "weather!": "It rains.",
        "trouble!": "fails, hangs; True; True",
        "rights!": "{'result': 'yes and no'}",
        "order!": "{'status': 'pending', 'ticket': 7}",
        "code!": ran,
        "plan!": "It is done.",
        "form!": '{"name": "Ada", "age": 36}',
    }

    async def check_answer(platform: Platform, question: str, answer: str) -> None:
        conversation = platform.start_conversation()
        await conversation.say(question)
        await platform.wait_for(
            lambda: drop_empty_lines(answer) in [drop_empty_lines(reply.text) for reply in conversation.replies()]
        )

    async def scenario(platform: Platform) -> None:
        await asyncio.gather(*(check_answer(platform, question, answer) for question, answer in cases.items()))
        await bot.ask(platform, platform.start_dm("ada"), f"the code name is {SECRET}", "Noted.")
        await bot.ask(platform, platform.start_dm("ada"), "recall!", "True")
        await bot.ask(platform, platform.start_conversation(), "recall!", "False")
        await bot.ask(platform, platform.start_dm("grace"), "recall!", "False", user="grace")

    await bot.run_on_all_platforms(scenario)
    assert await bot.program.stop() == 0


def drop_empty_lines(text: str) -> str:
    """Return a text without empty lines, and without spaces around the lines."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


SHOP = """
from google.adk.events.request_input import RequestInput
from google.adk.workflow import Workflow
from google.genai import types


def ask(node_input):
    yield RequestInput(message="Which size?")


def order(node_input):
    return types.ModelContent(f"Ordered in {node_input}.")


root_agent = Workflow(name="shop", edges=[("START", ask, order)])
"""


async def test_messages_of_the_asker_answer_a_workflow_until_a_reset(start: StartBot, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agent.py").write_text(SHOP)
    bot = await start(AGENT=str(tmp_path / "shop"))
    conversations, other_conversations = (
        {platform: platform.start_conversation() for platform in bot.platforms} for _ in range(2)
    )

    async def ask(platform: Platform, conversation: Any, text: str, count: int, user: str = "ada") -> None:
        """Post a message, and wait until "Which size?" is in `count` replies."""
        await conversation.say(text, user=user)
        await platform.wait_for(lambda: sum("Which size?" in reply.text for reply in conversation.replies()) == count)

    async def ask_question(platform: Platform) -> None:
        await ask(platform, conversations[platform], "a shirt, please", 1)
        await ask(platform, other_conversations[platform], "a hat, please", 1)
        await bot.ask(platform, other_conversations[platform], "reset", words.RESET_DONE)
        await platform.wait_for(lambda: words.ANSWER not in other_conversations[platform].button_labels())

    async def answer_question(platform: Platform) -> None:
        conversation = conversations[platform]
        message = await conversation.say("XL")
        await bot.wait_for_reply(platform, conversation, lambda text: text == "Ordered in XL.")
        await conversation.edit(message, "L")
        await platform.wait_for(lambda: words.ANSWER_EDITED in conversation.button_labels())
        assert await conversation.press(words.ANSWER_EDITED)
        await bot.wait_for_reply(platform, conversation, lambda text: text == "Ordered in L.")
        await ask(platform, conversation, "another one", 2)
        await ask(platform, conversation, "one for me, too", 3, user="grace")  # Ada's question stays open
        await bot.ask(platform, conversation, "M", "Ordered in M.", user="grace")
        await bot.ask(platform, conversation, "S", "Ordered in S.")
        await ask(platform, conversation, "one more", 4)
        await platform.wait_for(
            lambda: words.STOP not in conversation.button_labels()
        )  # else the stop would end this turn
        await bot.ask(platform, conversation, "stop", words.STOPPING)
        await platform.wait_for(lambda: words.ANSWER not in conversation.button_labels())
        await ask(platform, conversation, "yet another one", 5)

    await bot.run_on_all_platforms(ask_question)
    assert await bot.program.stop() == 0
    await bot.start()
    await bot.run_on_all_platforms(answer_question)
    assert await bot.program.stop() == 0
