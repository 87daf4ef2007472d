"""Content of messages: text, blocks, attachments and files of people and apps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import SurroundingMessages
from channels.slack.events.content import MessageContent, read_message
from channels.slack.events.thread_context import SlackContextFetcher
from channels.slack.interactions.shortcuts import ASK
from channels.slack.text import to_plain_text
from chatrig.slack import SlackFile, SlackSimulator
from chatrig.slack.state.markup import to_rich_text
from core.messages.inbox_message import Attachment, InboxMessage
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import echo

ALERT = "New incident"


def plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


def markup(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text}


def section(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "section", "text": markup(text), **fields}


def rich_text(*elements: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": list(elements)}]}


def button(label: str, **fields: Any) -> dict[str, Any]:
    return {"type": "button", "action_id": "b", "text": plain(label), **fields}


DETAILS = [{"type": "header", "text": plain("Checkout latency p99 4.2 s")}, section("Cluster: eu-1")]
SHOWN = "Checkout latency p99 4.2 s\nCluster: eu-1"
IMAGE = {"type": "image", "image_url": "https://x.example/a.png", "alt_text": "a curve"}
TABLE = {"type": "table", "rows": [[{"type": "raw_text", "text": "eu-1"}, {"type": "raw_number", "value": 4.2}]]}


def read_text(blocks: Sequence[Any], text: str = ALERT, **fields: Any) -> str:
    content = read_message({"bot_id": "B1", "text": text, "blocks": blocks, **fields})
    return to_plain_text(content.text, {})


@pytest.mark.parametrize(
    ("blocks", "shown"),
    [
        (DETAILS, SHOWN),
        ([section("New incident in eu-1")], "New incident in eu-1"),
        ([section("New incident")], ALERT),
        ([section("*New* incident")], ALERT),
        ([rich_text({"type": "text", "text": "New inci"}, {"type": "text", "text": "dent"})], ALERT),
        ([rich_text({"type": "text", "text": "eu-1 "}, {"type": "emoji", "name": "fire"})], "eu-1 :fire:"),
        ([{"type": "divider"}], ALERT),
        ([IMAGE], f"{ALERT}\n[image: a curve]"),
        ([IMAGE | {"title": plain("p99")}], f"{ALERT}\n[image: p99, a curve]"),
        ([{"type": "actions", "elements": [button("Close"), button("Mute")]}], f"{ALERT}\nClose\nMute"),
        ([{"type": "actions", "elements": [button("Open", url="https://x.example/1")]}],
         f"{ALERT}\nOpen (https://x.example/1)"),
        ([section("eu-1", accessory=button("Close"))], "eu-1\nClose"),
        ([{"type": "section", "fields": [markup("*Region* eu"), plain("p99 <4 s>")]}], "*Region* eu\np99 <4 s>"),
        ([{"type": "context", "elements": [IMAGE, markup("by CI"), plain("today")]}], "[image: a curve] by CI today"),
        ([{"type": "markdown", "text": "# Down\n**eu-1**"}], "# Down\n**eu-1**"),
        ([TABLE], "eu-1 | 4.2"),
        ([{"type": "data_table", "caption": "p99", **{"rows": TABLE["rows"]}}], "p99\neu-1 | 4.2"),
        ([{"type": "video", "title": plain("Outage"), "description": plain("eu-1"), "alt_text": "a film"}],
         "Outage\neu-1"),
        ([{"type": "input", "label": plain("Cause"), "element": {"type": "plain_text_input"},
           "hint": plain("in a word")}], "Cause\nin a word"),
        ([{"type": "actions", "elements": [{"type": "radio_buttons", "options": [{"text": plain("Yes"), "value": "y"}]},
                                           {"type": "static_select", "placeholder": plain("Owner"),
                                            "options": [{"text": plain("ada"), "value": "a"}]}]}],
         f"{ALERT}\nYes\nOwner"),
        ([{"type": "card", "title": markup("eu-1"), "body": markup("is down")}], "eu-1\nis down"),
        ([{"type": "plan", "title": "Fix", "tasks": [{"type": "task_card", "title": "restart"}]}], "Fix\nrestart"),
    ],
)  # fmt: skip
def test_blocks_that_say_more_replace_the_fallback_text(blocks: Sequence[Any], shown: str) -> None:
    assert read_text(blocks) == shown


def test_blocks_without_a_fallback_text_are_the_text() -> None:
    assert read_text(DETAILS, text="") == SHOWN
    assert read_text([{"type": "divider"}], text="") == ""
    assert read_text([{"type": "header", "text": plain("🎉")}], text="") == "🎉"


def test_a_request_in_the_fallback_text_stays_before_the_blocks() -> None:
    content = read_message({"bot_id": "B1", "text": "<@UBOT> who is on call?", "blocks": DETAILS})
    assert to_plain_text(content.text, {}) == f"@UBOT who is on call?\n{SHOWN}"
    content = read_message({"bot_id": "B1", "text": "<@UBOT> latency", "blocks": DETAILS})
    assert (to_plain_text(content.text, {}), content.mentioned) == (SHOWN, frozenset({"UBOT"}))


@pytest.mark.parametrize(
    ("attachment", "shown"),
    [
        ({"fallback": "summary", "text": "p99 4.2 s"}, "p99 4.2 s"),
        ({"fallback": "summary"}, "summary"),
        ({"fallback": "[no preview available]", "blocks": DETAILS}, SHOWN),
        ({"fallback": "summary", "text": "summary", "blocks": DETAILS}, SHOWN),
        ({"fallback": "chart", "image_url": "https://x.example/a.png"}, "chart\n[image]"),
        (
            {
                "pretext": "Alert",
                "author_name": "Pager",
                "title": "Latency",
                "title_link": "https://x.example/1",
                "text": "p99",
                "fields": [{"title": "Region", "value": "eu"}],
                "actions": [{"type": "button", "name": "ack", "text": "Acknowledge"}],
                "footer": "by CI",
                "fallback": "summary",
            },
            "Alert\nPager\nLatency (https://x.example/1)\np99\nRegion: eu\nAcknowledge\nby CI",
        ),
    ],
)
def test_attachments_of_apps_have_all_that_people_see(attachment: Mapping[str, Any], shown: str) -> None:
    assert read_text((), attachments=[attachment]) == f"{ALERT}\n{shown}"
    assert read_text((), text="", attachments=[attachment]) == shown


def test_a_table_that_a_person_pastes_is_content_and_a_link_preview_is_not() -> None:
    table = {"id": 1, "blocks": [TABLE], "fallback": "[no preview available]"}
    preview = {"id": 2, "from_url": "https://x.example", "title": "Example", "text": "A page"}
    content = read_message({"user": "U1", "text": "which one?", "attachments": [table, preview]})
    assert content.text == "which one?\neu-1 | 4.2"


@given(
    st.lists(
        st.sampled_from(
            ["hello", "*bold*", "_it_", "~no~", "`code`", "<@U1>", "<#C1>", "<!here>", ":wave:", "<https://x.example/a>",
             "<https://x.example|x.example>", "<mailto:a@b.example|a@b.example>", "&lt;b&gt;", "\n", "서버를", "- item"]
        ),
        max_size=8,
    ).map(" ".join)
)  # fmt: skip
def test_the_text_of_a_person_is_unchanged_by_its_rich_text(text: str) -> None:
    assert read_message({"user": "U1", "text": text, "blocks": to_rich_text(text)}).text == text


@pytest.mark.parametrize("bold", ["*bo*ld move", "これは*重要*です", "*서버*를 봐"])
def test_marks_within_a_word_stay_in_the_text_of_a_person(bold: str) -> None:
    before, marked, after = bold.split("*")
    elements = [{"type": "text", "text": part} for part in (before, marked, after)]
    assert read_message({"user": "U1", "text": bold, "blocks": [rich_text(*elements)]}).text == bold


def test_a_forwarded_message_keeps_its_files_and_forwarded_messages_in_references() -> None:
    file = {"id": "F1", "name": "a.csv", "mimetype": "text/csv", "size": 3, "url_private_download": "https://f.example"}
    inner = {"is_share": True, "author_name": "Lin", "text": "numbers", "files": [file], "ts": "1.0"}
    outer = {"is_share": True, "author_id": "U2", "author_name": "Grace", "text": "see", "attachments": [inner]}
    (part,) = read_message({"user": "U1", "text": "why?", "attachments": [outer]}).forwarded
    restored = MessageContent.from_reference(part.to_reference())
    assert (restored.author, restored.name, restored.text) == ("U2", "Grace", "see\n[forwarded] Lin: numbers")
    source = {"id": "F1", "url_private_download": "https://f.example"}
    assert restored.files == (Attachment("a.csv", "text/csv", 3, source),)


def test_a_stored_reference_without_files_can_be_read() -> None:
    part = MessageContent.from_reference({"author": "U2", "name": "Grace", "text": "see", "ts": "1.0"})
    assert (part.text, part.files) == ("see", ())


def list_prompts(bot: WiredSlackBot) -> list[str]:
    return [message["content"] for message in bot.model.requests[-1]["messages"] if message["role"] == "user"]


async def test_the_model_reads_the_blocks_of_an_alert_in_its_thread(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    alert = await slack.post_as_other_bot("Pager", "general", ALERT, blocks=DETAILS)
    await bot.mention_bot("ada", "general", "what is this?", thread_ts=alert.ts)
    await bot.wait_for_turns(1)
    assert "> Pager: Checkout latency p99 4.2 s\n>     Cluster: eu-1\n" in list_prompts(bot)[0]
    assert ALERT not in list_prompts(bot)[0]


async def test_the_model_reads_the_blocks_of_a_forwarded_alert(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    alert = await slack.post_as_other_bot("Pager", "general", ALERT, blocks=DETAILS)
    await slack.share_message("ada", alert, slack.open_dm("ada"), "what is this?")
    await bot.wait_for_turns(1)
    assert "> Pager: Checkout latency p99 4.2 s\n>     Cluster: eu-1\n" in list_prompts(bot)[0]
    assert ALERT not in list_prompts(bot)[0]


async def test_a_question_about_an_alert_has_its_blocks(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    alert = await slack.post_as_other_bot("Pager", "general", ALERT, blocks=DETAILS)
    await slack.use_shortcut("ada", alert, ASK)
    (modal,) = await slack.wait_for(lambda: slack.modals("ada"))
    assert await slack.submit_modal(modal, prompt="what is this?")
    await bot.wait_for_turns(1)
    assert "> Pager: Checkout latency p99 4.2 s\n>     Cluster: eu-1\n" in list_prompts(bot)[0]
    assert ALERT not in list_prompts(bot)[0]


async def test_a_bot_may_mention_the_bot_in_text_or_in_blocks(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, echo, answers_bots=True) as bot:
        await slack.post_as_other_bot("Pager", "general", f"{bot.mention} {ALERT}", blocks=DETAILS)
        await bot.wait_for_turns(1)
        assert SHOWN.splitlines()[1] in list_prompts(bot)[0]
        await slack.post_as_other_bot("Pager", "general", ALERT, blocks=[section(f"{bot.mention} eu-1 is down")])
        await bot.wait_for_turns(2)
        assert list_prompts(bot) == ["Pager: eu-1 is down"]


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> list[SurroundingMessages]:
    """Return a list to which each fetch of context messages adds its result."""
    fetched, fetch = list[SurroundingMessages](), SlackContextFetcher.fetch

    async def record(self: SlackContextFetcher, messages: Sequence[InboxMessage], history: Any) -> SurroundingMessages:
        fetched.append(await fetch(self, messages, history))
        return fetched[-1]

    monkeypatch.setattr(SlackContextFetcher, "fetch", record)
    return fetched


PLAN = SlackFile("F0PLAN", "plan.csv", b"day;task\nMon;write\n")
OWN = SlackFile("F0OWN", "app.log", b"down")


async def test_earlier_messages_of_a_thread_have_their_files(
    slack: SlackSimulator, bot: WiredSlackBot, surroundings: list[SurroundingMessages]
) -> None:
    root = await slack.post_message("grace", "general", "nightly numbers", files=[PLAN])
    await slack.post_message("ada", "general", "", thread_ts=root.ts, files=[OWN])
    question = await bot.mention_bot("ada", "general", "summarise the files", thread_ts=root.ts)
    await bot.wait_for_texts(question, lambda texts: "heard" in texts[-1])
    (first, second) = surroundings[0].messages
    assert (first.is_thread_start, first.text) == (True, "nightly numbers")
    assert first.key == f"slack:{slack.team_id}:{root.channel.id}:{root.ts}"
    assert [(file.name, file.mime_type, file.size) for file in first.attachments] == [("plan.csv", "text/csv", 19)]
    assert (second.text, [file.name for file in second.attachments]) == ("", ["app.log"])
    (inbound,) = await bot.list_inbox_messages()
    assert list_prompts(bot)[0].count("[files: plan.csv]") == 1
    assert "Mon;write" in list_prompts(bot)[0]
    assert inbound.author == slack.people["ada"].id


async def test_a_linked_message_names_its_files_only(
    slack: SlackSimulator, bot: WiredSlackBot, surroundings: list[SurroundingMessages]
) -> None:
    message = await slack.post_message("grace", "random", "nightly numbers", files=[PLAN])
    link = f"https://simulator.slack.com/archives/{message.channel.id}/p{message.ts.replace('.', '')}"
    slack.faults.delay("conversations.replies", 0.2)
    question = await bot.mention_bot("ada", "general", f"see <{link}>")
    await slack.unfurl_link(question, message)
    await bot.wait_for_turns(1)
    (part,) = surroundings[0].messages
    assert (part.attachments, part.text) == ((), f"nightly numbers\n[files: {PLAN.name}]")


async def test_a_question_about_a_forward_has_its_text_and_files(slack: SlackSimulator, bot: WiredSlackBot) -> None:
    message = await slack.post_message("grace", "random", "nightly numbers", files=[PLAN])
    shared = await slack.share_message("linus", message, "general", "look")
    await slack.use_shortcut("ada", shared, ASK)
    (modal,) = await slack.wait_for(lambda: slack.modals("ada"))
    assert await slack.submit_modal(modal, prompt="what is this?")
    await bot.wait_for_turns(1)
    assert "> linus: look\n>     [forwarded] Grace Hopper: nightly numbers" in list_prompts(bot)[0]
    assert "Mon;write" in list_prompts(bot)[0]
