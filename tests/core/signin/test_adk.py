"""Tools of an ADK agent with the credentials of the person who speaks, in one session of several people."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.openapi.models import APIKey, APIKeyIn, HTTPBase, OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.openapi_tool import OpenAPIToolset
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import BaseNode, Workflow
from google.genai import types

from core.agents.events import StreamEvent
from core.agents.factory import create_plugins
from core.agents.runtime import AgentRuntime
from core.errors import SignInError
from core.messages.identity import ANONYMOUS_USER, User
from core.models.provider import Done, ToolCall
from core.models.tokens import TokenCounter
from core.privacy.vault import Vault
from core.sessions import state as scopes
from core.sessions.artifacts import ArtifactService
from core.sessions.memory import MemoryService
from core.sessions.service import SessionService
from core.signin.adk import SignInService
from core.signin.adk_credentials import read_target
from core.signin.credentials import CredentialStore
from core.signin.mcp import McpAuthorization
from core.signin.pending import PendingSignIns
from core.signin.target import Credential, CredentialKind, Person
from core.store.database import Database
from core.tools.adk_confirmations import Account, standing_approval_key
from core.tools.adk_requests import CredentialRequest, Decision, SignInDecision
from core.tools.call_log import ToolCallLog
from tests.core.signin.conftest import CALLBACK, Provider
from tests.fixtures import empty_databases
from tests.fixtures.conversation import SESSION, USER, Answer, Conversation, ScriptedProvider, adapter

ADA = User("U1", "Ada", platform="slack", workspace="T1")
GRACE = User("U2", "Grace", platform="slack", workspace="T1")
BOT = User("bot:B1", "Robot", platform="slack", workspace="T1")
KEY = "k" * 20 + "0123456789abcdef"


#: What a tool does with an access token.
Use = Callable[[str, ToolContext], Awaitable[Any]]


@dataclass
class Service:
    """The service at which people sign in, as tools see it."""

    provider: Provider
    client_id: str
    client_secret: str

    @property
    def scheme(self) -> OAuth2:
        server = self.provider.server
        flow = OAuthFlowAuthorizationCode(
            authorizationUrl=f"{server.url}/authorize", tokenUrl=f"{server.url}/token", scopes={"profile": "Read"}
        )
        return OAuth2(flows=OAuthFlows(authorizationCode=flow))

    @property
    def credential(self) -> AuthCredential:
        oauth = OAuth2Auth(client_id=self.client_id, client_secret=self.client_secret)
        return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth)

    def config(self, key: str | None = None) -> AuthConfig:
        return AuthConfig(auth_scheme=self.scheme, raw_auth_credential=self.credential, credential_key=key)

    async def get_user(self, credential: AuthCredential) -> str:
        assert credential.oauth2 is not None
        return await self.provider.get_user(Credential(secret=credential.oauth2.access_token or ""))

    # Tools, one for each way in which ADK's tools get a credential

    def function(self, use: Use | None = None, *, key: str | None = None) -> FunctionTool:
        """Return a tool that uses its credential, by default to name the user.

        Args:
            key: the `credential_key`.
        """
        config = self.config(key)

        async def whoami(tool_context: ToolContext) -> Any:
            credential = tool_context.get_auth_response(config)
            if credential is None or credential.oauth2 is None:
                tool_context.request_credential(config)
                return {"status": "pending"}
            if use is not None:
                return await use(str(credential.oauth2.access_token), tool_context)
            return await self.get_user(credential)

        return FunctionTool(whoami)

    def caching_function(self) -> FunctionTool:
        config = self.config()

        async def whoami(tool_context: ToolContext) -> Any:
            if token := tool_context.state.get("token"):
                return await self.provider.get_user(Credential(secret=token))
            credential = tool_context.get_auth_response(config)
            if credential is None or credential.oauth2 is None:
                tool_context.request_credential(config)
                return {"status": "pending"}
            tool_context.state["token"] = credential.oauth2.access_token
            tool_context.state["cached"] = base64.b64encode(str(credential.oauth2.access_token).encode()).decode()
            return await self.get_user(credential)

        return FunctionTool(whoami)

    def authenticated_function(self) -> FunctionTool:
        async def whoami(credential: AuthCredential) -> Any:
            return await self.get_user(credential)

        return AuthenticatedFunctionTool(func=whoami, auth_config=self.config())

    def openapi(self) -> OpenAPIToolset:
        responses = {"200": {"description": "ok"}}
        path = {"get": {"operationId": "whoami", "description": "Name the user.", "responses": responses}}
        spec = {
            "openapi": "3.0.0",
            "info": {"title": "t", "version": "1"},
            "servers": [{"url": self.provider.server.url}],
            "paths": {"/me": path},
        }
        return OpenAPIToolset(
            spec_dict=spec,
            auth_scheme=self.scheme,
            auth_credential=self.credential,
            allow_private_network_access=True,
        )


KINDS: Sequence[Callable[[Service], Any]] = (
    Service.function,
    Service.caching_function,
    Service.authenticated_function,
    Service.openapi,
)


@pytest.fixture
def service(provider: Provider) -> Service:
    client = provider.server.register_client(CALLBACK)
    return Service(provider, client.id, client.secret)


CALL: Answer = [ToolCall("c1", "whoami", {}), Done()]


class Bot:
    """The bot's agent in one session; `create` starts it anew, as another process would."""

    def __init__(self, stack: AsyncExitStack, database: Database, folder: Path, provider: Provider) -> None:
        self.database = database
        self.vault = Vault(database, KEY)
        self.store = CredentialStore(database, self.vault, provider.oauth)
        self.pending = PendingSignIns(self.vault, seconds=1000)
        self.servers: McpAuthorization | None = None
        self.provider = provider
        self._stack = stack
        self._folder = folder
        self._runs = 0

    def create(self, tools: Sequence[Any], *answers: Answer, is_on: bool = True) -> Conversation:
        """Start an agent with tools, whose model gives these answers."""
        root = LlmAgent(name="root", model=adapter(ScriptedProvider(*answers)), tools=list(tools))
        return self.start(root, is_on=is_on)

    def start(self, root: BaseNode, *, is_on: bool = True) -> Conversation:
        secrets = {client.id: client.secret for client in self.provider.server.clients.values()}
        sign_ins = SignInService(
            self.store, self.pending, platforms=("slack",), client_secrets=secrets, servers=self.servers
        )
        app = App(name="asks", root_agent=root, plugins=create_plugins(ToolCallLog(self.database)))
        sessions = SessionService(self.database, TokenCounter(self._folder))
        artifacts = ArtifactService(self.database)
        runtime = AgentRuntime(
            app,
            sessions,
            artifacts=artifacts,
            memory=MemoryService(self.database),
            sign_ins=sign_ins if is_on else None,
        )
        self._stack.push_async_callback(runtime.aclose)
        return Conversation(runtime, sessions, self.database)

    async def sign_in(self, request: CredentialRequest, user: str) -> SignInDecision:
        """Sign the person of a request in as a user of the service."""
        owner = request.owner
        person = Person(owner.platform, owner.workspace, owner.person)
        target = await self.pending.get(person, SESSION, request.run, request.tool_call_id)
        assert target is not None
        credential = (
            await self.provider.sign_in(target, user)
            if target.kind is CredentialKind.OAUTH
            else Credential(secret=f"key-of-{user}", username=user)
        )
        async with self.database.write() as connection:
            await self.store.save(connection, person, "asks", target, credential)
        return self.decide(request)

    def decide(self, request: CredentialRequest, *, is_connected: bool = True) -> SignInDecision:
        key, label = request.credential_key, request.owner.label
        return SignInDecision(request.call_id, request.tool_call_id, key, label, is_connected)

    def read_files(self) -> bytes:
        return b"".join(file.read_bytes() for file in self._folder.glob("parley.db*"))


