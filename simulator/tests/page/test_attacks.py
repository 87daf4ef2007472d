"""Simulator page, which shows messages as plain text."""

import pytest

from chatrig.page.markdown import render_discord
from chatrig.page.mrkdwn import render_blocks, render_mrkdwn
from tests.page.test_markdown import ParsedHtml, render_slack_mrkdwn

NAMES = {"U1": "<img src=x onerror=alert(1)>"}


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param("<script>alert(1)</script>", id="a script in plain words"),
        pytest.param("<img src=x onerror=alert(1)>", id="a picture that fails"),
        pytest.param("<svg/onload=alert(1)>", id="a drawing that loads"),
        pytest.param("[click](javascript:alert(1))", id="a link that runs"),
        pytest.param("[click](JaVaScRiPt&colon;alert(1))", id="a link that runs, disguised"),
        pytest.param("[click](data:text/html;base64,PHNjcmlwdD4=)", id="a link that is a page itself"),
        pytest.param("<javascript:alert(1)>", id="a link that runs, in angle brackets"),
        pytest.param("<javascript:alert(1)|click>", id="a link that runs, as Slack writes them"),
        pytest.param('<https://a.b/"onmouseover=alert(1)|x>', id="an address that leaves its attribute"),
        pytest.param('https://a.b/"onmouseover="alert(1)', id="a bare address that leaves its attribute"),
        pytest.param('```"><script>alert(1)</script>\ncode\n```', id="a language of code that leaves its attribute"),
        pytest.param("```html\n<script>alert(1)</script>\n```", id="a script in code that is coloured"),
        pytest.param("![x](https://a.b/x.png)", id="a picture that tells who looks"),
        pytest.param("&lt;script&gt;alert(1)&lt;/script&gt;", id="a script in entities"),
        pytest.param("`<script>alert(1)</script>`", id="a script in a word of code"),
        pytest.param("||<script>alert(1)</script>||", id="a script in a spoiler"),
        pytest.param("\ue0000\ue001<b onclick=alert(1)>x</b>", id="a mark of the page's own"),
        pytest.param("<@U1>", id="a person with a name that is a picture"),
        pytest.param("<@U1|<script>alert(1)</script>>", id="a label of a mention that is a script"),
    ],
)
def test_the_simulator_page_shows_messages_as_plain_text(attack: str) -> None:
    text = {"type": "text", "text": attack}
    rich = {"type": "rich_text", "elements": [{"type": "link", "url": attack, "text": attack}, text]}
    section = {"type": "section", "text": {"type": "mrkdwn", "text": attack}}
    header = {"type": "header", "text": {"type": "plain_text", "text": attack}}
    blocks = render_blocks([rich, section, header, {"type": attack}], NAMES)
    renderings = render_discord(attack, NAMES), render_slack_mrkdwn(attack), render_mrkdwn(attack, NAMES), blocks
    assert [ParsedHtml(html).wrong for html in renderings] == [[], [], [], []]
