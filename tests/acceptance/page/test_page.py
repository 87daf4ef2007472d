"""Simulator page in a real browser, with the real bot."""

import asyncio
import re
from typing import Literal

import aiohttp
import pytest
from playwright.async_api import Locator, Page, expect

from chatrig.models import CallTool, Pause, ReceivedRequest, Say, ScriptedResponse
from tests.acceptance.page.conftest import TIMEOUT_MILLISECONDS, SimulatorPage, wait_for_reconnect

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=TIMEOUT_MILLISECONDS)

MARKDOWN = """\
# Plan

Use **bold** and `code`:

```python
print("hi")
```

| a | b |
| - | -: |
| 1 | 2 |

<script>window.broken = true</script> [x](javascript:window.broken=true)"""


#: JavaScript that lists the visible controls without an accessible name.
UNNAMED_CONTROLS_SCRIPT = """[...document.querySelectorAll("button, input, select, textarea, a")]
    .filter((one) => one.checkVisibility() && !(one.ariaLabel || one.textContent.trim() || one.labels?.length))
    .map((one) => one.outerHTML)"""


async def post_message(page: Page, on: str, text: str) -> None:
    await page.fill(f"#{on}-line", text)
    await page.press(f"#{on}-line", "Enter")


async def open_place(page: Page, on: str, place: str) -> None:
    await page.locator(f"#{on} .place", has_text=place).first.click()
    await expect(page.locator(f"#{on} .place.current")).to_contain_text(place)


async def test_questions_on_both_platforms_stream_and_are_inspected(page: Page, simulator_page: SimulatorPage) -> None:
    go_on = asyncio.Event()
    simulator_page.answer = lambda request: [
        Say("The first half, "),
        Pause(go_on),
        Say("and the second.\n\n" + MARKDOWN),
    ]
    slack, discord = page.locator("#slack .messages"), page.locator("#discord .messages")
    await expect(page.locator("#slack .welcome")).to_contain_text("direct messages with parley")

    await post_message(page, "slack", "How does it grow?")
    await post_message(page, "discord", "And here?")
    await expect(slack).to_contain_text("The first half,")
    await expect(discord).to_contain_text("The first half,")
    await expect(slack).not_to_contain_text("the second.")
    await expect(page.locator("#slack .typing")).to_contain_text("working")
    turn = page.locator(".inspector .turn", has_text="How does it grow?")
    await turn.locator("summary").first.click()
    await turn.locator(".model-call summary").click()
    await expect(turn.locator(".prompt-message.system pre")).to_be_visible()
    go_on.set()
    for pane in (slack, discord):
        await expect(pane).to_contain_text("and the second.")
        await expect(pane.locator(".text pre code").first).to_have_text('print("hi")')
    await expect(slack.locator("table td").first).to_have_text("1")
    await expect(slack.locator("table td").last).to_have_css("text-align", "right")
    await expect(discord.locator("table")).to_have_count(0)  # Discord has no tables: the bot shows the table as text
    await expect(discord.locator(".edited")).to_have_count(1)
    assert await page.evaluate("window.broken") is None
    assert await page.locator("a[href^='javascript']").count() == 0

    await expect(turn.locator("summary .pill").first).to_have_text("done")
    await expect(turn.locator("summary").first).to_contain_text("$0.012")
    await expect(turn.locator(".prompt-message.system pre")).to_be_visible()  # unfolded entries stay unfolded
    await expect(turn.locator(".prompt-message.system pre")).to_contain_text("helpful teammate")
    await expect(turn.locator(".prompt-message.user pre")).to_contain_text("How does it grow?")
    await expect(turn.locator(".model-call .meta").first).to_contain_text("7 in, 5 out")
    await page.click("#tab-calls")
    await expect(page.locator(".inspector .call", has_text="chat.stopStream").first).to_contain_text("200")
    await expect(page.locator(".inspector .rate-limit", has_text="chat.startStream")).to_contain_text("/20")


