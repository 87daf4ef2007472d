"""MCP servers at which each person has their own account, in one session of several people."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web
from fastapi.openapi.models import APIKey
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams

from core.messages.identity import User
from core.models.adapter import ModelAdapter
from core.models.provider import Done, ToolCall
from core.signin.mcp import McpAuthorization, create_client_document
from core.signin.target import Person
from core.signin.toolset import SignInToolset, replace_toolset, wrap_server
from core.tools.mcp import McpConfig, McpServer
from tests.core.signin.conftest import Provider, TokenServer
from tests.core.signin.test_adk import ADA, BOT, GRACE, Bot, Service, bot, run, service  # noqa: F401 - fixtures
from tests.fixtures.conversation import Answer, Conversation, ScriptedProvider, adapter

PUBLIC_URL = "https://bot.example"
LINUS = User("U3", "Linus", platform="slack", workspace="T1")

Create = Callable[[], SignInToolset]


def call(*names: str) -> Answer:
    return [*(ToolCall(f"c{number}", name, {}) for number, name in enumerate(names)), Done()]


@pytest.fixture
def user_toolset(service: Service) -> Create:  # noqa: F811
    """A user's own `McpToolset`."""

    def create() -> SignInToolset:
        toolset = replace_toolset(
            McpToolset(
                connection_params=StreamableHTTPConnectionParams(url=service.provider.server.mcp_url),
                auth_scheme=service.scheme,
                auth_credential=service.credential,
                tool_name_prefix="box",
                credential_key="any",
            )
        )
        assert isinstance(toolset, SignInToolset)
        return toolset

    return create


@pytest.fixture
def server(bot: Bot, provider: Provider) -> Create:  # noqa: F811
    """A server of `mcp.toml` with `auth = "oauth"`, in each process anew."""

    def create() -> SignInToolset:
        bot.servers = McpAuthorization(provider.oauth, bot.vault, public_url=PUBLIC_URL)
        document = create_client_document(PUBLIC_URL)
        provider.server.client_documents[document["client_id"]] = document
        return wrap_server(McpServer("box", McpConfig(url=provider.server.mcp_url, auth="oauth")))

    return create


@pytest.fixture(params=["user_toolset", "server"])
def create(request: pytest.FixtureRequest) -> Create:
    found: Create = request.getfixturevalue(request.param)
    return found


def list_tools(conversation: Conversation) -> list[list[str]]:
    """Return the names of the tools that each model call saw."""
    return [[tool.name for tool in request.tools] for request in get_provider(conversation).requests]


def get_provider(conversation: Conversation) -> ScriptedProvider:
    root = conversation.runtime.app.root_agent
    assert isinstance(root, LlmAgent)
    assert isinstance(root.canonical_model, ModelAdapter)
    assert isinstance(root.canonical_model.provider, ScriptedProvider)
    return root.canonical_model.provider


async def get_result(conversation: Conversation, name: str) -> Any:
    responses = [item for event in await conversation.history() for item in event.get_function_responses()]
    return [item.response for item in responses if item.name == name][-1]


async def test_each_person_sees_and_calls_the_tools_as_themselves(bot: Bot, create: Create) -> None:  # noqa: F811
    for person, name in ((ADA, "ada"), (GRACE, "grace")):
        asking = bot.create([create()], call("connect_box"))
        (request,) = (await run(asking, f"run-{name}", person)).sign_ins
        assert request.owner.person == person.id
        assert list_tools(asking) == [["connect_box"]]
        decision = await bot.sign_in(request, name)
        resumed = bot.create([create()], call("box_whoami"), "Done.")
        assert (await run(resumed, f"run-{name}", person, decisions=[decision])).text == "Done."
        assert list_tools(resumed) == [["box_list_events", "box_whoami"]] * 2
        connected = await get_result(resumed, "connect_box")
        assert connected == {"status": "connected", "tools": ["box_list_events", "box_whoami"]}
        assert name in str(await get_result(resumed, "box_whoami"))
    both = bot.create([create()], *[answer for _ in range(2) for answer in (call("box_whoami"), "Done.")])
    for person, name in ((ADA, "ada"), (GRACE, "grace")):
        assert (await run(both, f"again-{name}", person)).sign_ins == ()
        assert name in str(await get_result(both, "box_whoami"))
    grants = bot.provider.server.grants
    tokens = [text for grant in grants for text in (*grant.access_tokens, grant.refresh_token)]
    assert len(tokens) == 4
    assert [token for token in tokens if token.encode() in bot.read_files()] == []


async def connect(bot: Bot, create: Create, user: str = "ada") -> None:  # noqa: F811
    (request,) = (await run(bot.create([create()], call("connect_box")), "connect", ADA)).sign_ins
    decision = await bot.sign_in(request, user)
    await run(bot.create([create()], "Done."), "connect", ADA, decisions=[decision])


