"""Rules of message components and embeds that Discord's specification lacks.

Discord: docs.discord.com/developers/components/reference. Discord publishes no list of these error codes: they are
those that clients have reported.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from chatrig.discord.api.requests import create_form_error
from chatrig.discord.state.components import list_media
from chatrig.discord.state.messages import iterate_components

IS_COMPONENTS_V2 = 1 << 15
MAX_ROWS, MAX_COMPONENTS, MAX_DISPLAY_LENGTH = 5, 40, 4000

ACTION_ROW, _BUTTON, _TEXT_DISPLAY = 1, 2, 10
_LINK, _PREMIUM = 5, 6

Component = Mapping[str, Any]


def check_components(components: Sequence[Component], flags: int, file_names: Container[str]) -> None:
    """Check a message's components, whose JSON is valid by Discord's specification.

    With `IS_COMPONENTS_V2`, at most `MAX_COMPONENTS` components and `MAX_DISPLAY_LENGTH` characters are allowed;
    without it, only `MAX_ROWS` action rows. Rows, buttons, preselected values and `attachment://` URLs are checked too.

    Args:
        flags: the flags of the message.
        file_names: names of the message's files, for `attachment://` URLs.

    Raises:
        DiscordError: 50035 with the first error.
    """
    all_components = list(iterate_components(components))
    if flags & IS_COMPONENTS_V2:
        text = sum(len(part["content"]) for part in all_components if part["type"] == _TEXT_DISPLAY)
        if len(all_components) > MAX_COMPONENTS:
            raise create_form_error(
                "components", "BASE_TYPE_MAX_LENGTH", f"Must be {MAX_COMPONENTS} or fewer in length."
            )
        if text > MAX_DISPLAY_LENGTH:
            message = f"The combined text of the components exceeds {MAX_DISPLAY_LENGTH} characters."
            raise create_form_error("components", "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED", message)
    else:
        if len(components) > MAX_ROWS:
            raise create_form_error("components", "BASE_TYPE_MAX_LENGTH", f"Must be {MAX_ROWS} or fewer in length.")
        for number, component in enumerate(components):
            if component["type"] != ACTION_ROW:
                raise create_form_error(f"components.{number}.type", "BASE_TYPE_CHOICES", "Value must be one of (1,).")
    for path, component in _walk(components, "components"):
        if component["type"] == ACTION_ROW:
            _check_row(path, component["components"])
        elif component["type"] == _BUTTON:
            _check_button(path, component)
        else:
            _check_menu(path, component)
        for field, holder in list_media(dict(component)):
            _check_media(f"{path}.{field}", holder[field.split(".")[-2]]["url"], file_names)


def check_legacy_fields(fields: Mapping[str, Any]) -> None:
    """Check that a message with `IS_COMPONENTS_V2` has none of the older fields.

    These are text, embeds, a poll and stickers.

    Args:
        fields: the fields of the message.

    Raises:
        DiscordError: 50035, the message has one of them.
    """
    for name in ("content", "embeds", "poll", "sticker_ids"):
        if fields.get(name):
            message = f"The '{name}' field cannot be used when using MessageFlags.IS_COMPONENTS_V2"
            raise create_form_error(name, "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2", message)


def check_embed(path: str, embed: Mapping[str, Any]) -> None:
    """Check that an embed has visible content, and that its fields have texts.

    Args:
        path: the path of the embed in the message, for the error.

    Raises:
        DiscordError: 50035 with the first error.
    """
    if not any(embed.get(name) for name in embed if name not in ("type", "color", "timestamp", "url")):
        raise create_form_error(f"{path}.description", "BASE_TYPE_REQUIRED", "This field is required")
    for number, field in enumerate(embed.get("fields") or ()):
        for part in ("name", "value"):
            if not str(field[part]).strip():
                raise create_form_error(
                    f"{path}.fields.{number}.{part}", "BASE_TYPE_REQUIRED", "This field is required"
                )


def _walk(components: Sequence[Component], path: str) -> Iterator[tuple[str, Component]]:
    """Yield the pair (path, component) for components and their nested components.

    Args:
        path: the path of the components in the message, for errors.
    """
    for number, component in enumerate(components):
        place = f"{path}.{number}"
        yield place, component
        yield from _walk(component.get("components", ()), f"{place}.components")
        if component.get("accessory"):
            yield f"{place}.accessory", component["accessory"]


def _check_row(path: str, components: Sequence[Component]) -> None:
    if len(components) > 1 and any(component["type"] != _BUTTON for component in components):
        message = "The specified component exceeds the maximum width"
        raise create_form_error(f"{path}.components.1", "COMPONENT_LAYOUT_WIDTH_EXCEEDED", message)


def _check_button(path: str, button: Component) -> None:
    """Check that a button has the fields of its style.

    A link needs a URL, a premium button a SKU, any other button a custom id, and all but premium buttons a label or
    emoji.

    Raises:
        DiscordError: 50035 with the first error.
    """
    style = button["style"]
    required = {_LINK: "url", _PREMIUM: "sku_id"}.get(style, "custom_id")
    if not button.get(required):
        raise create_form_error(f"{path}.{required}", "BASE_TYPE_REQUIRED", "This field is required")
    if button.get("custom_id") and button.get("url"):
        message = "A custom id and url cannot both be specified"
        raise create_form_error(path, "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE", message)
    if style != _PREMIUM and not button.get("label") and not button.get("emoji"):
        raise create_form_error(f"{path}.label", "BASE_TYPE_REQUIRED", "A label or emoji is required")


def _check_menu(path: str, menu: Component) -> None:
    """Check that the number of a menu's preselected values is within its limits.

    The values are users, roles or channels.

    Raises:
        DiscordError: 50035, there are too few or too many.
    """
    defaults, min_values, max_values = menu.get("default_values"), menu.get("min_values", 1), menu.get("max_values", 1)
    if defaults and not min_values <= len(defaults) <= max_values:
        message = f"Must be between {min_values} and {max_values} in length."
        raise create_form_error(f"{path}.default_values", "BASE_TYPE_BAD_LENGTH", message)


def _check_media(path: str, url: str, file_names: Container[str]) -> None:
    """Check that an `attachment://` URL names a file of the message.

    A file component accepts no other URL.

    Raises:
        DiscordError: 50035.
    """
    name = url.removeprefix("attachment://")
    if name == url and path.endswith("file.url"):
        message = "Scheme is not supported. Scheme must be one of ('attachment',)."
        raise create_form_error(path, "URL_TYPE_INVALID_SCHEME", message)
    if name != url and name not in file_names:
        message = f'The referenced attachment ("{url}") was not found'
        raise create_form_error(path, "UNFURLED_MEDIA_ITEM_REFERENCED_ATTACHMENT_NOT_FOUND", message)