async def test_commands_buttons_files_and_reactions_work(page: Page, simulator_page: SimulatorPage) -> None:
    simulator_page.answer = lambda request: f"Heard: {request.text}"
    await open_place(page, "discord", "general")
    await post_message(page, "discord", "@parley **once**,\n& `twice`")
    answer = page.locator("#discord .message", has_text="Heard:").last
    await expect(answer).to_contain_text("once")
    await expect(answer.locator(".reference .excerpt")).to_have_text("@parley once, & twice")
    simulator_page.answer = lambda request: "Another answer."
    await answer.locator("button", has_text="Regenerate").click()
    await expect(page.locator("#discord .messages")).to_contain_text("Another answer.")
    last = page.locator("#discord .message", has_text="Another answer.")
    await last.hover()
    await last.get_by_label("React with 🎉").click()
    await expect(last.locator(".reaction.mine")).to_contain_text("1")

    await page.fill("#discord-line", "/res")
    await expect(page.locator("#discord-commands [aria-selected=true]")).to_contain_text("/reset")
    await page.press("#discord-line", "Tab")
    await page.press("#discord-line", "Enter")
    await expect(page.locator("#discord .ephemeral, #discord .message", has_text="/reset")).to_have_count(0)
    await expect(page.locator("#discord .message").last).not_to_contain_text("Another answer.")

    await open_place(page, "slack", "random")
    await post_message(page, "slack", "/help")
    response = page.locator("#slack .ephemeral", has_text="/reset")
    await expect(response).to_contain_text("Only visible to you")
    await page.get_by_role("button", name="grace", exact=True).click()
    await expect(page.locator("#slack .place.current")).to_be_visible()
    await expect(page.locator("#slack .ephemeral")).to_have_count(0)
    await page.get_by_role("button", name="ada", exact=True).click()
    await expect(response).to_be_visible()
    simulator_page.answer = lambda request: "A file, I see."
    await page.set_input_files(
        "#slack input[type=file]", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"hello"}
    )
    await expect(page.locator("#slack .chip")).to_contain_text("a.txt")
    await post_message(page, "slack", "@parley look")
    await expect(page.locator("#slack .replies .message")).to_contain_text("A file, I see.")
    await expect(page.locator("#slack .replies .avatars img")).to_have_attribute("src", "/static/icon.svg")
    async with page.expect_download() as fetched:
        await page.click("#slack .file")
    assert (await (await fetched.value).path()).read_bytes() == b"hello"

    own = page.locator("#slack .messages > .message").last
    await own.focus()  # a pointer would lose the toolbar if the list scrolls under it
    await own.locator("> .toolbar").get_by_label("More actions").click()
    await own.locator("> .toolbar").get_by_role("button", name="Ask about this").click()
    dialog = page.get_by_role("dialog")
    await dialog.locator("textarea").fill("What is it about?")
    simulator_page.answer = lambda request: "It is about a file."
    await dialog.get_by_role("button", name="Ask", exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.locator("#slack .messages")).to_contain_text("It is about a file.")


async def test_an_update_waits_until_a_click_ends(page: Page, simulator_page: SimulatorPage) -> None:
    simulator_page.answer = lambda request: "Ready."
    await open_place(page, "discord", "general")
    await post_message(page, "discord", "@parley hello")
    message = page.locator("#discord .message", has_text="Ready.").last
    await expect(message.locator("button", has_text="Regenerate")).to_be_visible()
    click = """async (message) => {
        const { onChange } = await import("/static/connection.js");
        const isChanged = new Promise((resolve) => onChange((keys) => {
            if ([...keys].some((key) => key.includes(message.dataset.id))) resolve();
        }));
        const button = message.querySelector(".buttons button");
        const { setTimeout } = window;
        window.setTimeout = () => 1;  // so that only the release ends the click
        button.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
        window.setTimeout = setTimeout;
        message.querySelector("[aria-label='React with 🎉']").click();
        await isChanged;
        await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        const wasKept = button.isConnected;
        button.dispatchEvent(new PointerEvent("pointerup", { bubbles: true }));
        return wasKept;
    }"""
    assert await message.evaluate(click)
    await expect(message.locator(".reaction.mine")).to_contain_text("1")


async def test_a_selected_place_is_shown_before_the_server_answers(page: Page) -> None:
    await expect(page.locator("#discord .place")).to_have_count(4)
    click = """() => {
        [...document.querySelectorAll("#discord .place")].find((one) => one.textContent.includes("random")).click();
        return document.querySelector("#discord .title h2").textContent;
    }"""
    assert await page.evaluate(click) == "#random"
    await expect(page.locator("#discord .welcome")).to_contain_text("#random")


