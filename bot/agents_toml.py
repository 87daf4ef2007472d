"""Parser of `agents.toml`, which configures several agents and where each answers.

A place is the id of a channel or workspace of Slack, or of a server, category or channel of Discord. It can also be
`dm`, `slack:dm` or `discord:dm` for direct messages.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from bot.settings.parsing import read_toml, read_utf8
from core.agents.config import AGENT_NAME_PATTERN, AGENT_NAME_RULE
from core.errors import SettingsError
from core.observability.messages import describe_invalid_value

#: Ids of Slack's and Discord's channels and servers, and direct messages.
_PLACE_ID = re.compile(r"(?:[CGDTE][A-Z0-9]{5,}|\d{5,20}|(?:(?:slack|discord):)?dm)")
_PLACE_RULE = (
    "it must be the id of a channel or workspace of Slack (C..., T...), of a server, category or channel of Discord "
    "(digits), or dm, slack:dm or discord:dm"
)

#: Keys that apply to the built-in agent only.
_BUILT_IN_AGENT_KEYS = ("model", "instruction", "instruction_file", "tools", "mcp")

#: Most characters of a description, which appears in a list.
_MAX_DESCRIPTION_CHARS = 200


def _validate_place(value: Any) -> Any:
    if not isinstance(value, str) or _PLACE_ID.fullmatch(value) is None:
        raise ValueError(_PLACE_RULE)
    return value


def _validate_choose(value: Any) -> Any:
    if not isinstance(value, bool | list):
        raise ValueError(f"it must be true, false, or a list of places: for each, {_PLACE_RULE}")
    return value if isinstance(value, bool) else tuple(map(_validate_place, value))


def _validate_name(value: Any) -> Any:
    if not isinstance(value, str) or AGENT_NAME_PATTERN.fullmatch(value) is None:
        raise ValueError(f"a name: {AGENT_NAME_RULE}")
    return value


AgentName = Annotated[str, BeforeValidator(_validate_name)]
PlaceId = Annotated[str, BeforeValidator(_validate_place)]


class AgentTable(BaseModel):
    """Table `[agents.NAME]` of `agents.toml`: a user's own agent, or the built-in one.

    A key that is missing has the value of the setting of the same meaning.

    Attributes:
        agent: the user's own agent, as in `AGENT`; empty for the built-in one.
        mcp: file of MCP servers, as in `MCP_FILE`; empty for no servers.
        description: one line about the agent's purpose, shown to users who choose an agent.
        choose: whether users may choose the agent everywhere or nowhere, or ids of the places where they may.
        progress: texts that users see while a tool runs, by tool name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: str = ""
    model: str = ""
    instruction: str = ""
    instruction_file: Path | None = None
    tools: tuple[str, ...] | None = None
    mcp: Path | None = None
    description: str = Field(default="", max_length=_MAX_DESCRIPTION_CHARS)
    choose: Annotated[bool | tuple[str, ...], BeforeValidator(_validate_choose)] = False
    progress: Mapping[str, str] = Field(default_factory=dict)

    @property
    def selectable_places(self) -> frozenset[str] | None:
        """Ids of the places where users may choose this agent; None for everywhere, empty for nowhere."""
        if isinstance(self.choose, bool):
            return None if self.choose else frozenset()
        return frozenset(self.choose)

    def find_conflicts(self) -> Iterator[str]:
        """Yield an error line, with the remedy, for each conflict in this agent's table."""
        built_in = [name for name in _BUILT_IN_AGENT_KEYS if name in self.model_fields_set]
        if self.agent and built_in:
            yield f"your own agent has these itself: remove {', '.join(built_in)}, or agent"
        if self.instruction and self.instruction_file:
            yield "instruction and instruction_file are both set: remove one of them"
        if self.instruction_file is not None:
            try:
                if not read_utf8(self.instruction_file).strip():
                    yield f"instruction_file: {self.instruction_file} is empty"
            except ValueError as error:
                yield f"instruction_file: {error}"


class AgentsFile(BaseModel):
    """Content of `agents.toml`.

    Attributes:
        default: name of the agent that answers in places that `places` does not list.
        places: name of the agent that answers in a place, by the id of the place.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: AgentName
    agents: Mapping[AgentName, AgentTable] = Field(min_length=1)
    places: Mapping[PlaceId, AgentName] = Field(default_factory=dict)

    def find_conflicts(self) -> Iterator[str]:
        """Yield an error line for each agent that has no table, and each conflict in a table."""
        known = f"it is not in [agents]: {', '.join(self.agents)}"
        if self.default not in self.agents:
            yield f"default={self.default}: {known}"
        for place, name in self.places.items():
            if name not in self.agents:
                yield f"[places] {place}={name}: {known}"
        for name, table in self.agents.items():
            yield from (f"[agents.{name}] {fault}" for fault in table.find_conflicts())


def read_agents(file: Path) -> AgentsFile:
    """Read and validate an `agents.toml`; a `SettingsError` has a line for each fault."""
    tables = read_toml(file, "AGENTS_FILE")
    try:
        content = AgentsFile.model_validate(tables)
    except ValidationError as error:
        raise SettingsError(*dict.fromkeys(f"{file}: {_describe_error(fault)}" for fault in error.errors())) from None
    if conflicts := [f"{file}: {conflict}" for conflict in content.find_conflicts()]:
        raise SettingsError(*conflicts)
    return content


def _describe_error(fault: ErrorDetails) -> str:
    loc = [str(part) for part in fault["loc"] if part != "[key]"]
    fields = AgentTable.model_fields if loc[0] == "agents" and len(loc) > 1 else AgentsFile.model_fields
    problem = describe_invalid_value(fault, known_keys=fields)
    match loc:
        case ["agents", name, *more]:
            return f"[agents.{name}] {'.'.join(more)}{': ' if more else ''}{problem}"
        case ["places", place, *_]:
            return f"[places] {place}: {problem}"
        case ["agents"] if fault["type"] == "too_short":
            return "[agents] is empty: write a table [agents.NAME] for each agent"
        case ["default"] if fault["type"] == "missing":
            return "default is missing: write default = NAME, the agent that answers where no rule applies"
        case _:
            return f"{'.'.join(loc)}: {problem}"