@pytest.fixture
async def bot(tmp_path: Path, provider: Provider) -> AsyncIterator[Bot]:
    async with AsyncExitStack() as stack:
        database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
        stack.push_async_callback(database.aclose)
        await empty_databases.create_tables(database)
        sessions = SessionService(database, TokenCounter(tmp_path))
        await sessions.create_session(app_name="asks", user_id=USER, session_id=SESSION)
        yield Bot(stack, database, tmp_path, provider)


async def run(conversation: Conversation, run_id: str, *speakers: User, **kwargs: Any) -> StreamEvent:
    """Run the agent, and return the last event."""
    return (await conversation.events("who am I?", run_id=run_id, speakers=speakers, **kwargs))[-1]


async def get_results(conversation: Conversation) -> list[Any]:
    answers = [answer for event in await conversation.history() for answer in event.get_function_responses()]
    return [answer.response for answer in answers if answer.name == "whoami"]


@pytest.mark.parametrize("create_tool", KINDS, ids=lambda create: create.__name__)
async def test_each_person_has_only_their_own_account(
    bot: Bot, service: Service, create_tool: Callable[[Service], Any]
) -> None:
    for person, name in ((ADA, "ada"), (GRACE, "grace")):
        asked = await run(bot.create([create_tool(service)], CALL), f"run-{name}", person)
        (request,) = asked.sign_ins
        assert request.owner.person == person.id
        decision = await bot.sign_in(request, name)
        resumed = bot.create([create_tool(service)], "Done.")
        assert (await run(resumed, f"run-{name}", person, decisions=[decision])).text == "Done."
        assert name in str((await get_results(resumed))[-1])
    again = bot.create([create_tool(service)], CALL, "Done.")
    for person, name in ((ADA, "ada"), (GRACE, "grace")):
        again = bot.create([create_tool(service)], CALL, "Done.")
        assert (await run(again, f"again-{name}", person)).sign_ins == ()
        assert name in str((await get_results(again))[-1])

    stored = bot.read_files()
    tokens = [text for grant in service.provider.server.grants for text in (*grant.access_tokens, grant.refresh_token)]
    forms = [form for text in [*tokens, service.client_secret] for form in list_forms(text)]
    assert len(forms) == 15
    assert [form for form in forms if form in stored] == []
    assert b"code_verifier" not in stored
    assert b"codeVerifier" not in stored