async def test_an_opened_place_shows_that_it_loads(page: Page) -> None:
    click = """() => {
        [...document.querySelectorAll("#discord .place")].find((one) => one.textContent.includes("ideas")).click();
        return document.querySelector("#discord .conversation").innerText;
    }"""
    assert "Loading…" in await page.evaluate(click)
    await expect(page.locator("#discord .welcome")).to_contain_text("No posts yet.")
    await expect(page.locator("#discord .welcome")).not_to_contain_text("In a channel")
    await expect(page.get_by_text("Loading…")).to_have_count(2)  # of both panes
    await expect(page.get_by_text("Loading…").locator("visible=true")).to_have_count(0)


async def test_a_tool_call_is_approved_only_by_its_approver(page: Page, simulator_page: SimulatorPage) -> None:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return (
            "It is paid back."
            if request.tool_results
            else [Say("I would pay it back."), CallTool("refund", {"amount": 120}, id="c1")]
        )

    simulator_page.answer = answer
    await open_place(page, "discord", "random")
    await post_message(page, "discord", "@parley pay order 7 back")
    asks = page.locator("#discord .message", has=page.locator(".text", has_text="Approve"))
    await expect(asks).to_contain_text("120")
    await page.get_by_role("button", name="grace", exact=True).click()
    await asks.locator("button", has_text="Approve").click()
    await expect(page.locator("#discord .ephemeral")).to_have_count(1)  # only Grace sees the refusal
    await page.get_by_role("button", name="ada", exact=True).click()
    await expect(page.locator("#discord .ephemeral")).to_have_count(0)
    await asks.locator("button", has_text="Approve").click()
    await expect(page.locator("#discord .messages")).to_contain_text("It is paid back.")
    await expect(asks.locator(".buttons button")).to_have_count(0)
    await page.click("#tab-turns")
    decided = page.locator(".inspector .turn", has_text="decision")
    await decided.locator("summary").first.click()
    await expect(decided.locator(".turn-title")).to_have_text("Approved: refund")
    tool = decided.locator(".tool-call", has_text="refund")
    await expect(tool.locator("pre").first).to_have_text('{"amount": 120}')
    await expect(tool.locator("pre").last).to_contain_text("refunded")
    await expect(decided.locator(".states li")).to_contain_text(["running", "done"])

    await open_place(page, "slack", "random")
    await post_message(page, "slack", "@parley pay order 8 back")
    thread = page.locator("#slack .messages > .message", has_text="order 8").locator(".replies")
    await thread.locator("button", has_text="Approve").click()
    await expect(thread).to_contain_text("It is paid back.")
    await expect(thread.locator(".tasks .task.complete")).to_contain_text("refund")


async def test_an_answer_survives_a_killed_bot_and_a_429(page: Page, simulator_page: SimulatorPage) -> None:
    stuck = asyncio.Event()
    simulator_page.answer = lambda request: [Say("Half of"), Pause(stuck)]
    await open_place(page, "slack", "general")
    await post_message(page, "slack", "@parley tell me all")
    await expect(page.locator("#slack .replies")).to_contain_text("Half of")
    await page.click("#tab-faults")
    simulator_page.answer = lambda request: "All of it."
    async with wait_for_reconnect(page, "slack"):
        await page.get_by_role("button", name="Kill the bot").click()
    await expect(page.locator("#slack .replies")).to_contain_text("All of it.", timeout=2 * TIMEOUT_MILLISECONDS)
    await expect(
        page.locator("#slack .messages > .message", has_text="tell me all").locator(".replies .open")
    ).to_contain_text("1 reply")

    limit = page.locator("fieldset", has_text="Discord").get_by_role("button", name="429")
    await limit.click()
    await expect(limit).to_have_attribute("aria-pressed", "true")
    await post_message(page, "discord", "Once more?")
    await expect(page.locator("#discord .messages")).to_contain_text("All of it.")
    await page.click("#tab-calls")
    await expect(page.locator(".inspector .call.failed", has_text="429").first).to_be_visible()


