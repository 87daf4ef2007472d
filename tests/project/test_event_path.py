"""Path of the reply's events: the async generators between a vendor's HTTP stream and the answerer."""

import inspect
import sys
from pathlib import Path
from types import FrameType

import pytest

from chatrig.models import Say
from chatrig.slack import SlackSimulator
from tests.channels.slack.conftest import run_bot

ROOT = Path(__file__).parents[2]

#: Folders of the code between the HTTP stream and the answerer.
FOLDERS = tuple(f"{ROOT}/{folder}/" for folder in ("channels", "core/agents", "core/models"))


class GeneratorRecorder:
    """Profiler that records the async generators that run in `FOLDERS`, without those of context managers.

    Each of them is on the stack of a delta: a generator passes on what a deeper one yields.

    Attributes:
        names: the qualified names of the functions.
    """

    def __init__(self) -> None:
        self.names = set[str]()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_flags & inspect.CO_ASYNC_GENERATOR:
            return
        is_of_context = frame.f_back is not None and frame.f_back.f_code.co_filename.endswith("/contextlib.py")
        if code.co_filename.startswith(FOLDERS) and not is_of_context:
            self.names.add(code.co_qualname)


@pytest.mark.parametrize(
    ("vendor", "provider"),
    [("openai", "OpenAIProvider"), ("anthropic", "AnthropicProvider"), ("gemini", "GeminiProvider")],
)
async def test_three_generators_pass_on_the_events_of_a_reply(vendor: str, provider: str, tmp_path: Path) -> None:
    recorder, script = GeneratorRecorder(), Say("It is forty-two.", pieces=4)
    async with SlackSimulator() as slack, run_bot(slack, tmp_path, script, core={"vendor": vendor}) as bot:
        sys.setprofile(recorder)
        try:
            question = await slack.post_message("ada", slack.open_dm("ada"), "hello")
            await bot.wait_for_texts(question, lambda texts: texts == ["hello", "It is forty-two."])
        finally:
            sys.setprofile(None)
    assert recorder.names == {
        f"{provider}.stream",
        "ModelAdapter.generate_content_async",
        "AgentRuntime.stream",
    }
