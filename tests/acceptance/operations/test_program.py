"""Commands of the program (`run`, `check`, `install`...), and their output."""

import json
import socket
import sqlite3
import stat
from importlib.metadata import version
from pathlib import Path

import aiohttp
import pytest

from chatrig.discord import DiscordSimulator
from chatrig.models import Say, ScriptedOpenAI
from chatrig.slack import SlackSimulator
from tests.acceptance.conftest import MakeProgram, Program, StartBot
from tests.acceptance.platforms import Discord, Slack


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            {"SLACK_BOT_TOKEN": "xapp-1", "TURN_TIMEOUT_SECONDS": "soon"},
            ["SLACK_BOT_TOKEN: it must begin with xoxb-", "TURN_TIMEOUT_SECONDS:"],
        ),
        (
            {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "MODEL": "martian/m1"},
            ["MODEL=martian/m1", "gemini-NAME", "openai/NAME", "anthropic/NAME", "local/NAME"],
        ),
        ({"DISCORD_BOT_TOKEN": "a.b.c"}, ["GOOGLE_API_KEY is not set", "aistudio"]),
        ({"DATA_DIR": "/dev/null/data"}, ["DATA_DIR=/dev/null/data: it cannot be written to"]),
        (
            {"DYNO": "worker.1", "DATABASE_URL": "sqlite:///parley.db"},
            ["No SLACK_BOT_TOKEN with SLACK_APP_TOKEN and no DISCORD_BOT_TOKEN is set", "README.md"],
        ),
    ],
)
async def test_a_failed_start_prints_only_the_wrong_settings(
    program: MakeProgram, settings: dict[str, str], named: list[str]
) -> None:
    code, output = await program(settings).run_command("run")
    assert code == 2
    assert "Traceback" not in output
    for words in named:
        assert words in output


@pytest.mark.parametrize(
    ("command", "is_there"),
    [("run", True), ("migrate", False), ("check", True)],
    ids=["run: no database", "migrate: no folder", "check: no database"],
)
async def test_an_invalid_database_is_named(program: MakeProgram, tmp_path: Path, command: str, is_there: bool) -> None:
    path = tmp_path / "other.db" if is_there else Path("/dev/null/data/x.db")
    if is_there:
        path.write_bytes(b"something else altogether" * 100)
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "SLACK_API_URL": "http://127.0.0.1:1"}
    code, output = await program({**tokens, "DATABASE_URL": f"sqlite:///{path}"}).run_command(command)
    assert code == 1
    assert f"the database cannot be used ({'SQLITE_NOTADB' if is_there else 'NotADirectoryError'})" in output
    assert "Traceback" not in output


async def test_a_token_that_slack_rejects_stops_the_start(program: MakeProgram, slack: SlackSimulator) -> None:
    async with ScriptedOpenAI() as model:
        settings = {
            "SLACK_API_URL": slack.api_url,
            "SLACK_BOT_TOKEN": "xoxb-wrong",
            "SLACK_APP_TOKEN": "xapp-wrong",
            "MODEL": "openai/m",
            "OPENAI_BASE_URL": model.base_url,
        }
        code, output = await program(settings).run_command("run")
    assert code == 2
    assert "SLACK_BOT_TOKEN: Slack says invalid_auth." in output
    assert "SLACK_APP_TOKEN: Slack says invalid_auth." in output
    assert "Traceback" not in output


