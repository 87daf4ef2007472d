"""Vendors of models: values of `MODEL`, and faults in the settings of each vendor.

It imports no SDK.
"""

from dataclasses import dataclass, field

VENDORS = ("gemini", "openai", "anthropic", "local")

_NAME_FORMATS = "gemini-NAME, openai/NAME, anthropic/NAME or local/NAME"


@dataclass(frozen=True, slots=True)
class VendorSettings:
    """API keys and base URLs of the model vendors; None for what is not set."""

    google_api_key: str | None = field(default=None, repr=False)
    google_base_url: str | None = None
    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None


def find_model_fault(model: str, endpoints: VendorSettings) -> str | None:
    """Return a sentence on the missing or wrong setting for a model; None without one.

    Args:
        model: a value of `MODEL`.
    """
    if not _is_known_vendor(model):
        return f"MODEL={model}: there is no such provider; use {_NAME_FORMATS}"
    vendor, _ = split_model(model)
    if vendor == "gemini" and not endpoints.google_api_key:
        return "GOOGLE_API_KEY is not set: get a key at https://aistudio.google.com/apikey"
    if vendor == "openai" and not endpoints.openai_api_key and not endpoints.openai_base_url:
        return (
            "OPENAI_API_KEY is not set: get a key at https://platform.openai.com/api-keys, "
            "or set OPENAI_BASE_URL to a server that needs none"
        )
    if vendor == "anthropic" and not endpoints.anthropic_api_key:
        return "ANTHROPIC_API_KEY is not set: get a key at https://platform.claude.com/settings/keys"
    return None


def lacks_key(model: str, endpoints: VendorSettings) -> bool:
    """Return whether the model's vendor is known and only its key is missing."""
    return _is_known_vendor(model) and find_model_fault(model, endpoints) is not None


def can_call_tools(model: str) -> bool:
    """Return whether a model can call tools, by its full name."""
    return split_model(model)[0] != "local"


def split_model(model: str) -> tuple[str, str]:
    """Return the vendor of a full name, and the model's name at the vendor.

    The vendor is empty for `gemini/NAME`, which is no valid name.
    """
    if model.startswith("gemini-"):
        return "gemini", model
    vendor, _, name = model.partition("/")
    return ("", name) if vendor == "gemini" else (vendor, name)


def _is_known_vendor(model: str) -> bool:
    vendor, name = split_model(model)
    return vendor in VENDORS and bool(name.strip())
