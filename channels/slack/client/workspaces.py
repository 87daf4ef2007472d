"""Bot tokens of the workspaces in which the app is installed."""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cachetools import TTLCache

from channels.rate_limits.retries import RefusedError, TransientError
from core.errors import StoreError
from core.observability.secret_redaction import add_secret
from core.privacy.vault import Vault

log = logging.getLogger(__name__)

#: The most tokens in the cache, and the seconds for which they are cached: another process may delete a token.
MAX_TOKENS, TOKEN_SECONDS = 10_000, 10.0


class WorkspaceTokenStore:
    """Stores the bot's token of each workspace, encrypted in the database; caches it in memory."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self._cache: TTLCache[str, str, float] = TTLCache(MAX_TOKENS, TOKEN_SECONDS)

    async def verify(self) -> None:
        """Check that the stored tokens can be decrypted, and raise `SettingsError` if not."""
        await self.vault.count_decryptable(prefix=_name(""))

    async def add(self, team: str, details: Mapping[str, Any], token: str) -> None:
        """Store the token of a workspace in which the app was installed, in place of an earlier one.

        Args:
            details: the workspace's `name`, the `bot`'s user id, and the id of the user who installed the app (`by`).
        """
        add_secret(token)
        await self.vault.put(_name(team), {**details, "token": token, "at": int(time.time())})
        self._cache[team] = token

    async def remove(self, team: str, removed_at: float) -> None:
        """Delete the token of a workspace that removed the app, unless it was stored after `removed_at`."""
        stored = await self.vault.get(_name(team))
        if stored is not None and removed_at < stored["at"]:
            return
        await self.vault.remove(_name(team))
        log.info("the app was uninstalled from workspace %s", team)
        self._cache.pop(team, None)

    async def is_installed(self, team: str) -> bool:
        return await self._load(team) is not None

    async def get(self, team: str, method: str) -> str:
        """Return the bot's token in a workspace, for a call of `method`.

        Raises:
            RefusedError: the app is not installed in the workspace.
            TransientError: the database cannot be read.
        """
        try:
            token = await self._load(team)
        except StoreError as error:
            raise TransientError("the token cannot be read from the database") from error
        if token is None:
            raise RefusedError(method, "not_installed")
        return token

    async def _load(self, team: str) -> str | None:
        with suppress(KeyError):
            return self._cache[team]
        stored = await self.vault.get(_name(team))
        if stored is None:
            return None
        token = self._cache[team] = str(stored["token"])
        add_secret(token)
        return token


def _name(team: str) -> str:
    return f"slack:installation:{team}"
