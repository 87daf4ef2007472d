"""Vendors of models: values of `MODEL`, and faults in each vendor's settings; it imports no vendor's SDK."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: The setting of a vendor's key, and the page that creates one.
KEY_SETTINGS: Mapping[str, tuple[str, str]] = {
    "gemini": ("GOOGLE_API_KEY", "https://aistudio.google.com/apikey"),
    "openai": ("OPENAI_API_KEY", "https://platform.openai.com/api-keys"),
    "anthropic": ("ANTHROPIC_API_KEY", "https://platform.claude.com/settings/keys"),
}

_NAME_FORMATS = "gemini-NAME, openai/NAME, anthropic/NAME or local/NAME"


@dataclass(frozen=True, slots=True)
class VendorSettings:
    """API keys and base URLs of the model vendors."""

    google_api_key: str | None = field(default=None, repr=False)
    google_base_url: str | None = None
    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None


def find_model_fault(model: str, endpoints: VendorSettings) -> str | None:
    """Return the fault in the settings for a value of `MODEL` as a sentence; OpenAI with a base URL needs no key."""
    if not _is_known_vendor(model):
        return f"MODEL={model}: there is no such provider; use {_NAME_FORMATS}"
    vendor, _ = split_model(model)
    setting, page = KEY_SETTINGS.get(vendor, ("", ""))
    if not setting or getattr(endpoints, setting.lower()) or (vendor == "openai" and endpoints.openai_base_url):
        return None
    other = ", or set OPENAI_BASE_URL to a server that needs none" if vendor == "openai" else ""
    return f"{setting} is not set: get a key at {page}{other}"


def lacks_key(model: str, endpoints: VendorSettings) -> bool:
    """Return whether a model cannot be called because its vendor's key is not set; False for unknown vendors."""
    return _is_known_vendor(model) and find_model_fault(model, endpoints) is not None


def find_full_name(model: str) -> str | None:
    """Return the full name of a model for a vendor's own name, such as `openai/gpt-4o` for `gpt-4o`.

    None for any other name. ADK calls a bare name itself, without the settings of this program.
    """
    vendors = {"gpt-": "openai", "chatgpt-": "openai", "claude-": "anthropic"}
    vendor = next((vendor for prefix, vendor in vendors.items() if model.startswith(prefix)), None)
    vendor = "openai" if re.match(r"o\d", model) else vendor
    return f"{vendor}/{model}" if vendor else None


def can_call_tools(model: str) -> bool:
    return split_model(model)[0] != "local"


def split_model(model: str) -> tuple[str, str]:
    """Return the vendor in a model's full name, and the model's name at the vendor.

    For a text that starts with `gemini-`, the vendor is `gemini`, and the name is the whole text. The vendor is empty
    for `gemini/NAME`, which is no valid name. Any other text without `/` is a vendor with an empty name.
    """
    if model.startswith("gemini-"):
        return "gemini", model
    vendor, _, name = model.partition("/")
    return ("", name) if vendor == "gemini" else (vendor, name)


def _is_known_vendor(model: str) -> bool:
    vendor, name = split_model(model)
    return vendor in (*KEY_SETTINGS, "local") and bool(name.strip())