@pytest.mark.parametrize("is_on", [True, False])
async def test_nobody_is_stopped_at_hello(bot: Bot, create: Create, is_on: bool) -> None:  # noqa: F811
    for number, speakers in enumerate(((ADA,), (), (ADA, GRACE), (BOT,))):
        conversation = bot.create([create()], "Hello!", is_on=is_on)
        ended = await run(conversation, f"run-{number}", *speakers)
        assert (ended.text, ended.sign_ins) == ("Hello!", ())
        assert list_tools(conversation) == [["connect_box"]]


@pytest.mark.parametrize(
    ("speakers", "reason"),
    [((), "no person asked"), ((ADA, GRACE), "several people"), ((BOT,), "no person asked")],
    ids=["nobody", "two people", "a bot"],
)
async def test_a_run_without_one_person_connects_nothing(
    bot: Bot,  # noqa: F811
    create: Create,
    speakers: Sequence[Any],
    reason: str,
) -> None:
    await connect(bot, create)
    conversation = bot.create([create()], call("connect_box"), "Sorry.")
    ended = await run(conversation, "run-2", *speakers)
    assert (ended.text, ended.sign_ins) == ("Sorry.", ())
    assert list_tools(conversation) == [["connect_box"]] * 2
    assert reason in str(await get_result(conversation, "connect_box"))


async def test_without_a_set_up_the_tool_says_so(bot: Bot, create: Create) -> None:  # noqa: F811
    conversation = bot.create([create()], call("connect_box"), "Sorry.", is_on=False)
    assert (await run(conversation, "run-1", ADA)).text == "Sorry."
    assert "the operator has not set up" in str(await get_result(conversation, "connect_box"))


async def test_a_declined_sign_in_is_asked_once(bot: Bot, create: Create) -> None:  # noqa: F811
    (request,) = (await run(bot.create([create()], call("connect_box")), "run-1", ADA)).sign_ins
    again: Answer = [ToolCall("c9", "connect_box", {}), Done()]
    conversation = bot.create([create()], again, "Well.")
    declined = bot.decide(request, is_connected=False)
    ended = await run(conversation, "run-1", ADA, decisions=[declined])
    assert (ended.text, ended.sign_ins) == ("Well.", ())
    assert "has not connected" in str(await get_result(conversation, "connect_box"))


async def test_an_expired_token_is_refreshed_without_a_question(bot: Bot, create: Create) -> None:  # noqa: F811
    await connect(bot, create)
    conversation = bot.create([create()], "Hello!", call("box_whoami"), "Done.", "Hello!")
    await run(conversation, "run-2", ADA)
    bot.provider.server.faults.expire_access_tokens()
    ended = await run(conversation, "run-3", ADA)
    assert (ended.text, ended.sign_ins) == ("Done.", ())
    assert "ada@example.com" in str(await get_result(conversation, "box_whoami"))
    bot.provider.server.faults.expire_access_tokens()
    await run(bot.create([create()], "Hello!"), "run-4", ADA)
    assert bot.provider.count_requests("/token") == 3


async def test_a_revoked_grant_is_asked_for_anew(bot: Bot, create: Create) -> None:  # noqa: F811
    await connect(bot, create)
    conversation = bot.create([create()], "Hello!", call("box_whoami"), "Done.")
    await run(conversation, "run-2", ADA)
    bot.provider.server.faults.revoke_grants()
    if not (asked := (await run(conversation, "run-3", ADA)).sign_ins):  # the list was fetched: the tools are gone
        conversation = bot.create([create()], call("connect_box"))
        asked = (await run(conversation, "run-4", ADA)).sign_ins
        assert list_tools(conversation) == [["connect_box"]]
    (request,) = asked
    decision = await bot.sign_in(request, "linus")
    resumed = bot.create([create()], call("box_whoami"), "Done.")
    await run(resumed, request.run, ADA, decisions=[decision])
    assert "linus" in str(await get_result(resumed, "box_whoami"))


async def test_a_credential_that_a_server_never_accepts_is_refreshed_once(
    bot: Bot,  # noqa: F811
    create: Create,
) -> None:
    await connect(bot, create)
    bot.provider.server.faults.fail("/mcp", times=1000, status=401)
    asked = await run(bot.create([create()], call("connect_box")), "run-2", ADA)
    assert len(asked.sign_ins) == 1
    assert bot.provider.count_requests("/token") == 2