def list_forms(secret: str) -> list[bytes]:
    return [secret.encode(), base64.b64encode(secret.encode()).rstrip(b"="), quote(secret, safe="").encode()]


@pytest.mark.parametrize(
    "speakers",
    [(), (ADA, GRACE), (BOT,), (ANONYMOUS_USER,), (ADA, ANONYMOUS_USER)],
    ids=["nobody", "two people", "a bot", "a hook", "somebody who was forgotten"],
)
async def test_a_run_without_one_person_acts_as_nobody(bot: Bot, service: Service, speakers: tuple[User, ...]) -> None:
    conversation = bot.create([service.function()], CALL)
    (request,) = (await run(conversation, "run-1", ADA)).sign_ins
    decision = await bot.sign_in(request, "ada")
    assert (await run(bot.create([service.function()], "Done."), "run-1", ADA, decisions=[decision])).text == "Done."
    conversation = bot.create([service.function()], CALL, "Sorry.")
    ended = await run(conversation, "run-2", *speakers)
    assert (ended.text, ended.sign_ins) == ("Sorry.", ())
    assert "was not called: it acts as" in str((await get_results(conversation))[-1])


async def test_without_a_set_up_nobody_is_asked(bot: Bot, service: Service) -> None:
    conversation = bot.create([service.function()], CALL, "Sorry.", is_on=False)
    assert (await run(conversation, "run-1", ADA)).text == "Sorry."
    assert "the operator has not set up" in str((await get_results(conversation))[-1])


async def test_a_declined_sign_in_is_not_asked_again(bot: Bot, service: Service) -> None:
    (request,) = (await run(bot.create([service.function()], CALL), "run-1", ADA)).sign_ins
    decision = bot.decide(request, is_connected=False)
    repeated: Answer = [ToolCall("c2", "whoami", {}), Done()]
    conversation = bot.create([service.function()], repeated, "Well.")
    ended = await run(conversation, "run-1", ADA, decisions=[decision])
    assert (ended.text, ended.sign_ins) == ("Well.", ())
    results = await get_results(conversation)
    assert all("has not connected 127.0.0.1" in str(result) for result in results[1:])
    assert len(results) == 3


