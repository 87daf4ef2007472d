"""Live check of Discord: its lines and what it leaves, with each fault of the local Discord."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from channels.discord.invite import PERMISSIONS
from chatrig.discord import DiscordSimulator, GuildChannel
from tests.bot.setup.live.conftest import SPEED, LiveRun, pair_faults, run_check

#: Routes of the check in a hidden channel, with the step that calls each first.
ROUTES = {
    "GET /users/@me": "token",
    "GET /oauth2/applications/@me": "token",
    "GET /users/@me/guilds": "token",
    "GET /channels/{channel}": "place",
    "GET /guilds/{guild}": "place",
    "POST /channels/{channel}/messages": "post",
    "PATCH /channels/{channel}/messages/{message}": "edit",
    "PUT /channels/{channel}/messages/{message}/reactions/{emoji}/@me": "react",
    "DELETE /channels/{channel}/messages/{message}/reactions/{emoji}/@me": "unreact",
    "GET /channels/{channel}/messages/{message}": "read",
    "GET /channels/{channel}/messages": "read channel",
    "DELETE /channels/{channel}/messages/{message}": "delete message",
}

#: Routes that post what the check has to delete.
WRITES = {"POST /channels/{channel}/messages"}


@pytest.fixture
async def server() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator(speed=SPEED) as simulator:
        yield simulator


@pytest.fixture
def hidden(server: DiscordSimulator) -> GuildChannel:
    return server.add_channel("hidden", members=["ada"])


def is_named(step: str, line: str) -> bool:
    return line.startswith(f"Discord: {step} (")


def check_left(run: LiveRun, server: DiscordSimulator, channel: GuildChannel) -> None:
    """Check that each message of the channel is named in a line."""
    for message in server.messages(channel):
        assert any(line.endswith(f"/{channel.id}/{message.id}. Delete it by hand") for line in run.failures), (
            run.results
        )


async def test_the_check_passes_in_a_hidden_channel_and_deletes_all(
    server: DiscordSimulator, hidden: GuildChannel
) -> None:
    run = await run_check(server, hidden.id)
    assert (run.failures, run.notes) == ([], [])
    assert {call.route for call in server.calls} == ROUTES.keys()
    assert server.messages(hidden) == []
    assert run.results[-1].line == "Discord: everything that the check wrote is deleted"


async def test_the_check_passes_in_the_dm_with_a_user(server: DiscordSimulator) -> None:
    for place in (server.people["ada"].id, server.open_dm("ada").id):
        run = await run_check(server, place)
        assert (run.failures, run.notes) == ([], [])
        assert server.messages(server.open_dm("ada")) == []


async def test_the_check_passes_with_only_the_permissions_of_the_invitation(
    server: DiscordSimulator, hidden: GuildChannel
) -> None:
    server.permissions.intersection_update({"view_channel", *(name for name, is_set in PERMISSIONS if is_set)})
    assert (await run_check(server, hidden.id)).failures == []


@pytest.mark.parametrize(
    ("channel", "fault"),
    [
        ("general", "@everyone can view #general, where others would see the check"),
        ("ideas", "the id is that of no text channel and no DM"),
    ],
)
async def test_a_place_that_is_not_private_is_refused(server: DiscordSimulator, channel: str, fault: str) -> None:
    run = await run_check(server, server.channels[channel].id)
    [failure] = run.failures
    assert fault in failure
    assert server.messages(channel) == []


async def test_an_unknown_id_and_a_channel_without_the_bot_have_remedies(server: DiscordSimulator) -> None:
    [failure] = (await run_check(server, "123456789012345678")).failures
    assert "Discord says 10013 (Unknown User). Correct the id after `--in discord:`" in failure
    foreign = server.add_channel("foreign", members=["ada"], bot=False)
    [failure] = (await run_check(server, foreign.id)).failures
    assert "Discord says 50001 (Missing Access). Give the bot's role the permission View Channel" in failure


@pytest.mark.parametrize(
    ("permission", "step", "named"),
    [
        ("send_messages", "post", "Send Messages"),
        ("attach_files", "file", "Attach Files"),
        ("add_reactions", "react", "Add Reactions and Read Message History"),
        ("read_message_history", "react", "Add Reactions and Read Message History"),
    ],
)
async def test_a_missing_permission_is_named_with_its_remedy(
    server: DiscordSimulator, hidden: GuildChannel, permission: str, step: str, named: str
) -> None:
    server.permissions.discard(permission)
    run = await run_check(server, hidden.id)
    assert is_named(step, run.failures[0])
    assert f"50013 (Missing Permissions). Give the bot's role the permission {named} in this" in run.failures[0]
    assert server.messages(hidden) == []


async def test_a_refused_token_names_the_place_of_another(server: DiscordSimulator, hidden: GuildChannel) -> None:
    server.faults.fail("GET /users/@me", status=401)
    [failure] = (await run_check(server, hidden.id)).failures
    assert "DISCORD_BOT_TOKEN: Discord rejects it. Copy it at https://discord.com/developers/applications" in failure


@pytest.mark.parametrize(
    ("route", "kind"),
    pair_faults(ROUTES, ["rate_limit", "proxy_limit", "error", "lose_response"], all_kinds_for=WRITES),
)
async def test_a_temporary_fault_is_at_most_one_line_and_nothing_is_left(
    server: DiscordSimulator, hidden: GuildChannel, route: str, kind: str
) -> None:
    if kind == "rate_limit":
        server.faults.rate_limit(route, 0.1)
    elif kind == "proxy_limit":
        server.faults.rate_limit(route, 0.1, has_via_header=False)
    elif kind == "error":
        server.faults.fail(route, status=503)
    else:
        server.faults.lose_response(route)
    run = await run_check(server, hidden.id)
    lines = run.failures + [line for line in run.notes if "not tried" not in line]
    assert all(is_named(ROUTES[route], line) for line in lines), lines
    assert len(lines) == 1 or kind == "lose_response", run.results
    # the login, which is not repeated, fails without a post
    assert run.failures == [] or ROUTES[route] == "token"
    assert server.messages(hidden) == []


@pytest.mark.parametrize(
    ("route", "kind"), pair_faults(ROUTES, ["error", "lose_response", "refused_token"], all_kinds_for=WRITES)
)
async def test_a_lasting_fault_is_named_once_and_so_is_what_is_left(
    server: DiscordSimulator, hidden: GuildChannel, route: str, kind: str
) -> None:
    match kind:
        case "error":
            server.faults.fail(route, 999, status=503)
        case "lose_response":
            server.faults.lose_response(route, 999)
        case _:
            server.faults.fail(route, 999, status=401)
    run = await run_check(server, hidden.id)
    own = [line for line in run.failures if is_named(ROUTES[route], line)]
    edits = [line for line in run.failures if route.startswith("PATCH") and "(PATCH " in line]
    is_found = kind == "lose_response" and route.startswith("POST")  # by a look-up, as by the bot
    assert own or is_found, run.results
    assert [line for line in run.failures if line not in (*own, *edits) and "not deleted" not in line] == []
    check_left(run, server, hidden)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_call_without_an_answer_ends_in_time(
    server: DiscordSimulator, hidden: GuildChannel, route: str
) -> None:
    server.faults.delay(route, 3600, 99)
    run = await run_check(server, hidden.id, seconds=0.7)
    assert is_named(ROUTES[route], run.failures[0])
    assert "no success within 0.7 s" in run.failures[0]
    check_left(run, server, hidden)


async def test_a_post_that_may_still_appear_is_named(server: DiscordSimulator, hidden: GuildChannel) -> None:
    server.faults.delay("POST /channels/{channel}/messages", 3600)
    run = await run_check(server, hidden.id, seconds=0.5)
    assert run.notes[-1].startswith('Discord: post may still take effect: if "Parley check ')
    assert run.notes[-1].endswith(f'" appears in {hidden.id}, delete it by hand')


async def test_a_server_error_that_discordpy_repeats_is_a_note(server: DiscordSimulator, hidden: GuildChannel) -> None:
    server.faults.fail("PATCH /channels/{channel}/messages/{message}", status=500)
    run = await run_check(server, hidden.id)
    [note] = run.notes
    assert is_named("edit", note)
    assert note.endswith(", as expected, after HTTP 500")


@pytest.mark.parametrize("route", ["POST /channels/{channel}/messages", "PATCH /channels/{channel}/messages/{message}"])
async def test_a_cancelled_check_deletes_what_it_wrote(
    server: DiscordSimulator, hidden: GuildChannel, route: str
) -> None:
    server.faults.delay(route, 0.3)
    run = LiveRun()
    running = asyncio.create_task(run_check(server, hidden.id, run=run))
    await server.wait_for(lambda: any(call.route == route for call in server.calls))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert server.messages(hidden) == []
    assert run.results[-1].line == "Discord: everything that the check wrote is deleted"