async def test_over_http_the_app_is_installed_in_a_workspace_and_answers(program: MakeProgram) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    async with ScriptedOpenAI([Say("Hello by HTTP.")]) as model, SlackSimulator() as slack:
        settings = {
            "SLACK_API_URL": slack.api_url,
            "SLACK_MODE": "http",
            "SLACK_SIGNING_SECRET": slack.signing_secret,
            "SLACK_CLIENT_ID": slack.oauth.client_id,
            "SLACK_CLIENT_SECRET": slack.oauth.client_secret,
            "SECRET_KEY": "0123456789abcdef" * 2,
            "PORT": str(port),
            "MODEL": "openai/m",
            "OPENAI_BASE_URL": model.base_url,
        }
        bot = program(settings)
        await bot.start()
        try:
            await bot.wait_until_ready()
            await slack.request_url.verify(f"{address}/slack/events")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{address}/slack/install", allow_redirects=False) as page:
                    cookie = {name: cookie.value for name, cookie in page.cookies.items()}
                    query = slack.authorize(page.headers["Location"])
                async with session.get(f"{address}/slack/oauth_redirect?{query}", cookies=cookie) as page:
                    assert page.status == 200
            question = await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> hello")
            thread = question.ts
            await slack.wait_for(lambda: slack.messages("general", thread_ts=thread)[-1].text == "Hello by HTTP.")
            assert await bot.stop() == 0
            assert not any(word in bot.log for word in (slack.bot_token, query, slack.signing_secret))
        finally:
            await bot.aclose()


def list_permissions(folder: Path) -> dict[str, int]:
    """Return the permission bits of a folder and of the files in it, by name."""
    paths = [folder, *(path for path in folder.iterdir() if path.is_file())]
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}


async def test_other_users_of_the_machine_cannot_read_what_is_stored(start: StartBot, tmp_path: Path) -> None:
    data = tmp_path / ".parley"
    data.mkdir(mode=0o755)
    sqlite3.connect(data / "parley.db").execute("VACUUM").close()  # as an older version creates it
    (data / "bot.log").touch(mode=0o644)
    bot = await start()
    bot.answer = lambda _request: "Hello."
    await bot.ask(bot.platforms[0], bot.platforms[0].start_conversation(), "hi", "Hello.")
    found = list_permissions(data)
    assert {".parley", "bot.log", "parley.db", "parley.db-wal", "parley.db-shm"} <= found.keys()
    assert found == {name: 0o700 if name == ".parley" else 0o600 for name in found}


async def test_without_tokens_the_simulator_answers_typed_messages(program: MakeProgram, tmp_path: Path) -> None:
    async with ScriptedOpenAI(
        [[Say(f"Hello from the {n} model.", pieces=4, pace=0.5)] for n in ("one", "two")]
    ) as model:
        settings = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url, "DISCORD_GUILD_IDS": "1"}
        typed = "hello\n/wait\n/discord\n/channel general\n@parley hello again\n"
        code, output = await program(settings).run_command("run", stdin=typed, within=60)
    assert code == 0, output
    assert set(list_permissions(tmp_path / ".parley").values()) == {0o700, 0o600}
    first, _, _, _, _, *lines = output.splitlines()
    assert first.endswith("starting the simulator, a local Slack and Discord.")
    slack = [line for line in lines if line.startswith("[Slack dm ada")]
    discord = [line for line in lines if line.startswith("[Discord #general")]
    assert slack + discord == lines
    for (question, *answer), question_text, number in (
        (slack, "hello", "one"),
        (discord, "@parley hello again", "two"),
    ):
        assert question.endswith(f"ada] {question_text}")
        assert "] …" in answer[0]
        assert f"parley updated] Hello from the {number} model." in answer[-1]


async def test_an_unexpected_error_of_the_simulator_is_printed(program: MakeProgram, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "bot.log").mkdir(parents=True)
    code, output = await program({"DATA_DIR": str(data)}).run_command("run", stdin="")
    assert code == 1
    assert f"Stopped by an error, IsADirectoryError: its lines are in {data / 'simulator.log'}." in output
    assert "bot.log" in (data / "simulator.log").read_text()