async def test_parallel_calls_wait_for_their_own_sign_ins(bot: Bot, service: Service) -> None:
    other = Service(service.provider, *register(service.provider))
    first = service.function()
    second = other.function()
    first.name, second.name = "first", "second"
    calls: Answer = [ToolCall("c1", "first", {}), ToolCall("c2", "second", {}), Done()]
    asked = (await run(bot.create([first, second], calls), "run-1", ADA)).sign_ins
    decisions = [await bot.sign_in(request, name) for request, name in zip(asked, ("ada", "linus"), strict=True)]
    conversation = bot.create([first, second], "Done.")
    assert (await run(conversation, "run-1", ADA, decisions=decisions)).text == "Done."
    answers = [answer for event in await conversation.history() for answer in event.get_function_responses()]
    results = {answer.name: answer.response for answer in answers if answer.name in ("first", "second")}
    assert results == {"first": {"result": "ada"}, "second": {"result": "linus"}}


def register(provider: Provider) -> tuple[str, str]:
    client = provider.server.register_client(CALLBACK)
    return client.id, client.secret


async def connect(bot: Bot, tool: Any, user: str = "ada", person: User = ADA) -> None:
    (request,) = (await run(bot.create([tool], CALL), f"connect-{user}", person)).sign_ins
    decision = await bot.sign_in(request, user)
    assert (await run(bot.create([tool], "Done."), f"connect-{user}", person, decisions=[decision])).text == "Done."


@pytest.mark.parametrize("create_tool", [Service.function, Service.openapi], ids=lambda create: create.__name__)
async def test_a_rejected_token_is_refreshed_without_a_question(
    bot: Bot, service: Service, create_tool: Callable[[Service], Any]
) -> None:
    await connect(bot, create_tool(service))
    service.provider.server.faults.expire_access_tokens()
    conversation = bot.create(
        [self_checking(service) if create_tool is Service.function else create_tool(service)], CALL, "Done."
    )
    ended = await run(conversation, "run-2", ADA)
    assert (ended.text, ended.sign_ins) == ("Done.", ())
    assert "ada" in str((await get_results(conversation))[-1])


def self_checking(service: Service) -> FunctionTool:
    """Return a function that asks again for a credential that the service rejects."""
    config = service.config()

    async def whoami(tool_context: ToolContext) -> Any:
        credential = tool_context.get_auth_response(config)
        name = "401" if credential is None else await service.get_user(credential)
        if name == "401":
            tool_context.request_credential(config)
            return {"status": "pending"}
        return name

    return FunctionTool(whoami)


async def test_a_revoked_grant_is_asked_for_once(bot: Bot, service: Service) -> None:
    await connect(bot, self_checking(service))
    service.provider.server.faults.revoke_grants()
    (request,) = (await run(bot.create([self_checking(service)], CALL), "run-2", ADA)).sign_ins
    decision = await bot.sign_in(request, "ada")
    service.provider.server.faults.revoke_grants()
    conversation = bot.create([self_checking(service)], "Sorry.")
    ended = await run(conversation, "run-2", ADA, decisions=[decision])
    assert (ended.text, ended.sign_ins) == ("Sorry.", ())
    assert "does not accept" in str((await get_results(conversation))[-1])


async def test_an_approval_and_a_sign_in_are_asked_for_once_each(bot: Bot, service: Service) -> None:
    tool = service.function()
    tool._require_confirmation = True
    (approval,) = (await run(bot.create([tool], CALL), "run-1", ADA)).confirmations
    decision = Decision(approval.call_id, approval.arguments_hash, is_allowed=True)
    asked = await run(bot.create([tool]), "run-1", ADA, decisions=[decision])
    (request,) = asked.sign_ins
    signed_in = await bot.sign_in(request, "ada")
    conversation = bot.create([tool], "Done.")
    ended = await run(conversation, "run-1", ADA, decisions=[signed_in])
    assert (ended.text, ended.confirmations, ended.sign_ins) == ("Done.", (), ())
    assert (await get_results(conversation))[-1] == {"result": "ada"}


