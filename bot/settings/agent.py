"""Settings of the agent, its models and its tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from bot.settings.base import SettingsSection
from bot.settings.parsing import HttpUrl, Names, get_secret_value, read_utf8, validate_text_file
from core.agents.config import DEFAULT_INSTRUCTION, TOOL_TIMEOUT_SECONDS, AgentConfig, validate_agent_name
from core.messages.identity import DEFAULT_AGENT_NAME
from core.models.vendors import VendorSettings, find_model_fault

DEFAULT_MODEL = "gemini-3.5-flash"

#: Settings that apply to the built-in agent only.
_BUILT_IN_AGENT_SETTINGS = ("agent_name", "agent_instruction", "agent_instruction_file", "tools", "mcp_file")

#: Model that needs no key and no network.
LOCAL_MODEL = "local/smollm2-135m"


class AgentSection(SettingsSection):
    """Settings of the agent, its models and its tools."""

    model: str = DEFAULT_MODEL
    models: Names = ()
    google_api_key: SecretStr | None = None
    google_base_url: HttpUrl | None = None
    openai_api_key: SecretStr | None = None
    openai_base_url: HttpUrl | None = None
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: HttpUrl | None = None

    agent: str = ""
    agents_file: Path = Path("agents.toml")
    agent_name: Annotated[str, AfterValidator(validate_agent_name)] = DEFAULT_AGENT_NAME
    agent_instruction: str = DEFAULT_INSTRUCTION
    agent_instruction_file: Annotated[Path, AfterValidator(validate_text_file)] | None = None
    tools: Names = ("core.tools:current_time", "core.tools:schedule")
    mcp_file: Path = Path("mcp.toml")
    tool_timeout_seconds: float = Field(default=TOOL_TIMEOUT_SECONDS, gt=0)

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        built_in = [name.upper() for name in _BUILT_IN_AGENT_SETTINGS if name in self.model_fields_set]
        if self.agent and built_in:
            yield (
                f"AGENT: your own agent has its name, instruction and tools: remove {', '.join(built_in)}, or AGENT to "
                f"run the built-in agent"
            )
        if self.agent and "agents_file" in self.model_fields_set:
            yield "AGENT and AGENTS_FILE are both set: remove one of them"
        if {"agent_instruction", "agent_instruction_file"} <= self.model_fields_set:
            yield "AGENT_INSTRUCTION_FILE and AGENT_INSTRUCTION are both set: remove one of them"

    def find_model_faults(self) -> Iterator[str]:
        """Yield an error line for each fault in `MODEL` and `MODELS`; no SDK of a vendor is imported.

        `MODEL` is checked only if neither `AGENT` nor a file of agents is used.
        """
        is_needed = not self.agent and self.agents_path is None
        models_by_setting = {"MODEL": (self.model,) if is_needed else (), "MODELS": self.models}
        names = set[str]()
        for setting, models in models_by_setting.items():
            for model in models:
                if model not in names and (fault := find_model_fault(model, self.endpoints)) is not None:
                    yield fault if setting == "MODEL" else f"{setting}={model}: {fault}"
                names.add(model)

    @property
    def simulator_model(self) -> str:
        """Model in the simulator: `MODEL`, or the local model if `MODEL` is the default and has no key."""
        return LOCAL_MODEL if self.model == DEFAULT_MODEL and self.google_api_key is None else self.model

    @property
    def endpoints(self) -> VendorSettings:
        return VendorSettings(
            google_api_key=get_secret_value(self.google_api_key),
            google_base_url=self.google_base_url,
            openai_api_key=get_secret_value(self.openai_api_key),
            openai_base_url=self.openai_base_url,
            anthropic_api_key=get_secret_value(self.anthropic_api_key),
            anthropic_base_url=self.anthropic_base_url,
        )

    @property
    def agents_path(self) -> Path | None:
        """Path of the file with several agents; None if there is a single agent."""
        if self.agent or not ("agents_file" in self.model_fields_set or self.agents_file.exists()):
            return None
        return self.agents_file

    @property
    def agent_config(self) -> AgentConfig:
        """Name and instruction of the built-in agent, the latter from its file if that is set."""
        file = self.agent_instruction_file
        return AgentConfig(name=self.agent_name, instruction=read_utf8(file) if file else self.agent_instruction)