async def test_a_call_that_a_server_never_accepts_asks_once(bot: Bot, server: Create) -> None:  # noqa: F811
    await connect(bot, server)
    conversation = bot.create([server()], "Hello!", call("box_whoami"))
    await run(conversation, "run-2", ADA)
    bot.provider.server.faults.fail("/mcp", times=1000, status=401)
    (request,) = (await run(conversation, "run-3", ADA)).sign_ins
    assert bot.provider.count_requests("/token") == 2
    bot.provider.server.faults.clear()
    decision = await bot.sign_in(request, "ada")
    bot.provider.server.faults.fail("/mcp", times=1000, status=401)
    resumed = bot.create([server()], "Sorry.")
    ended = await run(resumed, "run-3", ADA, decisions=[decision])
    assert (ended.text, ended.sign_ins) == ("Sorry.", ())


async def test_a_call_that_needs_more_scopes_asks_for_all_of_them(bot: Bot, server: Create) -> None:  # noqa: F811
    await connect(bot, server)
    (grant,) = bot.provider.server.grants
    grant.scopes = {"profile"}
    (request,) = (await run(bot.create([server()], call("box_list_events")), "run-2", ADA)).sign_ins
    target = await bot.pending.get(Person.of(ADA), "s", request.run, request.tool_call_id)
    assert target is not None
    assert set(target.added_scopes) == {"calendar", "profile"}
    decision = await bot.sign_in(request, "ada")
    resumed = bot.create([server()], "Done.")
    assert (await run(resumed, "run-2", ADA, decisions=[decision])).text == "Done."
    assert "Meeting of ada" in str(await get_result(resumed, "box_list_events"))
    assert len(await bot.store.list(Person.of(ADA))) == 1
    bot.provider.server.grants[-1].scopes = {"profile"}
    again = bot.create([server()], call("box_list_events"))
    assert len((await run(again, "run-3", ADA)).sign_ins) == 1


async def test_a_sign_in_and_more_scopes_are_asked_for_in_one_run(bot: Bot, server: Create) -> None:  # noqa: F811
    (request,) = (await run(bot.create([server()], call("connect_box")), "run-1", ADA)).sign_ins
    decision = await bot.sign_in(request, "ada")
    bot.provider.server.faults.change_scopes({"profile"})
    more: Answer = [ToolCall("c2", "box_list_events", {}), Done()]
    (request,) = (await run(bot.create([server()], more), "run-1", ADA, decisions=[decision])).sign_ins
    decision = await bot.sign_in(request, "ada")
    bot.provider.server.faults.change_scopes({"profile"})  # the person does not grant them
    resumed = bot.create([server()], "Sorry.")
    ended = await run(resumed, "run-1", ADA, decisions=[decision])
    assert (ended.text, ended.sign_ins) == ("Sorry.", ())
    assert "does not accept" in str(await get_result(resumed, "box_list_events"))


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[McpToolset]:
    """The toolsets of people that were closed."""
    found = list[McpToolset]()
    close = McpToolset.close

    async def record(toolset: McpToolset) -> None:
        found.append(toolset)
        await close(toolset)

    monkeypatch.setattr(McpToolset, "close", record)
    return found


async def test_a_connection_is_not_used_after_a_disconnect(
    bot: Bot,  # noqa: F811
    create: Create,
    closed: list[McpToolset],
) -> None:
    await connect(bot, create)
    conversation = bot.create([create()], "Hello!", "Hello!", "Hello!")
    await run(conversation, "run-2", ADA)
    closed.clear()
    (sign_in,) = await bot.store.list(Person.of(ADA))
    await bot.store.delete(Person.of(ADA), sign_in.id)
    for number in (3, 4):
        await run(conversation, f"run-{number}", ADA)
    await asyncio.sleep(0)
    assert len(closed) == 1
    assert list_tools(conversation) == [["box_list_events", "box_whoami"], ["connect_box"], ["connect_box"]]


async def test_a_tool_that_was_listed_before_a_disconnect_asks(bot: Bot, create: Create) -> None:  # noqa: F811
    await connect(bot, create)
    gate = asyncio.Event()
    conversation = bot.create([create()], [gate, *call("box_whoami")])
    running = asyncio.create_task(run(conversation, "run-2", ADA))
    await get_provider(conversation).request_received.wait()
    await bot.store.delete_person(Person.of(ADA))
    gate.set()
    assert len((await running).sign_ins) == 1


