from urllib.parse import parse_qs, urlsplit

import pytest

from channels.discord.invite import application_id_of, invite_link, required_permissions
from chatrig.discord import DiscordSimulator
from core.errors import SettingsError


def test_the_invite_link_asks_for_the_permissions_of_the_settings() -> None:
    query = parse_qs(urlsplit(invite_link(123, auto_thread=False)).query)
    assert query == {"client_id": ["123"], "scope": ["bot applications.commands"], "permissions": ["274878008384"]}
    extra = required_permissions(auto_thread=True) & ~required_permissions(auto_thread=False)
    assert [name for name, is_on in extra if is_on] == ["create_public_threads"]
    assert "guild_id=7" in invite_link(123, auto_thread=True, guild=7)


async def test_a_bot_token_contains_the_id_of_its_app(server: DiscordSimulator) -> None:
    assert application_id_of(server.bot_token) == int(server.bot_id)


@pytest.mark.parametrize("token", ["", "x.y.z", "!!.y.z", "aGVsbG8.y.z"])
def test_a_malformed_token_is_reported(token: str) -> None:
    with pytest.raises(SettingsError, match="DISCORD_BOT_TOKEN: it is no bot's token"):
        application_id_of(token)
