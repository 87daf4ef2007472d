"""Fixtures of the pytest plugin, in a pytest process of their own."""

import sys

import pytest

pytest_plugins = ["pytester"]

ANSWER = """
    import os
    from slack_sdk import WebClient

    def post(slack, question, text):
        client = WebClient(slack.env["SLACK_BOT_TOKEN"], base_url=slack.env["SLACK_API_URL"])
        client.chat_postMessage(channel=question.channel.id, thread_ts=question.ts, text=text)
        return client
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(answer=ANSWER)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def test_blocking_fixtures_run_without_async(run: pytest.Pytester) -> None:
    run.makepyfile("""
        import pytest
        from answer import post

        def test_answer(slack_simulator):
            question = slack_simulator.mention_bot("ada", "general", "hi")
            post(slack_simulator, question, "hello")
            assert slack_simulator.wait_for_reply(question, quiet=0.1).text == "hello"
            assert slack_simulator.wait_for(lambda: len(slack_simulator.messages("general")) == 2)

        def test_waiting_inside_of_a_wait_is_refused(slack_simulator):
            with pytest.raises(RuntimeError, match="may only read"):
                slack_simulator.wait_for(lambda: slack_simulator.post_dm("ada", "hi"))

        def test_bolt_in_process(slack_simulator):
            from slack_bolt import App
            from slack_sdk import WebClient

            app = App(client=WebClient(slack_simulator.bot_token, base_url=slack_simulator.api_url))
            app.event("app_mention")(lambda event, say: say("hello", thread_ts=event["ts"]))
            with slack_simulator.run_bolt(app):
                question = slack_simulator.mention_bot("ada", "general", "hi")
                assert slack_simulator.wait_for_reply(question).text == "hello"

        def test_models(scripted_openai, scripted_anthropic, scripted_gemini):
            import openai

            scripted_openai.add_responses("Sunny.")
            client = openai.OpenAI(base_url=scripted_openai.base_url, api_key="k")
            answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}])
            assert answer.choices[0].message.content == "Sunny."
    """)
    run.runpytest_subprocess().assert_outcomes(passed=4)


def test_async_fixtures_run_in_the_loop_of_the_test(run: pytest.Pytester) -> None:
    run.makepyfile("""
        import discord

        async def test_discord(async_discord_simulator):
            client = discord.Client(intents=discord.Intents.default())

            @client.event
            async def on_message(message):
                if client.user in message.mentions:
                    await message.reply("pong")

            async with async_discord_simulator.run_client(client):
                question = await async_discord_simulator.mention_bot("ada", "general", "ping")
                assert (await async_discord_simulator.wait_for_reply(question)).text == "pong"

        async def test_process(async_start_bot, async_slack_simulator, async_scripted_openai):
            script = "from slack_bolt import App; from slack_bolt.adapter.socket_mode import SocketModeHandler;"
            script += "import os; assert os.environ['OPENAI_BASE_URL']; app = App(token=os.environ['SLACK_BOT_TOKEN']);"
            script += "SocketModeHandler(app, os.environ['SLACK_APP_TOKEN']).start()"
            bot = await async_start_bot("python", "-c", script)
            assert async_slack_simulator.connection_count == 1
            await bot.kill()
    """)
    run.runpytest_subprocess().assert_outcomes(passed=2)


def test_a_failed_test_shows_what_people_and_the_bot_saw(run: pytest.Pytester) -> None:
    run.makepyfile("""
        from answer import post

        def test_wrong(slack_simulator):
            question = slack_simulator.mention_bot("ada", "general", "what is it?")
            post(slack_simulator, question, "a wrong answer")
            assert slack_simulator.wait_for_reply(question, quiet=0.1).text == "right"
    """)
    result = run.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*chatrig*", "*what is it?*", "*a wrong answer*"])


def test_an_unknown_call_fails_the_test_unless_it_is_allowed(run: pytest.Pytester) -> None:
    run.makepyfile("""
        import pytest
        from answer import post
        from slack_sdk.errors import SlackApiError

        @pytest.mark.parametrize("allowed", [False, True])
        def test_it(slack_simulator, allowed):
            question = slack_simulator.mention_bot("ada", "general", "hi")
            client = post(slack_simulator, question, "hello")
            with pytest.raises(SlackApiError):
                client.api_call("admin.users.list")
            if allowed:
                slack_simulator.allowed_unknown_calls.add("admin.users.list")
    """)
    result = run.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["the bot called what the simulator does not have: admin.users.list"])


def test_the_plugin_loads_without_pytest_asyncio(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    run.makepyfile("def test_it(slack_simulator): assert slack_simulator.connection_count == 0")
    code = "import sys, pytest; sys.modules['pytest_asyncio'] = None; sys.exit(pytest.main(sys.argv[1:]))"
    run.makeini("[pytest]")
    options = ("-p", "no:asyncio", "-p", "no:pytest_asyncio", "-p", "chatrig.testing.pytest_plugin")
    result = run.run(sys.executable, "-c", code, *options)
    assert "1 passed" in result.stdout.str()