async def test_an_agent_that_is_a_tool_asks_by_its_call(bot: Bot, service: Service) -> None:
    def create(*answers: Answer) -> AgentTool:
        child = LlmAgent(name="child", model=adapter(ScriptedProvider(*answers)), tools=[service.function()])
        return AgentTool(agent=child)

    call: Answer = [ToolCall("c0", "child", {"request": "who?"}), Done()]
    (request,) = (await run(bot.create([create(CALL, "I cannot.")], call), "run-1", ADA)).sign_ins
    assert request.tool == "child"
    decision = await bot.sign_in(request, "ada")
    conversation = bot.create([create(CALL, "It is ada.")], "Done.")
    assert (await run(conversation, "run-1", ADA, decisions=[decision])).text == "Done."
    answers = [answer for event in await conversation.history() for answer in event.get_function_responses()]
    assert answers[-1].response == {"result": "It is ada."}


async def test_an_agent_within_an_agent_that_is_a_tool_asks_by_the_outer_call(bot: Bot, service: Service) -> None:
    def create(*answers: Answer) -> AgentTool:
        inner = LlmAgent(name="inner", model=adapter(ScriptedProvider(*answers)), tools=[service.function()])
        script = ScriptedProvider([ToolCall("c9", "inner", {"request": "who?"}), Done()], "Inner says so.")
        return AgentTool(agent=LlmAgent(name="child", model=adapter(script), tools=[AgentTool(agent=inner)]))

    call: Answer = [ToolCall("c0", "child", {"request": "who?"}), Done()]
    (request,) = (await run(bot.create([create(CALL, "I cannot.")], call), "run-1", ADA)).sign_ins
    decision = await bot.sign_in(request, "ada")
    conversation = bot.create([create(CALL, "It is ada.")], "Done.")
    assert (await run(conversation, "run-1", ADA, decisions=[decision])).text == "Done."


async def test_a_tool_that_asks_and_fails_asks_nobody(bot: Bot, service: Service) -> None:
    config = service.config()

    async def whoami(tool_context: ToolContext) -> Any:
        tool_context.request_credential(config)
        raise ValueError("broken")

    conversation = bot.create([FunctionTool(whoami)], CALL, "Sorry.")
    ended = await run(conversation, "run-1", ADA)
    assert (ended.text, ended.sign_ins) == ("Sorry.", ())
    assert b"authUri" not in bot.read_files()


async def test_a_step_of_a_workflow_says_that_it_cannot_ask(bot: Bot, service: Service) -> None:
    def begin(node_input: Any) -> dict[str, str]:
        return {}

    edges: Any = [("START", begin, service.function())]
    ended = await run(bot.start(Workflow(name="root", edges=edges)), "run-1", ADA)
    assert ended.sign_ins == ()
    assert "a step of a workflow cannot ask" in ended.text
    await connect(bot, service.function())
    ended = await run(bot.start(Workflow(name="root", edges=edges)), "run-2", ADA)
    assert ended.text == "ada"


async def test_one_key_of_two_services_needs_two_sign_ins(bot: Bot, service: Service) -> None:
    other = Service(service.provider, *register(service.provider))

    def create(own: Service, name: str) -> FunctionTool:
        tool = own.function(key="shared")
        tool.name = name
        return tool

    first = create(service, "whoami")
    await connect(bot, first)
    calls: Answer = [ToolCall("c5", "other", {}), Done()]
    (request,) = (await run(bot.create([first, create(other, "other")], calls), "run-2", ADA)).sign_ins
    assert request.tool == "other"


async def test_a_tool_that_returns_its_token_returns_none(bot: Bot, service: Service) -> None:
    async def show(token: str, _: ToolContext) -> Any:
        return {"headers": [f"Bearer {token}"]}

    await connect(bot, service.function(show))
    conversation = bot.create([service.function(show)], CALL, "Done.")
    await run(conversation, "run-2", ADA)
    assert (await get_results(conversation))[-1] == {"headers": ["Bearer [redacted]"]}


async def test_a_tool_cannot_save_its_token_in_a_file(bot: Bot, service: Service) -> None:
    async def save(token: str, tool_context: ToolContext) -> Any:
        await tool_context.save_artifact("token.txt", types.Part(text=f"it is {token}"))
        return "saved"

    await connect(bot, service.function(save))
    conversation = bot.create([service.function(save)], CALL, "Sorry.")
    await run(conversation, "run-2", ADA)
    assert "token.txt is not saved" in str((await get_results(conversation))[-1])


