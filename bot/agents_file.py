"""`agents.toml`: several agents behind one bot, and which of them answers where."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bot.settings.parsing import read_utf8
from core.agents.config import AGENT_NAME_PATTERN, AGENT_NAME_RULE
from core.errors import SettingsError

#: What a rule may call a place: Slack's ids, Discord's, and direct messages.
_PLACE = re.compile(r"(?:[CGDTE][A-Z0-9]{5,}|\d{5,20}|(?:(?:slack|discord):)?dm)")
_PLACE_RULE = (
    "it must be the id of a channel or workspace of Slack (C..., T...), of a server, category or channel of Discord "
    "(digits), or dm, slack:dm or discord:dm"
)

#: What is said of the agent that is built in, and of no other.
_OF_OUR_AGENT = ("model", "instruction", "instruction_file", "tools", "mcp")

#: Characters of a description: it stands in a list.
_LONGEST = 200


def _place(value: Any) -> Any:
    if not isinstance(value, str) or _PLACE.fullmatch(value) is None:
        raise ValueError(_PLACE_RULE)
    return value


def _named(value: Any) -> Any:
    if not isinstance(value, str) or AGENT_NAME_PATTERN.fullmatch(value) is None:
        raise ValueError(f"a name: {AGENT_NAME_RULE}")
    return value


Name = Annotated[str, BeforeValidator(_named)]
Place = Annotated[str, BeforeValidator(_place)]


class Table(BaseModel):
    """One agent: one that is brought, or the one that is built in, of which what is left out is as the settings say.

    Attributes:
        agent: see `AGENT`.
        mcp: see `MCP_FILE`; empty for none.
        description: what it is there for, in a line, for people who choose.
        choose: where people may choose it: everywhere, nowhere, or at these places.
        progress: by the name of a tool, what is shown while it runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: str = ""
    model: str = ""
    instruction: str = ""
    instruction_file: Path | None = None
    tools: tuple[str, ...] | None = None
    mcp: Path | None = None
    description: str = Field(default="", max_length=_LONGEST)
    choose: bool | tuple[Place, ...] = False
    progress: Mapping[str, str] = Field(default_factory=dict)

    @property
    def chosen_at(self) -> frozenset[str] | None:
        """See `core.sessions.routing.Agent`."""
        if isinstance(self.choose, bool):
            return None if self.choose else frozenset()
        return frozenset(self.choose)

    def faults(self) -> Iterator[str]:
        """What is in contradiction."""
        of_ours = [name for name in _OF_OUR_AGENT if name in self.model_fields_set]
        if self.agent and of_ours:
            yield f"an agent that is brought has its own: remove {', '.join(of_ours)}, or agent"
        if self.instruction and self.instruction_file:
            yield "there are instruction and instruction_file: remove one of the two"
        if self.instruction_file is not None:
            try:
                if not read_utf8(self.instruction_file).strip():
                    yield f"instruction_file: {self.instruction_file} is empty"
            except ValueError as error:
                yield f"instruction_file: {error}"


class AgentsFile(BaseModel):
    """The whole file.

    Attributes:
        default: the name of the one that answers where no rule says otherwise.
        places: which one answers there instead.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: Name
    agents: Mapping[Name, Table] = Field(min_length=1)
    places: Mapping[Place, Name] = Field(default_factory=dict)

    def faults(self) -> Iterator[str]:
        known = f"it names none of [agents]: {', '.join(self.agents)}"
        if self.default not in self.agents:
            yield f"default={self.default}: {known}"
        for place, name in self.places.items():
            if name not in self.agents:
                yield f"[places] {place}={name}: {known}"
        for name, table in self.agents.items():
            yield from (f"[agents.{name}] {fault}" for fault in table.faults())


def read_agents(file: Path) -> AgentsFile:
    """What the file says.

    Raises:
        SettingsError: it cannot be read, or is not as it must be; a line for each fault, with the file, the agent and
            what to do.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"AGENTS_FILE={file}: it cannot be read ({error.strerror})") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: it is not TOML: {_where(error)}") from None
    except ValueError:
        raise SettingsError(f"{file}: it is not UTF-8 text: save it as UTF-8") from None
    try:
        found = AgentsFile.model_validate(tables)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        raise SettingsError(*dict.fromkeys(f"{file}: {_told(dict(fault))}" for fault in faults)) from None
    if faults_of := [f"{file}: {fault}" for fault in found.faults()]:
        raise SettingsError(*faults_of)
    return found


def _where(error: tomllib.TOMLDecodeError) -> str:
    found = re.search(r"\(at (line \d+, column \d+|end of document)\)", str(error))
    return found[1] if found else "look at its brackets and quotation marks"


def _told(fault: Mapping[str, Any]) -> str:
    """One that pydantic has found, at its place in the file."""
    loc = [str(part) for part in fault["loc"] if part != "[key]" and not str(part).startswith("function-")]
    said = str(fault["msg"]).removeprefix("Value error, ")
    match loc:
        case ["agents", name, *more]:
            return f"[agents.{name}] {'.'.join(more)}{': ' if more else ''}{said}"
        case ["places", place, *_]:
            return f"[places] {place}: {said}"
        case ["agents"]:
            return "[agents]: there is none: write a table [agents.NAME] for each"
        case ["default"] if fault["type"] == "missing":
            return "default is missing: write default = NAME, the one that answers where no rule says otherwise"
        case _:
            return f"{'.'.join(loc)}: {said}"
