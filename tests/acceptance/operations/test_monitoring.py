"""Health pages, metrics and traces of a running bot."""

import asyncio
import json
import re
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from bot.connections import raise_open_files_limit
from chatrig.models import Fail, Pause, Say, ScriptedOpenAI
from chatrig.slack import SlackSimulator
from tests.acceptance.conftest import AcceptanceBot, MakeProgram, Program, StartBot
from tests.acceptance.platforms import BotConversation, Platform, Slack
from tests.acceptance.test_restarts import start_conversations

#: API call that posts a reply.
POST_CALLS = {"slack": "chat.startStream", "discord": "POST /channels/{channel}/messages"}

_PORT = re.compile(r"are at port (\d+)")


async def fetch(program: Program, path: str, **headers: str) -> tuple[int, str]:
    (port,) = _PORT.findall(program.log)[-1:]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


class TraceCollector:
    """HTTP server that stores the OpenTelemetry traces that the bot exports."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.came = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.requests.append(ExportTraceServiceRequest.FromString(await request.read()))
        self.came.set()
        return web.Response()

    @property
    def spans(self) -> Iterator[Span]:
        for request in self.requests:
            for spans in request.resource_spans:
                for scope in spans.scope_spans:
                    yield from scope.spans


@asynccontextmanager
async def run_collector() -> AsyncIterator[tuple[TraceCollector, str]]:
    collector, app = TraceCollector(), web.Application()
    app.add_routes([web.post("/v1/traces", collector.take)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield collector, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def attributes(span: Span) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


async def test_health_metrics_and_traces_show_the_life_of_the_process(start: StartBot, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('"openai/scripted" = { input = 1000, output = 1000 }')
    money = {
        "PRICES_FILE": str(tmp_path / "prices.toml"),
        "DAILY_SPENDING_LIMIT_USD": "1000",
    }  # with a spending limit each turn is counted at once
    async with run_collector() as (collector, address):
        bot = await start(
            OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_BSP_SCHEDULE_DELAY="200", SHUTDOWN_TIMEOUT_SECONDS="1", **money
        )
        program, places = bot.program, start_conversations(bot)
        assert await fetch(program, "/healthz") == (200, "alive\n")
        assert await fetch(program, "/readyz") == (200, "ready\n")
        assert (await fetch(program, "/else"))[0] == 404

        bot.answer = lambda _request: "The answer of forty-two."
        for platform in bot.platforms:
            platform.simulator.faults.rate_limit(POST_CALLS[platform.name], 1)
        await bot.run_on_all_platforms(lambda platform: send_and_wait(bot, platform, places[platform]))
        await wait_for_turns(program, 2)

        _, metrics = await fetch(program, "/metrics")
        for name in ("slack", "discord"):
            assert f'parley_turns_total{{kind="message",platform="{name}",state="done"}} 1.0' in metrics
            for stage in ("placeholder", "first_text", "final"):
                assert f'parley_reply_delay_seconds_count{{platform="{name}",stage="{stage}"}} 1.0' in metrics
            assert re.search(rf'parley_platform_calls_total{{method=".+",outcome="ok",platform="{name}"}} \d', metrics)
            assert re.search(rf'method=".+",outcome="limited",platform="{name}"}} 1.0', metrics)
            assert f'parley_platform_limit_headroom{{platform="{name}"}} ' in metrics
        assert 'parley_model_calls_total{model="openai/scripted",outcome="ok"} 2.0' in metrics
        assert 'parley_model_tokens_total{kind="input",model="openai/scripted"} ' in metrics
        await wait_for_metrics(program, 'parley_model_cost_total{model="openai/scripted"} 0.02')
        await wait_for_metrics(program, "parley_ready 1.0", "parley_turns_running 0.0", "parley_messages_waiting 0.0")
        assert "process_resident_memory_bytes" in metrics
        for secret in ("forty-two", "question", "gen_ai", "U0", "C0"):
            assert secret not in metrics

        for name in ("X-Forwarded-For", "X-Real-IP", "Via", "Forwarded", "CF-Connecting-IP"):
            assert (await fetch(program, "/metrics", **{name: "198.51.100.7"}))[0] == 403

        async with asyncio.timeout(60):
            while len(turns := [span for span in collector.spans if span.name == "parley.turn"]) < 2:
                collector.came.clear()
                await collector.came.wait()
        async with asyncio.timeout(60):  # the health check runs every few seconds
            while "parley_loop_lag_seconds_bucket" not in (await fetch(program, "/metrics"))[1]:  # noqa: ASYNC110 - as a scraper does
                await asyncio.sleep(0.5)
        assert {attributes(turn)["parley.outcome"] for turn in turns} == {"done"}
        assert {attributes(turn)["parley.platform"] for turn in turns} == {"slack", "discord"}
        spans = {span.span_id: span for span in collector.spans}
        for own in ("invoke_agent", "generate_content"):  # spans of ADK within the spans of the turns
            (*_, last) = [span for span in spans.values() if own in span.name or "call_llm" in span.name]
            while (above := spans.get(last.parent_span_id)) is not None:
                last = above
            assert last.name == "parley.turn"
        everything = "".join(map(str, collector.requests))
        assert "forty-two" not in everything
        assert "What is the question" not in everything
        assert not re.search(r"slack:|discord:", everything)

        platform = bot.platforms[0]
        bot.answer = lambda _request: Fail(400, "no")
        await places[platform].say("and that?")
        failed = 'parley_turns_total{kind="message",platform="slack",state="failed"} 1.0'
        await wait_for_metrics(program, failed, 'outcome="ProviderRequestError"} 1.0')

        bot.answer = lambda _request: [Say("Beginning"), Pause(60.0)]
        await places[platform].say("and this?")
        await bot.wait_for_reply(platform, places[platform], lambda text: text.startswith("Beginning"))
        await places[platform].say("and whatever else")
        await wait_for_metrics(program, "parley_turns_running 1.0", "parley_messages_waiting 1.0")
        ending = asyncio.create_task(program.stop())
        async with asyncio.timeout(60):
            while (answer := await fetch(program, "/readyz"))[0] != 503:  # noqa: ASYNC110 - a probe is asked
                await asyncio.sleep(0.01)
        assert answer[1] == "stopping\n"
        assert (await fetch(program, "/healthz"))[0] == 200
        assert await ending == 0
        about = re.search(r"handed|cancelled.* \[turn=\w+ session=slack:\S+ trace=[0-9a-f]{32}\]", program.log)
        assert about, program.log[-3000:]


async def send_and_wait(bot: AcceptanceBot, platform: Platform, conversation: BotConversation) -> None:
    await bot.ask(platform, conversation, "What is the question?", "The answer of forty-two.")


async def wait_for_turns(program: Program, count: int) -> None:
    """Wait until the metrics count `count` finished turns.

    The platform shows an answer shortly before its turn is counted.
    """
    async with asyncio.timeout(60):
        while (await fetch(program, "/metrics"))[1].count('state="done"} 1.0') < count:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)


async def wait_for_metrics(program: Program, *lines: str) -> None:
    """Wait until the bot's `/metrics` page contains all of these lines."""
    async with asyncio.timeout(60):
        while True:
            _, metrics = await fetch(program, "/metrics")
            if all(line in metrics for line in lines):
                return
            await asyncio.sleep(0.05)


