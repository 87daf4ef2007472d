"""Screens over the messages: the form that the bot opened, and the options of a menu."""

from contextlib import suppress
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, OptionList, Select, SelectionList, Static, TextArea
from textual.widgets.option_list import Option

from sandbox.client.forms import ClientField, ClientForm, ClientMenu
from sandbox.client.platform import ActionRefusedError
from sandbox.client.session import ClientSession


class FormScreen(ModalScreen[None]):
    """Form that is open for the session's user; it closes once the bot accepts it."""

    CSS = """
    FormScreen { align: center middle; }
    #form { width: 72; max-width: 95%; height: auto; max-height: 95%; padding: 0 1; }
    #form { background: $surface; border: round $primary; }
    #fields { height: auto; max-height: 100%; }
    #form Static { height: auto; }
    #form .label { text-style: bold; margin-top: 1; }
    #form .about { color: $text-muted; }
    #form .error { color: $text-error; }
    #form TextArea { height: 5; }
    #form SelectionList { height: auto; max-height: 8; }
    #form Horizontal { height: auto; align-horizontal: right; margin-top: 1; }
    #form Button { margin-left: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, session: ClientSession, form: ClientForm) -> None:
        super().__init__()
        self._session = session
        self._form = form

    def compose(self) -> ComposeResult:
        form = self._form
        with Vertical(id="form") as box:
            box.border_title = form.title
            with VerticalScroll(id="fields", can_focus=False):
                if form.text:
                    yield Static(form.text, markup=False)
                for number, field in enumerate(form.fields):
                    yield Static(
                        field.label if field.is_required else f"{field.label} (optional)", classes="label", markup=False
                    )
                    yield _create_entry(field, f"entry-{number}")
                    if field.description:
                        yield Static(field.description, classes="about", markup=False)
                    if field.error:
                        yield Static(field.error, classes="error", markup=False)
            yield Static(id="refusal", classes="error", markup=False)
            with Horizontal():
                yield Button(form.close_label, id="cancel", compact=True)
                if form.submit_label:
                    yield Button(form.submit_label, id="submit", variant="primary", compact=True)

    @on(Input.Submitted)
    @on(Button.Pressed, "#submit")
    @work(exclusive=True)
    async def _submit(self) -> None:
        platform, user, form = self._session.platform, self._session.user, self._form
        values = {field.id: self._read_entry(number) for number, field in enumerate(form.fields)}
        try:
            await platform.submit_form(user, form.id, values)
        except ActionRefusedError as refusal:
            self.query_one("#refusal", Static).update(str(refusal))
            return
        remaining = platform.find_form(user)
        if remaining is None or remaining.id != form.id:
            self.dismiss()
            return
        self._form = remaining
        await self.recompose()

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        with suppress(ActionRefusedError):  # it is closed
            self._session.platform.close_form(self._session.user, self._form.id)
        self.dismiss()

    def _read_entry(self, number: int) -> list[str]:
        entry = self.query_one(f"#entry-{number}")
        match entry:
            case SelectionList():
                return list(entry.selected)
            case Select():
                return [] if entry.is_blank() else [str(entry.value)]
            case TextArea():
                text = entry.text
            case _:
                text = self.query_one(f"#entry-{number}", Input).value
        return [text] if text else []


def _create_entry(field: ClientField, id_: str) -> Widget:
    options = [(option.label, option.value) for option in field.options]
    text = field.values[0] if field.values else ""
    if field.takes_several:
        return SelectionList[str](*((label, value, value in field.values) for label, value in options), id=id_)
    if field.options:
        prompt = field.hint or "Choose an option"
        return Select[str](options, prompt=prompt, value=text or Select.NULL, id=id_, compact=True)
    if field.is_multiline:
        return TextArea(text, id=id_, compact=True, placeholder=field.hint)
    return Input(text, placeholder=field.hint, id=id_, compact=True)


class MenuScreen(ModalScreen[str | None]):
    """Options of a menu; the result is the value of the selected one, or None."""

    CSS = """
    MenuScreen { align: center middle; }
    MenuScreen OptionList { width: 60; max-width: 95%; height: auto; max-height: 90%; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, menu: ClientMenu) -> None:
        super().__init__()
        self._menu = menu

    def compose(self) -> ComposeResult:
        choices = OptionList(*(Option(option.label) for option in self._menu.options), markup=False)
        choices.border_title = self._menu.label
        yield choices

    @on(OptionList.OptionSelected)
    def _select_option(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._menu.options[event.option_index].value)