async def test_faults_are_injected_and_removed(page: Page, simulator_page: SimulatorPage) -> None:
    def find_button(on: str, name: str) -> Locator:
        return page.locator("fieldset", has=page.locator("legend", has_text=on)).get_by_role("button", name=name)

    async def expect_pressed(button: Locator, is_pressed: str) -> None:
        await expect(button).to_have_attribute("aria-pressed", is_pressed)

    simulator_page.answer = lambda request: f"Through all of it: {request.text}"
    await page.click("#tab-faults")
    for on in ("Slack", "Discord"):
        for name in ("429", "Lose a response", "Slow"):
            for is_pressed in ("true", "false"):
                await find_button(on, name).click()
                await expect_pressed(find_button(on, name), is_pressed)
        await find_button(on, "Lose a response").click()
        await expect_pressed(find_button(on, "Lose a response"), "true")
        await post_message(page, on.lower(), "one")
        messages = page.locator(f"#{on.lower()} .messages")
        await expect(messages).to_contain_text("Through all of it: one")
        await expect_pressed(
            find_button(on, "Lose a response"), "false"
        )  # the fault has occurred once, and does not repeat
        await expect(messages.locator(".message", has_text="Through all of it: one")).to_have_count(1)
    await page.click("#tab-calls")
    await expect(page.locator(".inspector .call.failed", has_text="response lost")).to_have_count(2)

    await page.click("#tab-faults")
    async with wait_for_reconnect(page, "slack"):
        await find_button("Slack", "Drop the connection").click()
    await find_button(
        "Discord", "Drop the connection"
    ).click()  # discord.py reconnects before the pane shows it as disconnected
    await find_button("Bot", "Slow model").click()
    await expect_pressed(find_button("Bot", "Slow model"), "true")
    await post_message(page, "discord", "two")
    await expect(page.locator("#discord .messages")).to_contain_text("Through all of it: two")
    await page.click("#tab-turns")
    turn = page.locator(".inspector .turn", has_text="two").first
    await turn.locator("summary").first.click()
    await expect(turn.locator(".model-call .meta")).to_contain_text(re.compile(r"first text [2-9]\."))
    await page.click("#tab-faults")
    await find_button("Bot", "Slow model").click()
    await expect_pressed(find_button("Bot", "Slow model"), "false")


async def test_the_model_is_switched_and_cut_messages_are_shown(page: Page, simulator_page: SimulatorPage) -> None:
    simulator_page.answer = lambda request: "Well said."
    offered = await page.locator("#model option").all_text_contents()
    assert offered[:3] == ["openai/scripted", "openai/other", "gemini-3.5-flash"]
    assert {name.partition("-")[0] for name in offered[2:-2]} == {"gemini"}  # the only provider with a key
    assert offered[-2:] == ["local/smollm2-135m", "another model…"]
    await page.select_option("#model", label="another model…")
    await page.fill("#dialog-field", "openai/third")
    async with wait_for_reconnect(page, "slack"):
        await page.keyboard.press("Enter")
    await post_message(page, "slack", "A long story. " * 120)
    await expect(page.locator("#slack .messages")).to_contain_text("Well said.")
    await post_message(page, "slack", "And now?")
    await expect(page.locator("#slack .messages .message", has_text="Well said.")).to_have_count(2)
    turn = page.locator(".inspector .turn", has_text="And now?")
    await turn.locator("summary").first.click()
    await expect(turn.locator(".model-call .meta").first).to_contain_text("openai/third")
    await turn.locator(".model-call summary").first.click()
    cut = turn.locator(".prompt .cut")
    await expect(cut.locator("summary")).to_contain_text("cut (")
    await cut.locator("summary").click()
    await expect(cut.locator(".prompt-message pre").first).to_contain_text("Well said.")


async def test_an_exact_slash_command_is_sent_not_completed(page: Page, simulator_page: SimulatorPage) -> None:
    simulator_page.answer = lambda request: "Never."
    await open_place(page, "slack", "general")
    await page.fill("#slack-line", "")
    await page.locator("#slack-line").press_sequentially("/agent")
    await expect(page.locator("#slack [role=option] b").first).to_have_text("/agent")
    await page.press("#slack-line", "Enter")
    await expect(page.locator("#slack-line")).to_have_value("")
    await expect(page.locator("#slack .messages")).to_contain_text("parley")


async def test_the_theme_follows_the_system_or_the_user(page: Page) -> None:
    async def is_dark() -> bool:
        red, *_ = await page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        return bool(red < 128)

    schemes: tuple[Literal["dark", "light"], ...] = ("dark", "light")
    for scheme in schemes:
        await page.emulate_media(color_scheme=scheme)
        assert await is_dark() is (scheme == "dark")
    await page.get_by_label("Switch theme").click()
    assert await is_dark()
    await page.reload()
    await page.wait_for_selector("#slack .state.on")
    assert await is_dark()