async def test_1060_idle_connections_do_not_disturb_the_bot(start: StartBot) -> None:
    raise_open_files_limit()  # the test process holds the other ends of the connections
    bot = await start()
    assert bot.program.pid is not None
    resource.prlimit(bot.program.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    (port,) = _PORT.findall(bot.program.log)
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_connection(("127.0.0.1", int(port))))
        for _ in range(1_059):
            stack.enter_context(socket.create_connection(("127.0.0.1", int(port))))
        assert await fetch(bot.program, "/healthz") == (200, "alive\n")
        bot.answer = lambda _request: "Hello."
        await bot.run_on_all_platforms(lambda platform: wait_for_greeting(bot, platform))
        assert await asyncio.to_thread(first.recv, 1) == b""  # the bot closed the oldest one
    assert "Too many open files" not in bot.program.log


async def wait_for_greeting(bot: AcceptanceBot, platform: Platform) -> None:
    await bot.ask(platform, platform.start_conversation(), "hi", "Hello.")


async def test_an_occupied_port_stops_only_a_bot_that_receives_http_events(program: MakeProgram) -> None:
    async with ScriptedOpenAI() as model, SlackSimulator() as slack:
        with socket.socket() as occupant:
            occupant.bind(("", 0))
            occupant.listen()
            port = str(occupant.getsockname()[1])
            settings = {
                **Slack(slack).settings,
                "MODEL": "openai/m",
                "OPENAI_BASE_URL": model.base_url,
                "PORT": port,
                "METRICS_TOKEN": "letmein12345",
            }
            bot = program(settings)
            await bot.start()
            await bot.wait_until_ready()
            assert f"PORT={port}: the bot cannot listen there" in bot.log
            assert "0 takes any" in bot.log
            assert await bot.stop() == 0
            by_http = {"SLACK_MODE": "http", "SLACK_APP_TOKEN": "", "SLACK_SIGNING_SECRET": "s" * 32}
            called = program({**settings, **by_http})
            code, log = await called.run_command("run")
            assert code == 2
            assert f"PORT={port}: the bot cannot listen there" in log
        guarded = program({**settings, "PORT": "0"})
        await guarded.start()
        await guarded.wait_until_ready()
        assert (await fetch(guarded, "/metrics"))[0] == 401
        assert (await fetch(guarded, "/metrics", Authorization="Bearer letmein12345"))[0] == 200
        assert await guarded.stop() == 0
        silent = program({**settings, "PORT": "0", "METRICS": "off", "LOG_FORMAT": "json"})
        silent.log_file = silent.folder / "silent.log"
        await silent.start()
        await slack.wait_until_connected(30)
        assert (await fetch(silent, "/metrics"))[0] == 404
        assert await silent.stop() == 0
        entries = [json.loads(line) for line in silent.log.splitlines()]
        stopping = {"level": "INFO", "logger": "bot.app", "message": "stopping"}
        assert any(stopping.items() <= entry.items() for entry in entries)