async def test_the_terminal_takes_the_tour_and_returns_to_the_own_model(program: MakeProgram) -> None:
    async with ScriptedOpenAI(["Back again."]) as model:
        settings = {"MODEL": "openai/scripted", "OPENAI_BASE_URL": model.base_url, "AGENT_NAME": "mine"}
        form_lines = (
            "Plan a tasting.\n/wait\n/press Answer\n/submit Ada; Guests: 50; Day: fri\n/submit Guests: 9\n/wait\n"
        )
        typed = "/tour\nRefund order 1042.\n/thread last\n/wait\n/press Approve\n/wait\n"
        typed += f"{form_lines}/dm\n/tour end\nhello\n"
        code, output = await program(settings).run_command("run", stdin=typed, within=100)
        assert len(model.requests) == 1  # the tour asks no model of the operator
    assert code == 0, output
    tour_start, approval, refunded, form, refusal, booked, ended, answer = (
        output.index(text)
        for text in (
            "[Slack] The tour has begun. Write: Refund order 1042.",
            "[ Approve ] [ Always allow here ] [ Deny ]",
            "Approved and done: $42.00 goes back to Mina Park.",
            "[Slack form of ada] Answer ⏎ What shall the tasting be like? ⏎ • Your name ⏎ • Guests = 8",
            "• Guests = 50 ⚠ Enter at most 20.",
            "Booked: **Friday**, 9 guests of Ada",
            "[Slack] The tour has ended.\n[Slack] Model: openai/scripted",
            "parley updated] Back again.",
        )
    )
    assert tour_start < approval < refunded < form < refusal < booked < ended < answer
    assert "Traceback" not in output


@pytest.mark.local_model
async def test_without_settings_a_local_model_answers_beside_the_tour(tmp_path: Path) -> None:
    typed = "How was this week?\n/wait\nWhat is the capital of South Korea?\n"
    code, output = await Program(tmp_path, {}).run_command("run", stdin=typed, within=120)
    assert code == 0, output
    assert "All else is answered by local/smollm2-135m, a tiny local model, often wrong." in output
    assert "Friday" in output
    answer = output.splitlines()[-1].partition("parley updated] ")[2]
    assert len(answer) > 3, output
    assert "⚠️" not in answer


async def test_a_bot_that_cannot_start_ends_the_simulator_with_its_error(program: MakeProgram) -> None:
    code, output = await program({"MODEL": "martian/m1"}).run_command("simulator", stdin="hello\n", within=60)
    assert code == 1
    assert "the bot exited: " in output
    assert "MODEL=martian/m1: there is no such provider" in output
    assert "Traceback" not in output


async def test_the_former_name_of_the_simulator_says_the_new_one(program: MakeProgram) -> None:
    code, output = await program({"MODEL": "martian/m1"}).run_command("sandbox", stdin="hello\n", within=60)
    assert (code, output.splitlines()[0]) == (1, "`parley sandbox` is now `parley simulator`.")
    assert "MODEL=martian/m1: there is no such provider" in output


async def test_check_reports_each_working_setting(
    program: MakeProgram, slack: SlackSimulator, discord: DiscordSimulator
) -> None:
    async with ScriptedOpenAI(["ok"]) as model:
        settings = {
            **Slack(slack).settings,
            **Discord(discord).settings,
            "MODEL": "openai/m",
            "OPENAI_BASE_URL": model.base_url,
        }
        code, output = await program(settings).run_command("check")
    assert code == 0, output
    before, names = output, [line.partition(":")[0] for line in output.splitlines()]
    assert names[:-1] == [
        "ok   Slack",
        "ok   Discord",
        "note RATE_LIMIT_PER_USER is not set, so one user may send any number of messages; 20/h is a good start",
        "ok   database",
        "ok   model",
        "ok   agent",
    ]
    assert names[-1] in ("ok   tokens", "note tokens")
    code, output = await program({"SLACK_BOT_TOKEN": "xoxb-1"}).run_command("check --json")
    found = [(load["verdict"], load["line"].partition(" ")[0]) for load in json.loads(output.removeprefix(before))]
    assert (code, found) == (1, [("fail", "SLACK_APP_TOKEN"), ("fail", "GOOGLE_API_KEY")])


