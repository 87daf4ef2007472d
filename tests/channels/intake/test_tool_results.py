"""Tool results on their way to the model, through both platforms' clients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.tools import exit_loop

from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedResponse
from core.observability import secret_redaction
from tests.channels.platforms import run_conversation, wait_for_answer

LINK = "https://x/?code=1&key=2&sig=3"

#: Results with what only looks like a secret by its name, or by its length.
RESULTS: dict[str, Any] = {
    "an object": {"nextPageToken": "CAUQAA", "url": LINK},
    "a page of a server": {"content": [{"type": "text", "text": f'{{"nextPageToken":"CAUQAA","url":"{LINK}"}}'}]},
    "a text": {"result": f"continuationToken: 'abc123def', secret_key=x, Cookie: a=b, {LINK}, https://x/{'a1' * 50}"},
    "names": {"password": "of the guest Wi-Fi", LINK: ["api_key=see the manual"]},
    "a cursor": {"cursor": "eyJhbGciOiJub25lIn0.eyJwYWdlIjoyfQ.c2lnbmF0dXJl"},
}


async def get_results(simulator: Any, folder: Path, look: Callable[[], Any]) -> tuple[list[Any], str]:
    """Return the results of the tool `look`, and the messages of the model's next turn."""
    received = list[Any]()

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        results = [result.content for result in request.tool_results]
        received.extend(results)
        return "Seen." if results or received else CallTool("look", {}, id="c1")

    async with run_conversation(simulator, folder, answer, core={"tools": [look]}) as chat:
        await chat.say("look")
        await wait_for_answer(chat, "Seen.")
        await chat.say("and now?")
        await wait_for_answer(chat, "Seen.", "Seen.")
        return received, str(chat.bot.model.requests[-1])


@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_reaches_the_model_as_the_tool_returned_it(simulator: Any, tmp_path: Path, name: str) -> None:
    def look() -> dict[str, Any]:
        """Look."""
        return RESULTS[name]  # type: ignore[no-any-return]

    received, history = await get_results(simulator, tmp_path, look)
    assert received == [RESULTS[name]]
    assert "[redacted]" not in history


async def test_a_tool_that_returns_nothing_adds_nothing_to_the_answer(simulator: Any, tmp_path: Path) -> None:
    script = [Say("A cat."), CallTool("exit_loop", {}, id="c1")]
    async with run_conversation(simulator, tmp_path, script, core={"tools": [exit_loop]}) as chat:
        await chat.say("draft")
        await wait_for_answer(chat, "A cat.")
        await chat.bot.wait_for_turns(1)
        await wait_for_answer(chat, "A cat.")


async def test_known_secrets_and_vendor_keys_in_a_result_are_masked(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_redaction, "_known", set(secret_redaction._known))
    secret_redaction.add_secret("correct horse")

    def look() -> dict[str, Any]:
        """Look."""
        return {"note": "it is correct horse", "env": "A=sk-abcdefghijklmnop B=xoxb-12345-abc", "url": LINK}

    masked = {"note": "it is [redacted]", "env": "A=[redacted] B=[redacted]", "url": LINK}
    received, _ = await get_results(simulator, tmp_path, look)
    assert received == [masked]


async def test_the_error_of_a_tool_keeps_its_link(simulator: Any, tmp_path: Path) -> None:
    def look() -> None:
        """Look."""
        raise ValueError(f"no nextPageToken='CAUQAA' at {LINK}")

    error = f"look failed: ValueError: no nextPageToken='CAUQAA' at {LINK}"
    received, _ = await get_results(simulator, tmp_path, look)
    assert received == [{"error": error}]
