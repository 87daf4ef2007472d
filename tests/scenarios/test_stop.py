"""Stop: the button and the command end a running answer; what is shown so far stays."""

from channels.i18n import messages as words
from chatrig.models import Pause, Say
from tests.scenarios.chat import list_buttons, wait_for_answers, wait_for_private_message, wait_for_texts
from tests.scenarios.conftest import StartBot

GROWING = [Say("Once"), Pause(60)]


async def test_only_the_author_stops_a_growing_answer(start: StartBot) -> None:
    async with start(GROWING) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts == ["Once"])
        await chat.press(words.STOP, user="grace")
        await wait_for_private_message(chat, words.STOP_NOT_ALLOWED, user="grace")
        await chat.press(words.STOP)
        await wait_for_answers(chat, f"Once\n\n{words.STOPPED}")
        assert words.REGENERATE in list_buttons(chat)[0]
        assert not chat.list_private_messages("ada")
