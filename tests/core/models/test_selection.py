"""Model that users select for a conversation."""

import logging
from collections.abc import Sequence

import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.apps import App
from google.adk.tools.agent_tool import AgentTool

from core.agents.config import AgentConfig
from core.agents.factory import create_app
from core.agents.runtime import AgentRuntime
from core.errors import SettingsError
from core.messages.identity import DEFAULT_AGENT_NAME
from core.models.adapter import ModelAdapter
from core.models.provider import ModelHandle
from core.models.selection import ModelRegistry, ModelSelectionPlugin
from core.models.vendors import VendorSettings
from tests.fixtures.conversation import Converse, ScriptedProvider, adapter

KEYS = VendorSettings(openai_api_key="secret-openai", anthropic_api_key="secret-claude")


def make_adapter(default: ScriptedProvider, **others: ScriptedProvider) -> ModelAdapter:
    """Return an adapter for `a/default`, for which users may select `b/NAME` instead."""
    offered = {f"b/{name}": ModelHandle(provider, name) for name, provider in others.items()}
    return ModelAdapter(
        model="a/default",
        provider=default,
        selectable={"a/default": ModelHandle(default, "default"), **offered},
        idle_seconds=5,
    )


async def test_the_common_model_of_an_apps_agents_is_known_before_a_run(converse: Converse) -> None:
    model = make_adapter(ScriptedProvider(), other=ScriptedProvider())
    fixed = model.model_copy(update={"is_fixed": True})
    conversation = await converse(app=create_app(AgentConfig(), model=model))
    names = [conversation.runtime.get_model_name(chosen) for chosen in (None, "b/other", "c/gone")]
    assert names == ["a/default", "b/other", "a/default"]
    root = LlmAgent(name="root", model=model, tools=[AgentTool(LlmAgent(name="expert", model=fixed))])
    team = AgentRuntime(App(name="team", root_agent=root), conversation.sessions)
    assert [team.get_model_name(chosen) for chosen in (None, "b/other")] == ["a/default", ""]


async def test_a_removed_model_is_replaced_by_the_default_with_a_warning(
    converse: Converse, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedProvider("From the default.")
    conversation = await converse(app=create_app(AgentConfig(), model=make_adapter(provider)))
    with caplog.at_level(logging.WARNING, "core.models.selection"):
        assert (await conversation.events("hi", model="b/gone"))[-1].text == "From the default."
    assert caplog.messages[-1] == "the model b/gone is no longer in MODELS; a/default answers"


async def test_the_selection_does_not_replace_an_agents_own_model(converse: Converse) -> None:
    default, other, own = ScriptedProvider(), ScriptedProvider("One.", "Three."), ScriptedProvider("Two.")
    models = (make_adapter(default, other=other), adapter(own), make_adapter(default, other=other))
    agents: Sequence[BaseAgent] = [LlmAgent(name=f"agent{i}", model=model) for i, model in enumerate(models)]
    with pytest.warns(DeprecationWarning, match="SequentialAgent"):
        root = SequentialAgent(name="root", sub_agents=list(agents))
    conversation = await converse(app=App(name=DEFAULT_AGENT_NAME, root_agent=root, plugins=[ModelSelectionPlugin()]))
    assert (await conversation.events("hi", model="b/other"))[-1].text == "One.\n\nTwo.\n\nThree."


async def test_selectable_models_have_full_names_with_the_default_first() -> None:
    choice = ModelRegistry("openai/one", ["anthropic/two", "openai/one", "openai/openai/three"], KEYS)
    assert [(name, offered.provider.name, offered.model) for name, offered in choice.selectable.items()] == [
        ("openai/one", "openai", "one"),
        ("anthropic/two", "anthropic", "two"),
        ("openai/openai/three", "openai", "openai/three"),
    ]
    await choice.aclose()


def test_an_unusable_default_that_is_not_needed_is_no_fallback() -> None:
    choice = ModelRegistry("nonsense", ["openai/one"], KEYS, fallbacks=["nonsense", "openai/one"], is_required=False)
    assert list(choice.selectable) == ["openai/one"]
    assert list(choice.fallbacks.models) == ["openai/one"]


def test_the_default_can_replace_a_model_without_a_key() -> None:
    keys = VendorSettings(openai_api_key="k")
    choice = ModelRegistry("openai/one", [], keys, replaces_keyless=True)
    assert choice.make_adapter("gemini-2.0-flash").model == "openai/one"
    assert choice.make_adapter("openai/two").model == "openai/two"
    assert choice.replaced_models == {"gemini-2.0-flash"}
    with pytest.raises(SettingsError, match="no such provider"):
        choice.make_adapter("nobody/model")
    with pytest.raises(SettingsError, match="GOOGLE_API_KEY is not set"):
        ModelRegistry("openai/one", [], keys).make_adapter("gemini-2.0-flash")


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("nobody/model", "MODELS=nobody/model: there is no such provider"),
        ("gemini-2.5-flash", "MODELS=gemini-2.5-flash: GOOGLE_API_KEY is not set"),
    ],
)
def test_an_unusable_model_is_a_fault_of_its_setting(model: str, fault: str) -> None:
    with pytest.raises(SettingsError) as raised:
        ModelRegistry("openai/one", [model], KEYS)
    assert [line.startswith(fault) for line in raised.value.faults] == [True]
    with pytest.raises(SettingsError) as raised:
        ModelRegistry(model, [], KEYS)
    assert "MODELS" not in str(raised.value)