async def test_an_approval_names_the_account_of_the_call(bot: Bot, service: Service) -> None:
    await connect(bot, service.function())
    tool = service.function()
    tool._require_confirmation = True
    (approval,) = (await run(bot.create([tool], CALL), "run-2", ADA)).confirmations
    assert approval.account == Account("slack/T1/U1", "Ada", ("127.0.0.1",))
    (approval,) = (await run(bot.create([tool], CALL), "run-3", GRACE)).confirmations
    assert approval.account is None


async def test_an_approval_for_all_calls_counts_for_one_persons_account(bot: Bot, service: Service) -> None:
    tool = service.function()
    tool._require_confirmation = True
    await connect(bot, service.function())
    (approval,) = (await run(bot.create([tool], CALL), "run-2", ADA)).confirmations
    standing = {"approvers": ["author"], "tool_hash": approval.tool_hash}
    key = standing_approval_key("asks", "whoami", approval.account)
    async with bot.database.write() as connection:
        await scopes.write_state(connection, scopes.get_scope_owners("", "", SESSION), {key: standing})
    assert (await run(bot.create([tool], CALL, "Done."), "run-3", ADA)).text == "Done."
    await connect(bot, service.function(), "grace", GRACE)
    assert len((await run(bot.create([tool], CALL), "run-4", GRACE)).confirmations) == 1


async def test_an_api_key_and_a_password_are_the_persons(bot: Bot) -> None:
    async def by_key(credential: AuthCredential) -> Any:
        return credential.api_key == "key-of-ada"

    async def by_password(credential: AuthCredential) -> Any:
        assert credential.http is not None
        given = credential.http.credentials
        return (given.username, given.password) == ("ada", "key-of-ada")

    schemes = (APIKey.model_validate({"in": APIKeyIn.header, "name": "x-api-key"}), HTTPBase(scheme="basic"))
    for function, scheme in zip((by_key, by_password), schemes, strict=True):
        tool = AuthenticatedFunctionTool(func=function, auth_config=AuthConfig(auth_scheme=scheme))
        tool.name = "whoami"
        (request,) = (await run(bot.create([tool], CALL), function.__name__, ADA)).sign_ins
        decision = await bot.sign_in(request, "ada")
        conversation = bot.create([tool], "Done.")
        assert (await run(conversation, function.__name__, ADA, decisions=[decision])).text == "Done."
        assert (await get_results(conversation))[-1] == {"result": True}


async def test_a_tool_gets_no_token_after_the_person_disconnects(bot: Bot, service: Service) -> None:
    await connect(bot, service.function())
    (sign_in,) = await bot.store.list(Person.of(ADA))
    await bot.store.delete(Person.of(ADA), sign_in.id)
    assert len((await run(bot.create([service.function()], CALL), "run-2", ADA)).sign_ins) == 1


async def test_a_person_is_asked_at_most_twenty_times_a_day(bot: Bot, service: Service) -> None:
    target = read_target(service.config(), {})
    for number in range(20):
        assert await bot.pending.put(Person.of(ADA), SESSION, "run-0", f"c{number}", target)
    conversation = bot.create([service.function()], CALL, "Sorry.")
    assert (await run(conversation, "run-1", ADA)).sign_ins == ()
    assert "too often" in str((await get_results(conversation))[-1])
    assert len((await run(bot.create([service.function()], CALL), "run-2", GRACE)).sign_ins) == 1


def test_a_credential_without_a_client_is_refused(service: Service) -> None:
    config = AuthConfig(auth_scheme=service.scheme)
    with pytest.raises(SignInError, match="client_id"):
        read_target(config, {})


async def test_a_service_without_an_answer_costs_no_sign_in(bot: Bot, service: Service) -> None:
    await connect(bot, self_checking(service))
    service.provider.server.faults.expire_access_tokens()
    service.provider.server.faults.fail("/token", 5, status=503)
    conversation = bot.create([self_checking(service)], CALL, "Sorry.")
    assert (await run(conversation, "run-2", ADA)).sign_ins == ()
    assert "was not called" in str((await get_results(conversation))[-1])
    service.provider.server.faults.clear()
    conversation = bot.create([self_checking(service)], CALL, "Done.")
    await run(conversation, "run-3", ADA)
    assert (await get_results(conversation))[-1] == {"result": "ada"}
