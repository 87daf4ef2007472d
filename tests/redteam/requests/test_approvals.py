"""Attacks on approvals: calls that are approved before anybody could read them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from channels.discord.client.api import DiscordApi
from channels.i18n import messages as words
from channels.rate_limits.retries import RefusedError
from channels.requests.approval_message import ARGUMENTS_FILE
from channels.slack.client.api import SlackApi
from chatrig.models import CallTool
from core.messages.identity import Actor
from core.observability.secret_redaction import add_secret
from tests.channels.platforms import PLATFORMS, list_texts, run_conversation, run_simulator, wait_for_texts
from tests.channels.requests.test_approvals import ConfirmedPaymentTool, create_settings, list_requests

#: The end of the arguments is below thousands of characters, with invisible ones.
TO = f"{'ada, ' * 100}\u202eand MALLORY gets 10000\u200b{' ' * 1500}."


@dataclass
class Upload:
    """Uploads of files to both platforms.

    Attributes:
        is_refused: whether the platform refuses them.
        on_call: called before each upload.
    """

    is_refused: bool = False
    on_call: Callable[[], None] = lambda: None


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> Upload:
    state = Upload()
    for owner, name in ((SlackApi, "upload"), (DiscordApi, "set_files")):
        real = getattr(owner, name)

        async def call(*args: Any, real: Any = real) -> Any:
            state.on_call()
            if state.is_refused and args[-1]:
                raise RefusedError("upload", "50013")
            return await real(*args)

        monkeypatch.setattr(owner, name, call)
    return state


def has_button(chat: Any, label: str) -> bool:
    return any(label in message.buttons for message in chat.list_replies())


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_an_approval_can_be_read_in_full_before_it_is_given(
    platform: str, tmp_path: Path, uploads: Upload
) -> None:
    payments = ConfirmedPaymentTool()
    seen = list[bool]()
    async with run_simulator(platform) as simulator:
        async with run_conversation(
            simulator, tmp_path, CallTool("pay", {"to": TO}), "Yes?", core=create_settings(payments)
        ) as chat:
            uploads.on_call = lambda: seen.append(has_button(chat, words.APPROVE))
            await chat.say("pay!")
            await simulator.wait_for(lambda: has_button(chat, words.APPROVE))
            assert seen == [False]
            ((name, data),) = chat.list_files()
            assert name == ARGUMENTS_FILE
            assert json.loads(data) == {"to": TO}
            assert "MALLORY gets 10000" in data.decode()
            assert not {"\u202e", "\u200b"} & set(data.decode())
            assert words.ARGUMENTS_IN_FILE.format(name=ARGUMENTS_FILE).strip("_") in list_texts(chat)[1]
            assert not has_button(chat, words.ALWAYS_ALLOW)
            await chat.bot.wait_for_turns(1)
        async with run_conversation(simulator, tmp_path, "Paid.", core=create_settings(payments)) as chat:
            uploads.on_call = lambda: None
            (row,) = await list_requests(chat)
            await chat.bot.services.request_messages.update(await chat.bot.services.human_requests.get(row.id))
            assert [name for name, _ in chat.list_files()] == [ARGUMENTS_FILE]  # an edit after a restart
            await chat.press(words.APPROVE)
            await wait_for_texts(chat, lambda found: found[-1] == "Paid." and "✅" in found[1])
            await chat.bot.wait_for_turns(2)
            assert payments.paid == [TO]
            assert chat.list_files() == [(ARGUMENTS_FILE, data)]


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_nobody_approves_a_call_whose_arguments_cannot_be_read(
    platform: str, tmp_path: Path, uploads: Upload
) -> None:
    payments = ConfirmedPaymentTool()
    uploads.is_refused = True
    refused = list[str]()
    uploads.on_call = lambda: refused.append("upload")
    async with (
        run_simulator(platform) as simulator,
        run_conversation(
            simulator, tmp_path, CallTool("pay", {"to": TO}), "Paid.", core=create_settings(payments)
        ) as chat,
    ):
        await chat.say("pay!")
        await simulator.wait_for(lambda: has_button(chat, words.RETRY))
        await chat.bot.wait_for_turns(1)
        assert not has_button(chat, words.APPROVE)
        unread = words.ARGUMENTS_NOT_ATTACHED.format(name=ARGUMENTS_FILE)
        assert unread.strip("_") in list_texts(chat)[1]
        (row,) = await list_requests(chat)
        ada = Actor(chat.bot.adapter.name, str(getattr(simulator.people["ada"], "id", simulator.people["ada"])))
        for action in ("approve", "always"):
            presses = chat.bot.adapter._intake.presses
            before = len(refused)
            assert (await presses.handle(f"{action}:{row.id}", actor=ada, locale="")).text == unread
            await simulator.wait_for(lambda before=before: len(refused) > before)  # each press tries to attach it
            await simulator.wait_for(lambda: has_button(chat, words.RETRY))
        assert [request.decision for request in await list_requests(chat)] == [None]
        uploads.is_refused = False
        await chat.press(words.RETRY)
        await simulator.wait_for(lambda: has_button(chat, words.APPROVE))
        assert [json.loads(data) for _, data in chat.list_files()] == [{"to": TO}]
        await chat.press(words.APPROVE)
        await wait_for_texts(chat, lambda found: found[-1] == "Paid.")
        assert payments.paid == [TO]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("to", [TO, "xoxb-000000000000-known"], ids=["cut", "hidden"])
async def test_a_press_of_always_obeys_the_rule_of_its_button(platform: str, to: str, tmp_path: Path) -> None:
    add_secret("xoxb-000000000000-known")
    payments = ConfirmedPaymentTool()
    async with (
        run_simulator(platform) as simulator,
        run_conversation(
            simulator, tmp_path, CallTool("pay", {"to": to}), "Paid.", core=create_settings(payments)
        ) as chat,
    ):
        await chat.say("pay!")
        await simulator.wait_for(lambda: has_button(chat, words.APPROVE))
        await chat.bot.wait_for_turns(1)
        assert not has_button(chat, words.ALWAYS_ALLOW)
        (row,) = await list_requests(chat)
        ada = Actor(chat.bot.adapter.name, str(getattr(simulator.people["ada"], "id", simulator.people["ada"])))
        await chat.bot.adapter._intake.presses.handle(f"always:{row.id}", actor=ada, locale="")
        assert [request.decision for request in await list_requests(chat)] == [None]
        assert payments.paid == []
