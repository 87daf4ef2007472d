"""The bot's application commands, and what Discord knows of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import discord
from discord import app_commands
from discord.http import Route

from channels.commands.handlers import COMMANDS, FORMS, WITH_NAME, Name, Ways
from channels.i18n import messages as words

#: What a command is, in Discord's own form; the rest is what Discord adds.
_FIELDS = (
    "name",
    "name_localizations",
    "type",
    "description",
    "description_localizations",
    "options",
    "contexts",
    "integration_types",
)

#: Discord: in the description of a command, or in the choices of an option.
_MOST_DESCRIBED, MOST_CHOICES = 100, 25

#: How they are given.
WAYS = Ways({name: f"/{name}" for name in COMMANDS}, "/ask", lambda say: [say(words.ASK_ABOUT), say(words.WHY_THIS)])

#: What may be named, of what was typed of it.
Names = Callable[[discord.Interaction, str], Awaitable[Sequence[str]]]

Command = app_commands.Command[Any, ..., None] | app_commands.ContextMenu


class Givers(Protocol):
    """Does what commands ask for, and answers them."""

    async def command(self, interaction: discord.Interaction, name: Name, argument: str) -> None: ...

    async def ask(self, interaction: discord.Interaction, question: str) -> None: ...

    async def ask_about(self, interaction: discord.Interaction, message: discord.Message) -> None: ...

    async def why(self, interaction: discord.Interaction, message: discord.Message) -> None: ...

    async def models(self, interaction: discord.Interaction, typed: str) -> Sequence[str]: ...

    async def agents(self, interaction: discord.Interaction, typed: str) -> Sequence[str]: ...


def commands_of(takes: Givers) -> list[Command]:
    """All of them: in servers and direct messages, and wherever people are who have the app for themselves."""
    plain = [name for name in COMMANDS if name not in WITH_NAME and name not in ("why", "export")]
    made: list[Command] = [_plain(name, COMMANDS[name], takes) for name in plain]
    made += [_naming("model", words.MODEL_NAME, takes, takes.models)]
    made += [_naming("agent", words.AGENT_NAME, takes, takes.agents)]
    made += [_export(takes), _why(takes)]
    made.sort(key=lambda command: list(COMMANDS).index(cast(Name, command.name)))
    made += [_why_this(takes), _ask(takes), _ask_about(takes)]
    for command in made:
        command.allowed_contexts = app_commands.AppCommandContext(guild=True, dm_channel=True, private_channel=True)
        command.allowed_installs = app_commands.AppInstallationType(guild=True, user=True)
    return made


def _plain(name: Name, does: str, takes: Givers) -> Command:
    async def give(interaction: discord.Interaction) -> None:
        await takes.command(interaction, name, "")

    return app_commands.Command(name=name, description=_described(does), callback=give)


def _naming(what: Name, about: str, takes: Givers, names: Names) -> Command:
    @app_commands.describe(name=_described(about))
    async def give(interaction: discord.Interaction, name: str = "") -> None:
        await takes.command(interaction, what, name)

    async def complete(interaction: discord.Interaction, typed: str) -> list[app_commands.Choice[str]]:
        found = await names(interaction, typed)
        return [app_commands.Choice(name=one[:100], value=one) for one in found[:MOST_CHOICES]]

    command: app_commands.Command[Any, ..., None] = app_commands.Command(
        name=what, description=_described(COMMANDS[what]), callback=give
    )
    command.autocomplete("name")(complete)
    return command


def _export(takes: Givers) -> Command:
    @app_commands.describe(form=_described(words.EXPORT_FORM))
    @app_commands.choices(form=[app_commands.Choice(name=form, value=form) for form in FORMS])
    async def give(interaction: discord.Interaction, form: str = "") -> None:
        await takes.command(interaction, "export", form)

    return app_commands.Command(name="export", description=_described(COMMANDS["export"]), callback=give)


def _why(takes: Givers) -> Command:
    @app_commands.describe(turn=_described(words.WHY_TURN))
    async def give(interaction: discord.Interaction, turn: str = "") -> None:
        await takes.command(interaction, "why", turn)

    return app_commands.Command(name="why", description=_described(COMMANDS["why"]), callback=give)


def _why_this(takes: Givers) -> Command:
    async def give(interaction: discord.Interaction, message: discord.Message) -> None:
        await takes.why(interaction, message)

    return app_commands.ContextMenu(name=_described(words.WHY_THIS), callback=give)


def _ask(takes: Givers) -> Command:
    @app_commands.describe(question=_described(words.ASK_WHAT))
    async def give(interaction: discord.Interaction, question: str) -> None:
        await takes.ask(interaction, question)

    return app_commands.Command(name="ask", description=_described(words.ASK_DOES), callback=give)


def _ask_about(takes: Givers) -> Command:
    async def give(interaction: discord.Interaction, message: discord.Message) -> None:
        await takes.ask_about(interaction, message)

    return app_commands.ContextMenu(name=_described(words.ASK_ABOUT), callback=give)


def _described(sentence: str) -> app_commands.locale_str:
    return app_commands.locale_str(_shown(sentence), sentence=sentence)


def _shown(sentence: str) -> str:
    return f"{sentence[0].upper()}{sentence[1:]}"[:_MOST_DESCRIBED]


class Translator(app_commands.Translator):
    """What commands do, in the languages that the bot speaks; what they are called is of no language."""

    async def translate(
        self, string: app_commands.locale_str, locale: discord.Locale, context: app_commands.TranslationContextTypes
    ) -> str | None:
        del context
        sentence, language = string.extras.get("sentence"), words.spoken(locale.value)
        if sentence is None or language in ("", words.ENGLISH.language):
            return None
        return _shown(words.of(language)(sentence))


async def sync(tree: app_commands.CommandTree[Any]) -> bool:
    """Register the commands, unless Discord has exactly these: it limits how often that may be done.

    Returns:
        Whether anything was changed.
    """
    client, translator = tree.client, tree.translator
    assert client.application_id is not None, "the client is logged in"
    assert translator is not None, "the tree has been given one"
    wanted = [_essence(await command.get_translated_payload(tree, translator)) for command in tree.get_commands()]
    # As they come: discord.py's own reading of them loses where they may be used.
    route = Route("GET", "/applications/{application_id}/commands", application_id=client.application_id)
    registered = await client.http.request(route, params={"with_localizations": "true"})
    if _sorted(wanted) == _sorted([_essence(command) for command in registered]):
        return False
    await tree.sync()
    return True


def _essence(command: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared."""
    return {field: _filled(command[field]) for field in _FIELDS if command.get(field)}


def _filled(value: Any) -> Any:
    """What is empty, Discord may leave out."""
    if isinstance(value, dict):
        return {name: _filled(inner) for name, inner in value.items() if inner}
    return [_filled(inner) for inner in value] if isinstance(value, list) else value


def _sorted(commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(commands, key=lambda command: (command["type"], command["name"]))
