"""Live check of Slack: its lines and what it leaves, with each fault of the local Slack."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from channels.slack.client.auth import SCOPES
from chatrig.slack import SlackConversation, SlackSimulator
from tests.bot.setup.live.conftest import SPEED, LiveRun, pair_faults, run_check

#: Methods of the check in a private channel, in order, with the step that calls each first.
METHODS = {
    "auth.test": "token",
    "conversations.info": "place",
    "conversations.members": "member",
    "users.info": "member",
    "chat.postMessage": "post",
    "chat.update": "edit",
    "chat.startStream": "stream start",
    "chat.appendStream": "stream append",
    "chat.stopStream": "stream stop",
    "files.getUploadURLExternal": "upload",
    "upload": "upload",
    "files.completeUploadExternal": "file",
    "reactions.add": "react",
    "reactions.remove": "unreact",
    "conversations.replies": "read",
    "conversations.history": "read channel",
    "files.delete": "delete file",
    "chat.delete": "delete message",
}

#: Methods that post what the check has to delete.
WRITES = {"chat.postMessage", "chat.startStream", "files.completeUploadExternal"}

READS = {
    "conversations.info",
    "conversations.members",
    "users.info",
    "conversations.replies",
    "conversations.history",
}

#: Scopes without which a step fails, and the step.
SCOPE_STEPS = {
    "groups:read": "place",
    "users:read": "member",
    "chat:write": "post",
    "files:write": "upload",
    "reactions:write": "react",
    "groups:history": "read",
}


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(speed=SPEED) as simulator:
        yield simulator


@pytest.fixture
def secret(slack: SlackSimulator) -> SlackConversation:
    return slack.add_channel("secret", private=True)


def is_named(step: str, line: str) -> bool:
    return line.startswith(f"Slack: {step} (")


def check_left(run: LiveRun, slack: SlackSimulator, channel: SlackConversation) -> None:
    """Check that each message of the channel is named in a line; a tombstone stays above a reply."""
    for message in (message for message in slack.messages(channel) if not message.is_tombstone):
        assert any(message.ts.replace(".", "") in line for line in run.failures), run.results


async def test_the_check_passes_in_a_private_channel_and_deletes_all(
    slack: SlackSimulator, secret: SlackConversation
) -> None:
    run = await run_check(slack, secret.id)
    assert (run.failures, run.notes) == ([], [])
    called = {call.method for call in slack.calls}
    assert called == METHODS.keys()
    assert slack.messages(secret) == []
    assert run.results[-1].line == "Slack: everything that the check wrote is deleted"


async def test_the_check_passes_in_the_dm_with_a_user(slack: SlackSimulator) -> None:
    for place in (slack.people["ada"].id, slack.open_dm("ada").id):
        run = await run_check(slack, place)
        assert (run.failures, run.notes) == ([], [])
        assert slack.messages(slack.open_dm("ada")) == []


async def test_the_check_passes_with_only_the_scopes_of_the_manifest(
    slack: SlackSimulator, secret: SlackConversation
) -> None:
    slack.scopes.intersection_update(SCOPES)
    for place in (secret.id, slack.people["ada"].id):
        assert (await run_check(slack, place)).failures == []


async def test_a_public_channel_is_refused_without_a_post(slack: SlackSimulator) -> None:
    run = await run_check(slack, slack.channels["general"].id)
    [failure] = run.failures
    assert "place (conversations.info): #general is a public channel" in failure
    assert slack.messages("general") == []
    assert run.notes == [
        "Slack: not tried after this failure: member, post, edit, stream start, stream append, stream stop, upload, "
        "file, react, unreact, read"
    ]


async def test_a_channel_without_the_bot_names_the_invitation(slack: SlackSimulator) -> None:
    run = await run_check(slack, "C0NOTHING")
    [failure] = run.failures
    assert failure == (
        "Slack: place (conversations.info): Slack says channel_not_found. Invite the bot to the channel (/invite @ and "
        "its name), or correct the id after `--in slack:`."
    )


@pytest.mark.parametrize(("scope", "step"), SCOPE_STEPS.items())
async def test_a_missing_scope_is_named_with_its_remedy(
    slack: SlackSimulator, secret: SlackConversation, scope: str, step: str
) -> None:
    slack.scopes.discard(scope)
    run = await run_check(slack, secret.id)
    assert is_named(step, run.failures[0])
    assert f"Slack says missing_scope. The app lacks the scope {scope}: paste the output of" in run.failures[0]
    assert slack.messages(secret) == []


@pytest.mark.parametrize(
    ("method", "kind"), pair_faults(METHODS, ["rate_limit", "error", "lose_response"], all_kinds_for=WRITES)
)
async def test_a_temporary_fault_is_one_note_and_nothing_is_left(
    slack: SlackSimulator, secret: SlackConversation, method: str, kind: str
) -> None:
    if kind == "rate_limit":
        slack.faults.rate_limit(method, 1)
    elif kind == "error":
        slack.faults.fail(method, status=503)
    else:
        slack.faults.lose_response(method)
    run = await run_check(slack, secret.id)
    assert run.failures == []
    assert all(is_named(METHODS[method], line) for line in run.notes), run.notes
    # aiohttp repeats a GET by itself; the request of an upload goes to another address
    assert len(run.notes) == 1 or method == "upload" or (kind == "lose_response" and method in READS), run.results
    assert slack.messages(secret) == []


@pytest.mark.parametrize(
    ("method", "kind"), pair_faults(METHODS, ["error", "lose_response", "token_revoked"], all_kinds_for=WRITES)
)
async def test_a_lasting_fault_is_one_failure_and_what_is_left_is_named(
    slack: SlackSimulator, secret: SlackConversation, method: str, kind: str
) -> None:
    if kind == "error":
        slack.faults.fail(method, 99, status=500)
    elif kind == "lose_response":
        slack.faults.lose_response(method, 99)
    else:
        slack.faults.fail(method, 99, error=kind, status=500 if method == "upload" else 200)
    run = await run_check(slack, secret.id)
    own = [line for line in run.failures if is_named(METHODS[method], line)]
    assert own, run.results
    others = [line for line in run.failures if line not in own and "not deleted" not in line]
    if method == "chat.stopStream":  # an open stream cannot be deleted
        others = [line for line in others if not is_named("delete message", line)]
    assert others == [], run.results
    check_left(run, slack, secret)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "upload"])
async def test_a_call_without_an_answer_ends_in_time(
    slack: SlackSimulator, secret: SlackConversation, method: str
) -> None:
    slack.faults.delay(method, 3600, 99)
    run = await run_check(slack, secret.id, seconds=0.5)
    assert is_named(METHODS[method], run.failures[0])
    assert "no success within 0.5 s" in run.failures[0]
    check_left(run, slack, secret)


async def test_a_post_that_may_still_appear_is_named(slack: SlackSimulator, secret: SlackConversation) -> None:
    slack.faults.delay("chat.postMessage", 3600)
    run = await run_check(slack, secret.id, seconds=0.5)
    assert run.notes[-1].startswith('Slack: post may still take effect: if "Parley check ')
    assert run.notes[-1].endswith(f'" appears in {secret.id}, delete it by hand')


async def test_a_token_revoked_during_the_check_names_what_is_left(
    slack: SlackSimulator, secret: SlackConversation
) -> None:
    run = LiveRun()
    running = asyncio.create_task(run_check(slack, secret.id, run=run))
    await slack.wait_for(lambda: slack.messages(secret))
    slack.uninstall()
    await running
    assert "Slack says token_revoked. Copy the Bot User OAuth Token" in run.failures[0]
    assert slack.messages(secret) != []
    check_left(run, slack, secret)


@pytest.mark.parametrize("method", ["chat.postMessage", "chat.appendStream", "files.completeUploadExternal"])
async def test_a_cancelled_check_deletes_what_it_wrote(
    slack: SlackSimulator, secret: SlackConversation, method: str
) -> None:
    slack.faults.delay(method, 0.3)
    run = LiveRun()
    running = asyncio.create_task(run_check(slack, secret.id, run=run))
    await slack.wait_for(lambda: any(call.method == method for call in slack.calls))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert slack.messages(secret) == []
    assert run.results[-1].line == "Slack: everything that the check wrote is deleted"


async def test_several_workspaces_need_the_token_of_one(slack: SlackSimulator) -> None:
    settings = {
        "slack_bot_token": None,
        "slack_mode": "http",
        "slack_signing_secret": "s",
        "slack_client_id": "1.2",
        "slack_client_secret": "s",
        "secret_key": "0123456789abcdef" * 2,
    }
    run = await run_check(slack, "C0NOTHING", settings=settings)
    assert run.failures == ["Slack: SLACK_BOT_TOKEN is not set: set it to the token of one workspace for this check"]