async def test_the_number_of_open_connections_is_bounded(
    bot: Bot,  # noqa: F811
    create: Create,
    closed: list[McpToolset],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("core.signin.toolset.MAX_CONNECTIONS", 1)
    await connect(bot, create)
    (request,) = (await run(bot.create([create()], call("connect_box")), "run-2", GRACE)).sign_ins
    decision = await bot.sign_in(request, "grace")
    await run(bot.create([create()], "Done."), "run-2", GRACE, decisions=[decision])
    answers = [answer for _ in range(3) for answer in (call("box_whoami"), "Done.")]
    conversation = bot.create([create()], *answers)
    closed.clear()
    for number, (person, name) in enumerate(((ADA, "ada"), (GRACE, "grace"), (ADA, "ada")), 3):
        await run(conversation, f"run-{number}", person)
        assert name in str(await get_result(conversation, "box_whoami"))
    await asyncio.sleep(0)
    assert len(closed) == 2


async def test_a_server_that_does_not_answer_ends_no_run(bot: Bot, create: Create) -> None:  # noqa: F811
    await connect(bot, create)
    bot.provider.server.faults.fail("/mcp", times=1000)
    conversation = bot.create([create()], call("connect_box"), "Later.")
    ended = await run(conversation, "run-2", ADA)
    assert (ended.text, ended.sign_ins) == ("Later.", ())
    assert list_tools(conversation) == [["connect_box"]] * 2
    assert "error" in await get_result(conversation, "connect_box")


async def test_a_toolset_of_an_agent_that_is_a_tool_asks_by_its_call(bot: Bot, create: Create) -> None:  # noqa: F811
    def start(outer: Answer, *inner: Answer) -> Conversation:
        child = LlmAgent(name="child", model=adapter(ScriptedProvider(*inner)), tools=[create()])
        return bot.create([AgentTool(agent=child)], outer)

    asks: Answer = [ToolCall("c0", "child", {"request": "who?"}), Done()]
    (request,) = (await run(start(asks, call("connect_box"), "I cannot."), "run-1", ADA)).sign_ins
    assert request.tool == "child"
    decision = await bot.sign_in(request, "ada")
    resumed = start("Done.", call("box_whoami"), "It is ada.")
    assert (await run(resumed, "run-1", ADA, decisions=[decision])).text == "Done."
    assert await get_result(resumed, "child") == {"result": "It is ada."}


# A header with each person's own value


@pytest.fixture
def keyed_server(token_server: TokenServer, provider: Provider) -> TokenServer:
    """MCP server that names the person by a header."""
    from chatrig.oauth import mcp  # noqa: PLC0415

    async def respond(request: web.Request) -> web.Response:
        user = provider.server.users.get(request.headers.get("X-Api-Key", "").removeprefix("key-of-"))
        if user is None:
            return web.Response(status=401)
        message = mcp.respond_to_message(await request.json(), user)
        return web.Response(status=202) if message is None else web.json_response(message)

    token_server.handler = respond
    return token_server


async def test_each_person_sends_their_own_header(bot: Bot, keyed_server: TokenServer) -> None:  # noqa: F811
    config = McpConfig(url=f"{keyed_server.url}/mcp", person_headers={"X-Api-Key": "Your box key"})

    def create() -> SignInToolset:
        return wrap_server(McpServer("box", config))

    for person, name in ((ADA, "ada"), (GRACE, "grace")):
        (request,) = (await run(bot.create([create()], call("connect_box")), f"run-{name}", person)).sign_ins
        assert request.owner.label == "Your box key"
        decision = await bot.sign_in(request, name)
        resumed = bot.create([create()], call("box_whoami"), "Done.")
        await run(resumed, f"run-{name}", person, decisions=[decision])
        assert name in str(await get_result(resumed, "box_whoami"))
    (request,) = (await run(bot.create([create()], call("connect_box")), "run-3", LINUS)).sign_ins
    decision = await bot.sign_in(request, "nobody")
    conversation = bot.create([create()], "Sorry.")
    ended = await run(conversation, "run-3", LINUS, decisions=[decision])
    assert (ended.text, ended.sign_ins) == ("Sorry.", ())
    assert "does not accept" in str(await get_result(conversation, "connect_box"))


async def test_a_value_for_one_server_is_not_sent_to_another(
    bot: Bot,  # noqa: F811
    keyed_server: TokenServer,
) -> None:
    scheme = APIKey.model_validate({"in": "header", "name": "X-Api-Key"})

    def create(path: str) -> Any:
        parameters = StreamableHTTPConnectionParams(url=keyed_server.url + path)
        toolset = McpToolset(connection_params=parameters, auth_scheme=scheme, tool_name_prefix=path[1:])
        return replace_toolset(toolset)

    (request,) = (await run(bot.create([create("/box")], call("connect_box")), "run-1", ADA)).sign_ins
    decision = await bot.sign_in(request, "ada")
    resumed = bot.create([create("/box"), create("/other")], call("box_whoami"), "Done.")
    await run(resumed, "run-1", ADA, decisions=[decision])
    assert "ada" in str(await get_result(resumed, "box_whoami"))
    assert list_tools(resumed) == [["box_list_events", "box_whoami", "connect_other"]] * 2