async def test_check_names_a_wrong_token_an_unreachable_database_and_an_unknown_model(
    program: MakeProgram, slack: SlackSimulator, discord: DiscordSimulator
) -> None:
    async with ScriptedOpenAI(models=["gpt-real"]) as model:
        settings = {
            **Slack(slack).settings,
            **Discord(discord).settings,
            "SLACK_BOT_TOKEN": "xoxb-wrong",
            "DISCORD_BOT_TOKEN": "not.the.one",
            "DATABASE_URL": "postgres://parley:hidden-password@127.0.0.1:1/parley",
            "MODEL": "openai/gpt-invented",
            "OPENAI_BASE_URL": model.base_url,
        }
        code, output = await program(settings).run_command("check")
    assert code == 1
    assert "FAIL SLACK_BOT_TOKEN: Slack says invalid_auth." in output
    assert "FAIL DISCORD_BOT_TOKEN: Discord rejects it." in output
    assert "https://discord.com/developers/applications" in output
    assert "FAIL DATABASE_URL: postgresql+asyncpg://parley:***@127.0.0.1:1/parley" in output
    assert "gpt-invented" in next(line for line in output.splitlines() if line.startswith("FAIL MODEL"))
    assert "hidden-password" not in output
    assert "Traceback" not in output


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    "settings",
    [
        {"MODEL": "sk-ant-api03-abcdefghijklmnop"},
        {"ADMINS": "xoxb-123456789-abcdefghij"},
        {"SLACK_ALLOW": "xoxb-123456789-abcdefghij"},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_a_secret_in_the_wrong_setting_is_not_printed(
    program: MakeProgram, command: str, settings: dict[str, str]
) -> None:
    tokens = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "SLACK_API_URL": "http://127.0.0.1:1"}
    _, output = await program({**tokens, **settings}).run_command(command)
    ((name, secret),) = settings.items()
    assert name in output
    assert "[redacted]" in output
    assert secret[-8:] not in output


async def test_check_names_a_missing_intent_and_a_server_that_the_bot_is_not_in(
    program: MakeProgram, discord: DiscordSimulator
) -> None:
    discord.privileged_intents.discard("message_content")
    settings = {**Discord(discord).settings, "DISCORD_GUILD_IDS": f"{discord.guild_id}, 42"}
    code, output = await program(settings).run_command("check")
    assert code == 1
    assert "note Discord: the message content intent is off" in output
    (fault,) = [line for line in output.splitlines() if line.startswith("FAIL DISCORD")]
    assert (
        "DISCORD_GUILD_IDS: the bot is not in the server 42. Invite it: https://discord.com/oauth2/authorize?" in fault
    )


async def test_check_reports_the_faults_of_both_platforms_together(
    program: MakeProgram, slack: SlackSimulator, discord: DiscordSimulator
) -> None:
    wrong = {"SLACK_BOT_TOKEN": "xoxb-wrong", "DISCORD_BOT_TOKEN": "not.the.one"}
    async with ScriptedOpenAI() as model:
        places = {**Slack(slack).settings, **Discord(discord).settings, **wrong}
        settings = {**places, "MODEL": "openai/m", "OPENAI_BASE_URL": model.base_url}
        code, output = await program(settings).run_command("run")
    assert code == 2
    assert "SLACK_BOT_TOKEN: Slack says invalid_auth." in output
    assert "DISCORD_BOT_TOKEN: Discord rejects it." in output
    assert "Traceback" not in output


async def test_check_names_a_missing_scope(program: MakeProgram, slack: SlackSimulator) -> None:
    slack.scopes.discard("im:history")
    settings = {
        "SLACK_API_URL": slack.api_url,
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_APP_TOKEN": slack.app_token,
    }
    code, output = await program(settings).run_command("check")
    assert code == 1
    assert "FAIL SLACK_BOT_TOKEN: the app lacks the scopes im:history." in output


async def test_migrate_creates_a_database_and_is_idempotent(program: MakeProgram, tmp_path: Path) -> None:
    migrating = program({"DATABASE_URL": f"sqlite:///{tmp_path / 'new.db'}"})
    assert await migrating.run_command("migrate") == (0, migrating.log)
    assert "applied" in migrating.log
    await migrating.run_command("migrate")
    assert migrating.log.splitlines()[-1] == "nothing to do"


async def test_an_unknown_tool_is_named(program: MakeProgram, slack: SlackSimulator) -> None:
    code, output = await program({"TOOLS": "nowhere:nothing"}).run_command("check")
    assert code == 1
    assert "FAIL TOOLS: nowhere:nothing: there is no module nowhere" in output


async def test_the_version_is_printed(program: MakeProgram, slack: SlackSimulator) -> None:
    assert await program({}).run_command("--version") == (0, f"parley {version('parley')}\n")
