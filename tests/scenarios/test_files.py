"""Files: attachments reach the model, and files of tools are posted with the answer."""

import base64
import json

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest
from tests.scenarios import tools
from tests.scenarios.chat import wait_for_answers, wait_for_texts
from tests.scenarios.conftest import StartBot

IMAGE_URL = f"data:image/png;base64,{base64.b64encode(tools.PNG).decode()}"

TOOLS = [f"tests.scenarios.tools:{name}" for name in ("plot", "table", "heavy")]
CSV = ("table.csv", b"a,b\n1,2\n")


async def test_an_image_and_a_text_reach_the_model_and_stay_in_its_history(start: StartBot) -> None:
    def answer(request: ReceivedRequest) -> str:
        body = json.dumps(request.body["messages"])
        return f"{body.count(IMAGE_URL)} image, {body.count('red,green')} table"

    async with start(answer) as chat:
        await chat.say("what is this?", files={"cat.png": tools.PNG, "colors.csv": b"red,green\n"})
        await wait_for_answers(chat, "1 image, 1 table")
        await chat.say("and now?")
        await wait_for_answers(chat, "1 image, 1 table", "1 image, 1 table")


async def test_the_model_knows_which_files_it_cannot_see(start: StartBot) -> None:
    def answer(request: ReceivedRequest) -> str:
        return "\n".join(line.strip() for line in request.text.splitlines() if "cannot open" in line)

    files = {
        "huge.png": tools.PNG + bytes(2**20),
        "plan.zip": b"PK\x03\x04" + bytes(50),
        "notes.txt": b"read",
        "third.txt": b"read",
        "fourth.txt": b"read",
        "sixth.txt": b"one too many",
    }
    async with start(answer, file_max_mb=1) as chat:
        await chat.say("look", files=files)
        (text,) = await wait_for_texts(chat, lambda texts: texts and "sixth" in texts[0])
        for reason in (
            "huge.png (1.0 MB): it is larger than my limit of 1.0 MB",
            "plan.zip (54 bytes): I cannot read files of this type",
            "sixth.txt (12 bytes): I read at most 5 files of a message",
        ):
            assert reason in text
        assert "notes.txt" not in text


async def test_the_files_of_tools_are_posted_once_with_the_answer(start: StartBot) -> None:
    script = [CallTool("plot", {"title": "up"}), CallTool("table")], "Here.", "Bye."
    async with start(*script, tools=TOOLS) as chat:
        await chat.say("draw")
        await wait_for_answers(chat, "Here.")
        await chat.simulator.wait_for(lambda: sorted(chat.list_files()) == [("plot.png", tools.PNG), CSV])
        await chat.say("thanks")
        await wait_for_answers(chat, "Here.", "Bye.")
        assert len(chat.list_files()) == 2


async def test_a_refused_file_is_named_and_the_others_are_posted(start: StartBot) -> None:
    async with start([CallTool("heavy"), CallTool("table")], "Here.", tools=TOOLS) as chat:
        await chat.say("draw")
        notice = words.FILE_NOT_ATTACHED.format(name="heavy.pdf", size="11.0 MB")
        await wait_for_texts(chat, lambda texts: [text.replace("`", "") for text in texts] == [f"Here.\n\n{notice}"])
        await chat.simulator.wait_for(lambda: chat.list_files() == [CSV])
