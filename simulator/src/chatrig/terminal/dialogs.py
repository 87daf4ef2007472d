"""Dialogs of the terminal client: a form that the bot opened, or a menu's options."""

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

from chatrig.client.forms import ClientField, ClientForm, InputKind
from chatrig.client.platform import ActionRefusedError
from chatrig.client.session import ChatSession

#: Examples in empty entries of a kind.
_EXAMPLES = {InputKind.DATE: "2026-01-31", InputKind.TIME: "09:30", InputKind.DATE_TIME: "2026-01-31 09:30"}


class FormScreen(ModalScreen[None]):
    """Dialog with the form that is open for the user.

    It closes once the bot accepts the form or the user cancels. If the bot refuses entries, it shows their errors.
    """

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

    def __init__(self, session: ChatSession, form: ClientForm) -> None:
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
        values = {field.id: _read_entry(self.query_one(f"#entry-{number}")) for number, field in enumerate(form.fields)}
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
        with suppress(ActionRefusedError):  # the form is closed already
            self._session.platform.close_form(self._session.user, self._form.id)
        self.dismiss()


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
    return Input(text, placeholder=_EXAMPLES.get(field.kind, field.hint), id=id_, compact=True)


def _read_entry(entry: Widget) -> list[str]:
    match entry:
        case SelectionList():
            return list(entry.selected)
        case Select():
            return [] if entry.is_blank() else [str(entry.value)]
        case TextArea():
            return [entry.text] if entry.text else []
        case Input():
            return [entry.value] if entry.value else []
    return []


class MenuScreen(ModalScreen[list[str] | None]):
    """Dialog with the options of a menu, or with a date or time picker.

    The result is the list of selected values, or None if the user cancels.
    """

    CSS = """
    MenuScreen { align: center middle; }
    MenuScreen > * { width: 60; max-width: 95%; height: auto; max-height: 90%; border: round $primary; }
    MenuScreen Button { margin: 1 0 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, menu: ClientField) -> None:
        super().__init__()
        self._menu = menu

    def compose(self) -> ComposeResult:
        menu = self._menu
        if menu.options and not menu.takes_several:
            choices = OptionList(*(Option(option.label) for option in menu.options), markup=False)
            choices.border_title = menu.label
            yield choices
        else:
            with Vertical() as box:
                box.border_title = menu.label
                yield _create_entry(menu, "entry")
                yield Button("Select", variant="primary", compact=True)

    @on(OptionList.OptionSelected)
    def _select_option(self, event: OptionList.OptionSelected) -> None:
        self.dismiss([self._menu.options[event.option_index].value])

    @on(Input.Submitted)
    @on(Button.Pressed)
    def _select_entry(self) -> None:
        self.dismiss(_read_entry(self.query_one("#entry")))
