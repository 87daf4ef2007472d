"""Seals: what lets the bot speak where it could not otherwise stands in the database as nobody else can read it."""

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken


class Seal:
    """Encrypts and signs (Fernet: AES-128-CBC with HMAC-SHA256).

    Args:
        key: a secret that the database does not have, and all workers do.
    """

    def __init__(self, key: str) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()))

    def close(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str:
        """What was sealed; empty if that was with another key."""
        try:
            return self._fernet.decrypt(sealed.encode()).decode()
        except InvalidToken:
            return ""