async def test_the_page_works_by_keyboard_and_on_a_phone(page: Page, simulator_page: SimulatorPage) -> None:
    simulator_page.answer = lambda request: "By keys alone."
    await page.keyboard.press("Alt+2")
    await expect(page.locator("#discord-line")).to_be_focused()
    await page.keyboard.press("Alt+p")
    await expect(page.locator(".person.current")).to_contain_text("grace")
    await page.keyboard.type("hello")
    await page.keyboard.press("Enter")
    await expect(page.locator("#discord .messages")).to_contain_text("By keys alone.")
    await expect(
        page.locator("#discord .message", has_text="By keys").locator("button", has_text="Regenerate")
    ).to_be_visible()
    await page.keyboard.press("ArrowUp")
    await expect(page.locator("#discord .message").last).to_be_focused()
    go_on = asyncio.Event()
    simulator_page.answer = lambda request: [Say("What grows "), Pause(go_on), Say("keeps the focus.")]
    await page.focus("#discord-line")
    await page.keyboard.type("and now?")
    await page.keyboard.press("Enter")
    growing = page.locator("#discord .message", has_text="What grows")
    await expect(growing).to_be_visible()
    await page.keyboard.press("ArrowUp")
    await expect(growing).to_be_focused()
    go_on.set()
    await expect(growing).to_contain_text("keeps the focus.")
    await expect(growing.locator("button", has_text="Regenerate")).to_be_visible()
    await expect(growing).to_be_focused()
    for _ in range(12):
        await page.keyboard.press("Tab")
        if "Regenerate" in (await page.evaluate("document.activeElement.textContent")):
            break
    simulator_page.answer = lambda request: "And once more."
    await page.keyboard.press("Enter")
    await expect(page.locator("#discord .messages")).to_contain_text("And once more.")
    await page.keyboard.press("Alt+1")
    await page.keyboard.type("hello")
    await page.keyboard.press("Enter")
    await expect(page.locator("#slack .title h2")).to_have_text("Thread")
    await page.keyboard.press("Escape")
    await expect(page.locator("#slack .title h2")).to_have_text("@parley")
    assert await page.evaluate(UNNAMED_CONTROLS_SCRIPT) == []

    for width in (1024, 768, 641, 375):
        await page.set_viewport_size({"width": width, "height": 720})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
    for view, selector in (("Discord", "#discord-line"), ("Inspector", ".inspector .panel"), ("Slack", "#slack-line")):
        await page.locator("#tabs .tab", has_text=view).click()
        await expect(page.locator(selector)).to_be_in_viewport()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 375


async def test_a_phone_shows_the_newest_message_of_a_long_conversation(
    page: Page, simulator_page: SimulatorPage
) -> None:
    simulator_page.answer = lambda request: (
        "\n\n".join(f"Line {number}." for number in range(60)) + "\n\nThe last line."
    )
    await post_message(page, "discord", "Tell me a lot.")
    last = page.locator("#discord .message", has_text="The last line.").last
    await expect(last.locator("button", has_text="Regenerate")).to_be_visible()
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.locator("#tabs .tab", has_text="Slack").click()
    await page.locator("#tabs .tab", has_text="Discord").click()
    await expect(last.get_by_text("The last line.")).to_be_in_viewport()


async def test_the_page_is_served_only_at_its_own_address(simulator_page: SimulatorPage) -> None:
    async with aiohttp.ClientSession() as session:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            async with session.get(simulator_page.address, headers=headers) as answer:
                assert answer.status == 403
        for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "https://127.0.0.1"}):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(f"{simulator_page.address}socket", headers=headers)
        async with session.get(f"{simulator_page.address}inspector/guess") as answer:
            assert answer.status == 404
        async with session.get(f"{simulator_page.address}static/../server.py") as answer:
            assert answer.status in (403, 404)
        async with session.get(simulator_page.address) as answer:
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]


async def test_a_message_right_after_a_change_of_place_is_shown(page: Page, simulator_page: SimulatorPage) -> None:
    await post_message(page, "slack", "first question")
    await expect(page.locator("#slack div.title")).to_contain_text("first question")
    await page.evaluate(
        """() => {
            document.querySelector("#slack .place").click();
            const line = document.getElementById("slack-line");
            line.value = "second question";
            line.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
        }"""
    )
    await expect(page.locator("#slack div.title")).to_contain_text("second question")
