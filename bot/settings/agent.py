"""The settings of the agent, its models and its tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from bot.settings.base import Part
from bot.settings.parsing import address, read, revealed, several
from core.agents.config import DEFAULT_INSTRUCTION, NAME, NAME_RULE, TOOL_SECONDS, AgentConfig
from core.identity import DEFAULT_AGENT_NAME
from core.models.vendors import Endpoints, find_fault

DEFAULT_MODEL = "gemini-3.5-flash"

#: What is said of the agent that is built in, and of no other.
_OF_OUR_AGENT = ("agent_name", "agent_instruction", "agent_instruction_file", "tools", "mcp_file")

#: Needs no key and no network.
LOCAL_MODEL = "local/smollm2-135m"


class AgentPart(Part):
    """Which agent answers, asked through which models, with which tools."""

    model: str = DEFAULT_MODEL
    models: Annotated[tuple[str, ...], NoDecode] = ()
    google_api_key: SecretStr | None = None
    google_base_url: str | None = None
    openai_api_key: SecretStr | None = None
    openai_base_url: str | None = None
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: str | None = None

    agent: str = ""
    agents_file: Path = Path("agents.toml")
    agent_name: str = DEFAULT_AGENT_NAME
    agent_instruction: str = DEFAULT_INSTRUCTION
    agent_instruction_file: Path | None = None
    tools: Annotated[tuple[str, ...], NoDecode] = ("core.tools:current_time",)
    mcp_file: Path = Path("mcp.toml")
    tool_seconds: float = Field(default=TOOL_SECONDS, gt=0)

    @field_validator("agent_name")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if NAME.fullmatch(value) is None:
            raise ValueError(NAME_RULE)
        return value

    @field_validator("agent_instruction_file")
    @classmethod
    def _is_instruction(cls, value: Path | None) -> Path | None:
        if value is not None and not read(value).strip():
            raise ValueError(f"{value} is empty")
        return value

    @field_validator("tools", "models", mode="before")
    @classmethod
    def _are_several(cls, value: object) -> object:
        return several(value)

    @field_validator("google_base_url", "openai_base_url", "anthropic_base_url")
    @classmethod
    def _is_model_address(cls, value: str | None) -> str | None:
        return address(value)

    def faults(self) -> Iterator[str]:
        """Yield what does not go together with `AGENT`, and two instructions."""
        yield from super().faults()
        of_ours = [name.upper() for name in _OF_OUR_AGENT if name in self.model_fields_set]
        if self.agent and of_ours:
            yield (
                f"AGENT: an agent that is brought has a name, an instruction and tools of its own: remove "
                f"{', '.join(of_ours)}, or AGENT to run the one that is built in"
            )
        if self.agent and "agents_file" in self.model_fields_set:
            yield "AGENT: there is AGENTS_FILE beside it: remove one of the two"
        if {"agent_instruction", "agent_instruction_file"} <= self.model_fields_set:
            yield "AGENT_INSTRUCTION_FILE: there is AGENT_INSTRUCTION beside it: remove one of the two"

    def model_faults(self) -> Iterator[str]:
        """Yield what is missing for the models that are offered. No SDK is imported."""
        is_needed = not self.agent and self.several is None
        named = {
            "MODEL": (self.model,) if is_needed else (),
            "MODELS": self.models,
        }
        seen = set[str]()
        for setting, models in named.items():
            for model in models:
                if model not in seen and (fault := find_fault(model, self.endpoints)) is not None:
                    yield fault if setting == "MODEL" else f"{setting}={model}: {fault}"
                seen.add(model)

    @property
    def sandbox_model(self) -> str:
        """The model that was chosen; where none was and there is no key, the one that needs none."""
        return LOCAL_MODEL if self.model == DEFAULT_MODEL and self.google_api_key is None else self.model

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(
            google_api_key=revealed(self.google_api_key),
            google_base_url=self.google_base_url,
            openai_api_key=revealed(self.openai_api_key),
            openai_base_url=self.openai_base_url,
            anthropic_api_key=revealed(self.anthropic_api_key),
            anthropic_base_url=self.anthropic_base_url,
        )

    @property
    def several(self) -> Path | None:
        """The file of several agents, if there are several."""
        if self.agent or not (self.agents_file.exists() or "agents_file" in self.model_fields_set):
            return None
        return self.agents_file

    @property
    def agent_config(self) -> AgentConfig:
        """The agent that is built in."""
        file = self.agent_instruction_file
        return AgentConfig(name=self.agent_name, instruction=read(file) if file else self.agent_instruction)
