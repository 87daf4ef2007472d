"""Markup in answers of models as people see it, on both platforms."""

from pathlib import Path
from typing import Any

from chatrig.models import Say
from chatrig.slack import SlackMessage
from tests.channels.platforms import list_texts, run_conversation, wait_for_texts

HTML = (
    "one<br>two <b>bold</b> H<sub>2</sub>O&nbsp;&lt;3\n\n<!-- secret\n\nsecret -->\n\n"
    "<details><summary>More</summary>\n\n`<b>&lt;` List<String>\n\n</details>\n\nend"
)
SHOWN = "one\ntwo **bold** H2O\u00a0<3\n\n**More**\n\n`<b>&lt;` List<String>\n\nend"


def show_slowly(text: str) -> list[Say]:
    return [Say(text[at : at + 7]) for at in range(0, len(text), 7)]


async def test_html_of_a_model_becomes_the_markdown_of_the_platform(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, show_slowly(HTML)) as chat:
        await chat.say("hello")
        await wait_for_texts(chat, lambda found: found and found[-1].endswith("end"))
        assert list_texts(chat) == [SHOWN]
        (reply,) = chat.list_replies()
        assert not [version for version in reply.versions if "secret" in version.text or "<!" in version.text]


async def test_an_explicit_address_keeps_its_end(simulator: Any, tmp_path: Path) -> None:
    address = "https://x.example/a"
    answer = f"자세한 내용은 <{address}>에서 확인하세요. <{address}>s <{address}>/b end"
    async with run_conversation(simulator, tmp_path, show_slowly(answer)) as chat:
        await chat.say("hello")
        await wait_for_texts(chat, lambda found: found and found[-1].endswith("end"))
        (reply,) = chat.list_replies()
        token = f"[{address}]({address})" if isinstance(reply, SlackMessage) else f"<{address}>"
        assert reply.text == f"자세한 내용은 {token}에서 확인하세요. {token}s {token}/b end"
        assert not [version for version in reply.versions if f"{address}에" in version.text]


async def test_entities_in_code_are_seen_as_the_model_wrote_them(simulator: Any, tmp_path: Path) -> None:
    answer = 'Write `&lt;b&gt;` and `R&amp;D`.\n\n```xml\n<a href="?x=1&amp;y=2">R&amp;D &lt;3</a>\n```\n\nend'
    async with run_conversation(simulator, tmp_path, show_slowly(answer)) as chat:
        await chat.say("hello")
        await wait_for_texts(chat, lambda found: found and found[-1].endswith("end"))
        assert list_texts(chat) == [answer]
