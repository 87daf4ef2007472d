"""What keeps a slip of the model or a fault of a tool from ending the run."""

import asyncio

import pytest

from core import secrets
from core.models.provider import Done, ProviderEvent, ToolCall, ToolResult
from core.plugins import ERROR_LIMIT, RESULT_LIMIT
from core.tools import Tool
from tests.conversation import Conversation, Converse, ScriptedProvider, team


def calls(name: str, **arguments: object) -> list[ProviderEvent]:
    return [ToolCall("c1", name, arguments), Done()]


def told(provider: ScriptedProvider) -> dict[str, object]:
    """What the model was given for its call."""
    [result] = provider.requests[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    return dict(result.result)


async def failing(converse: Converse, error: BaseException) -> tuple[ScriptedProvider, Conversation]:
    """A conversation in which the model calls a tool that fails."""

    async def fail(_arguments: object) -> None:
        raise error

    provider = ScriptedProvider(calls("look"), "I cannot look.")
    return provider, await converse(provider, tools=[Tool("look", "Looks.", fail)])


@pytest.mark.parametrize(
    "arguments", [{"agent_name": "ghost"}, {"agent_name": "lango_agent"}, {"agent_name": None}, {"agent_name": ["x"]}]
)
async def test_a_wrong_name_for_an_agent_is_answered_with_the_right_ones(
    converse: Converse, arguments: dict[str, object]
) -> None:
    provider = ScriptedProvider(calls("transfer_to_agent", **arguments), "Never mind.")
    conversation = await converse(app=team(provider, "billing", "research"))
    assert await conversation.reply("Where is my bill?") == "Never mind."
    assert "Valid agents: billing, research." in str(told(provider)["error"])


async def test_a_right_name_is_not_held_up(converse: Converse) -> None:
    provider = ScriptedProvider(calls("transfer_to_agent", agent_name="billing"), "It is in the post.")
    conversation = await converse(app=team(provider, "billing", "research"))
    assert await conversation.reply("Where is my bill?") == "It is in the post."
    assert [row.author for row in await conversation.rows()][-1] == "billing"


async def test_a_tool_of_the_same_name_is_no_ones_business(converse: Converse) -> None:
    provider = ScriptedProvider(calls("transfer_to_agent", agent_name="ghost"), "Done.")
    tool = Tool("transfer_to_agent", "Ours.", lambda arguments: {"went to": arguments["agent_name"]})
    assert await (await converse(provider, tools=[tool])).reply("Go.") == "Done."
    assert told(provider) == {"went to": "ghost"}


async def test_the_model_is_told_what_a_tool_failed_with(converse: Converse) -> None:
    provider, conversation = await failing(converse, TimeoutError("no answer in 3 s"))
    assert await conversation.reply("Look.") == "I cannot look."
    assert told(provider) == {"error": "look failed: TimeoutError: no answer in 3 s"}


async def test_a_secret_in_the_error_of_a_tool_reaches_neither_model_nor_memory(
    converse: Converse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    secrets.remember("hunter2-hunter2")
    error = RuntimeError("Bearer abcdefgh12345678 and hunter2-hunter2 at https://me:pass-word@host/")
    provider, conversation = await failing(converse, error)
    await conversation.reply("Look.")
    seen = f"{told(provider)} {await conversation.rows()}"
    assert "look failed: RuntimeError" in seen
    for secret in ("abcdefgh12345678", "hunter2", "pass-word"):
        assert secret not in seen


async def test_the_error_of_a_tool_is_cut(converse: Converse) -> None:
    provider, conversation = await failing(converse, RuntimeError("x" * 10_000))
    await conversation.reply("Look.")
    assert len(str(told(provider)["error"])) == ERROR_LIMIT


async def test_a_secret_at_the_cut_is_not_cut_into_sight(converse: Converse) -> None:
    padding = "x" * (ERROR_LIMIT - len("look failed: RuntimeError:  sk-abc"))
    provider, conversation = await failing(converse, RuntimeError(f"{padding} sk-abcdefghijklmnopqrstuvwxyz"))
    await conversation.reply("Look.")
    assert "sk-" not in str(told(provider)["error"])


async def test_a_cancelled_tool_is_no_failed_one(converse: Converse, caplog: pytest.LogCaptureFixture) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(_arguments: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    provider = ScriptedProvider(calls("wait"), "never said")
    conversation = await converse(provider, tools=[Tool("wait", "Waits.", wait)])
    listening = asyncio.create_task(conversation.reply("Wait."))
    async with asyncio.timeout(5):
        await begun.wait()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        await ended.wait()
    assert len(provider.requests) == 1
    assert "tool wait failed" not in caplog.text


async def told_of(converse: Converse, result: object) -> dict[str, object]:
    """What the model is told of a tool's result; the conversation can go on behind it."""
    provider = ScriptedProvider(calls("look"), "Seen.", "Still here.")
    conversation = await converse(provider, tools=[Tool("look", "Looks.", lambda _arguments: result)])
    assert await conversation.reply("Look.") == "Seen."
    assert await conversation.reply("And now?") == "Still here."
    return told(provider)


async def test_a_result_that_no_json_can_hold_is_told_as_what_it_can(converse: Converse) -> None:
    odd = {"raw": b"\x00\xff", "set": {1}, 3: float("nan"), "text": "nul \0 half \ud83d", "pair": (1.5, None)}
    assert await told_of(converse, odd) == {
        "raw": "AP8=",
        "set": [1],
        "3": None,
        "text": "nul \ufffd half \ufffd",
        "pair": [1.5, None],
    }


async def test_a_secret_in_a_result_stays_in_the_house(converse: Converse) -> None:
    secrets.remember("correct horse")
    assert await told_of(converse, ["it is correct horse", {"key": "sk-abcdefghijklmnop"}]) == {
        "result": ["it is [redacted]", {"key": "[redacted]"}]
    }


async def test_a_text_that_no_model_could_read_is_cut_and_says_so(converse: Converse) -> None:
    result = await told_of(converse, "x" * (RESULT_LIMIT + 5))
    assert result == {"result": "x" * RESULT_LIMIT + f"… (cut: it has {RESULT_LIMIT + 5} characters)"}


async def test_a_result_of_plain_json_is_told_as_it_is(converse: Converse) -> None:
    plain = {"a": [1, 2.5, None, True, {"b": "c"}]}
    assert await told_of(converse, plain) == plain
