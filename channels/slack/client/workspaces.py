"""The workspaces that the app is installed in, and what it may speak there with."""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cachetools import TTLCache

from channels.rate_limits.caller import RefusedError, TransientError
from core.errors import StoreError
from core.privacy.vault import Vault
from core.secret_redaction import remember

log = logging.getLogger(__name__)

#: Tokens in the cache, and the seconds that they stay there: another process may handle the removal of the app.
MAX_TOKENS, TOKEN_SECONDS = 10_000, 10.0


class Workspaces:
    """Knows the bot's token by workspace; the vault keeps it."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._tokens: TTLCache[str, str, float] = TTLCache(MAX_TOKENS, TOKEN_SECONDS)

    async def verify(self) -> None:
        """Try the key.

        Raises:
            SettingsError: the tokens were kept with another one.
            StoreError: the database cannot be used.
        """
        await self._vault.verify()

    async def add(self, team: str, about: Mapping[str, Any], token: str) -> None:
        """The app was installed, or installed again.

        Raises:
            StoreError: the token cannot be kept.
        """
        remember(token)
        await self._vault.put(_name(team), {**about, "token": token, "at": int(time.time())})
        self._tokens[team] = token

    async def remove(self, team: str, since: float) -> None:
        """The app was uninstalled then (whole seconds since the epoch), or its token revoked. What was installed since
        stays.

        Raises:
            StoreError: the token cannot be deleted.
        """
        kept = await self._vault.get(_name(team))
        if kept is not None and since < kept["at"]:
            return
        await self._vault.remove(_name(team))
        log.info("workspace %s is served no more: the app was uninstalled there", team)
        self._tokens.pop(team, None)

    async def has(self, team: str) -> bool:
        """Whether the app is installed there.

        Raises:
            SettingsError: its token was kept with another key.
            StoreError: the database does not say.
        """
        return await self._token(team) is not None

    async def token(self, team: str, method: str) -> str:
        """What to call `method` with in that workspace.

        Raises:
            RefusedError: there is nothing to call it with.
            PassingError: the database does not say.
        """
        try:
            token = await self._token(team)
        except StoreError as error:
            raise TransientError("the database does not give the token") from error
        if token is None:
            raise RefusedError(method, "not_installed")
        return token

    async def _token(self, team: str) -> str | None:
        with suppress(KeyError):
            return self._tokens[team]
        kept = await self._vault.get(_name(team))
        if kept is None:
            return None
        token = self._tokens[team] = str(kept["token"])
        remember(token)
        return token


def _name(team: str) -> str:
    return f"slack:installation:{team}"
