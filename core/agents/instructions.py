"""Check of the variables in the instructions of agents, such as `{city}`.

ADK renders an instruction before each model call, and fails at a variable that the session's state lacks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.apps import App
from google.adk.artifacts import InMemoryArtifactService
from google.adk.plugins.global_instruction_plugin import GlobalInstructionPlugin
from google.adk.sessions import InMemorySessionService, Session
from google.adk.utils.instructions_utils import inject_session_state
from google.adk.workflow import BaseNode, Workflow
from google.genai import types

from core.agents.loader import list_nodes
from core.messages.identity import ADDRESSED_STATE_KEY, USER_STATE_KEY

#: ADK 2.13: the text of the `KeyError` about a missing variable or file.
_MISSING = re.compile(r"Context variable not found: `(?P<variable>.+)` in agent|Artifact '(?P<file>.+)' not found in")

_CALLBACKS = (
    *("before_agent_callback", "after_agent_callback", "before_model_callback", "after_model_callback"),
    *("on_model_error_callback", "before_tool_callback", "after_tool_callback", "on_tool_error_callback"),
)


@dataclass(frozen=True, slots=True)
class UnknownVariable:
    """Variable in the instruction of an agent that a new session lacks.

    Attributes:
        name: the name, such as `city`, `user:city` or `artifact.notes.txt`.
        may_be_set: whether code of the app runs before the agent, and may set the variable.
    """

    agent: str
    name: str
    may_be_set: bool

    def __str__(self) -> str:
        effect = (
            "answers fail until a callback, a tool or a plugin sets it"
            if self.may_be_set
            else "nothing sets it, so answers fail"
        )
        return (
            f"the instruction of the agent {self.agent} has {{{self.name}}}: {effect}; write {{{self.name}?}} if it "
            "may be missing, or make the instruction a function if the braces are text"
        )


async def find_unknown_variables(app: App) -> list[UnknownVariable]:
    """Return the variables in the instructions of an app's agents that a new session lacks.

    Known are the `output_key`s of the other agents, except for an agent that runs first. Instructions that are
    functions are not checked.
    """
    nodes = list(list_nodes(app))
    found = list[UnknownVariable]()
    agents = [node for node in nodes if isinstance(node, LlmAgent)]
    first = set(map(id, _find_first_agents(app.root_agent)))
    for agent in agents:
        earlier = [] if id(agent) in first else [node for node in nodes if node is not agent]
        known = {node.output_key for node in earlier if isinstance(node, LlmAgent) and node.output_key}
        has_code = (
            any(map(_is_of_user, app.plugins))
            or any(getattr(node, "before_agent_callback", None) for node in _iterate_ancestors(agent))
            or any(map(_may_write_state, earlier))
        )
        instructions = [agent.instruction]
        if agent.root_agent is agent:
            instructions.append(agent.global_instruction)
        if agent is agents[0]:
            instructions += [
                each.global_instruction for each in app.plugins if isinstance(each, GlobalInstructionPlugin)
            ]
        for instruction in instructions:
            if isinstance(instruction, str):
                names = await _list_missing_variables(instruction, agent, known)
                found += [UnknownVariable(agent.name, name, may_be_set=has_code) for name in names]
    return list(dict.fromkeys(found))


def _find_first_agents(node: Any) -> Iterator[LlmAgent]:
    match node:
        case LlmAgent():
            yield node
        case ParallelAgent():
            for agent in node.sub_agents:
                yield from _find_first_agents(agent)
        case SequentialAgent() | LoopAgent():
            yield from _find_first_agents(next(iter(node.sub_agents), None))


def _iterate_ancestors(agent: BaseAgent) -> Iterator[BaseAgent]:
    node: BaseAgent | None = agent
    while node is not None:
        yield node
        node = node.parent_agent


def _is_of_user(plugin: object) -> bool:
    """Return whether a plugin is neither of ADK nor of Parley; those set no variables."""
    return not type(plugin).__module__.startswith(("google.adk.", "core.", "bot."))


def _may_write_state(node: BaseNode) -> bool:
    if any(getattr(node, name, None) for name in _CALLBACKS):
        return True
    if type(node) is LlmAgent:
        return bool(node.tools)
    return type(node) not in (SequentialAgent, ParallelAgent, LoopAgent, Workflow)


async def _list_missing_variables(template: str, agent: LlmAgent, known: set[str]) -> list[str]:
    """Return the variables and files of an instruction that are neither `known` nor optional, by rendering it."""
    state = dict.fromkeys({USER_STATE_KEY, ADDRESSED_STATE_KEY, *known}, "")
    session = Session(id="check", app_name="check", user_id="check", state=state)
    artifacts = InMemoryArtifactService()
    context = InvocationContext(
        session_service=InMemorySessionService(),
        artifact_service=artifacts,
        invocation_id="check",
        agent=agent,
        session=session,
    )
    missing = list[str]()
    while True:
        try:
            await inject_session_state(template, ReadonlyContext(context))
        except KeyError as error:
            match = _MISSING.match(error.args[0])
            if match is None:
                raise
            missing.append(match["variable"] or f"artifact.{match['file']}")
            if match["variable"]:
                session.state[match["variable"]] = ""
            else:
                await artifacts.save_artifact(
                    app_name="check",
                    user_id="check",
                    session_id="check",
                    filename=match["file"],
                    artifact=types.Part(text="-"),
                )
        else:
            return missing
