"""Sealed targets of sign-ins that tools have asked for: with client secrets, which are nowhere in ADK's events."""

from core.errors import SettingsError
from core.privacy.vault import Vault
from core.signin.target import Person, SignInTarget

#: Beginning of the name of a sealed target in the vault.
PENDING_PREFIX = "sign-in-request:"

#: The most targets of a person that are stored at the same time: a model must not ask without end.
MAX_TARGETS = 20


class PendingSignIns:
    """Store of the targets that tool calls wait for.

    Args:
        seconds: until a target is deleted: longer than a request to a person stays open.
    """

    def __init__(self, vault: Vault, *, seconds: float) -> None:
        self._vault = vault
        self._seconds = seconds

    async def put(self, person: Person, session: str, run: str, call_id: str, target: SignInTarget) -> bool:
        """Store the target of a call; False if the person has too many already, so that nothing is stored."""
        if await self._vault.count(f"{PENDING_PREFIX}{person}/") >= MAX_TARGETS:
            return False
        name = _get_name(person, session, run, call_id)
        await self._vault.put(name, target.to_json(), seconds=self._seconds)
        return True

    async def get(self, person: Person, session: str, run: str, call_id: str) -> SignInTarget | None:
        """Return the target of a call; None if it is unknown, expired, or sealed with another `SECRET_KEY`."""
        try:
            value = await self._vault.get(_get_name(person, session, run, call_id))
        except SettingsError:
            return None
        return SignInTarget.from_json(value) if value else None


def _get_name(person: Person, session: str, run: str, call_id: str) -> str:
    return f"{PENDING_PREFIX}{person}/{session}/{run}/{call_id}"
