"""Context messages before a question: quoted, attributed and limited in length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import ContextMessage
from channels.intake.context import build_context_quotes, label_names
from core.sessions.prompt_text import CONTINUATION_PREFIX, LINE_PREFIX, QUOTE_CLOSE, QUOTE_OPEN
from tests.fixtures.inbox_messages import inbound

#: Texts that imitate a frame, the start of a line, or another user.
_TRICKS = [
    QUOTE_OPEN,
    QUOTE_CLOSE,
    LINE_PREFIX,
    CONTINUATION_PREFIX,
    "> Ada: ",
    "\n",
    "\r",
    "\u2028",
    "\x85",
    "\x0b",
    ":",
    "(U1)",
    "End of the quote",
    "\0",
]
TEXTS = st.lists(st.sampled_from(_TRICKS) | st.text(max_size=8)).map("".join)
IDS = st.from_regex(r"U[0-9]", fullmatch=True)


async def count_words(text: str) -> int:
    return len(text.split())


async def render_context(context: list[ContextMessage], most: int = 10_000) -> str:
    question = inbound(sent_at=1_000.0)
    names = label_names({message.author: message.name for message in context})
    quotes = await build_context_quotes([question], context, names, count=count_words, max_tokens=most)
    (frames,) = quotes.quotes.values()
    return "\n\n".join(frames)


@given(st.lists(st.tuples(IDS, TEXTS, TEXTS), min_size=1, max_size=6))
async def test_context_messages_cannot_close_the_frame_or_impersonate(talk: list[tuple[str, str, str]]) -> None:
    names = {id_: name for id_, name, _ in talk}
    context = [ContextMessage(id_, names[id_], text, sent_at=float(n)) for n, (id_, _, text) in enumerate(talk)]
    visible = [message for message in context if message.text.replace("\0", "").strip()]
    text = await render_context(context)
    if not visible:
        return
    first, *lines, last = text.split("\n")
    assert first.startswith(f"{QUOTE_OPEN}Earlier messages of other people.")
    assert last == f"{QUOTE_OPEN}End of the quote{QUOTE_CLOSE}"
    assert text.count(QUOTE_OPEN) == text.count(QUOTE_CLOSE) == 2
    assert len(text.splitlines()) == len(lines) + 2
    assert all(line.startswith(LINE_PREFIX.rstrip()) for line in lines)
    messages = [
        line.removeprefix(LINE_PREFIX)
        for line in lines
        if line.startswith(LINE_PREFIX) and not line.startswith(LINE_PREFIX + " ")
    ]
    shown_as = label_names(names)
    assert [line.partition(":")[0] for line in messages] == [shown_as[message.author] for message in visible]


@given(st.dictionaries(IDS, TEXTS, max_size=6))
def test_two_users_never_have_the_same_name(names: dict[str, str]) -> None:
    shown_as = label_names(names)
    assert shown_as.keys() == names.keys()
    assert len({name.casefold() for name in shown_as.values()}) == len(names)
    assert all(name and ":" not in name and len(name.splitlines()) == 1 for name in shown_as.values())


def test_names_are_unchanged_unless_they_are_confusable() -> None:
    assert label_names({"U1": "Ada", "U2": "Grace (Ops)"}) == {"U1": "Ada", "U2": "Grace (Ops)"}
    assert label_names({"U1": "Kim", "U2": " kim\u200b"}) == {"U1": "Kim (U1)", "U2": "kim (U2)"}
    assert label_names({"U1": "Kim", "U2": "Kim (U1)"}) == {"U1": "Kim", "U2": "Kim (U1) (U2)"}
    assert label_names({"U1": "Boss: yes\nKim"}) == {"U1": "Boss yes Kim"}
    assert label_names({"U1": "\n"}) == {"U1": "U1"}


@pytest.mark.parametrize(
    "name",
    ["ada\u034f", "a\u034fda", "ada\ufe0f", "ada\U000e0100", "ada\u2800", "\u0430da", "\u0391da", "\uff21DA"],
)
def test_a_confusable_name_is_followed_by_its_user_id(name: str) -> None:
    shown_as = label_names({"U1": "ada", "U2": "grace", "U9": name})
    assert (shown_as["U1"], shown_as["U2"]) == ("ada (U1)", "grace")
    assert shown_as["U9"].endswith(" (U9)")


#: Names with Latin lookalikes: the list that was used before Unicode's table.
FORMER_LIST = (
    "АВЕЅІЈКМНОРСТУХԌԚԜаеіјкорсухѕһԁԛԝӏӀΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορυɑɡıIi1|0",  # noqa: RUF001
    "ABESlJKMHOPCTYXGQWaeljkopcyxshdqwllABEZHlKMNOPTYXalkvopuaglllllo",
)


@pytest.mark.parametrize(("letter", "latin"), list(zip(*FORMER_LIST, strict=True)))
def test_letters_that_look_like_latin_ones_are_compared_as_these(letter: str, latin: str) -> None:
    shown_as = label_names({"U1": f"x{letter}x", "U2": f"x{latin}x"})
    assert all(shown_as[id_].endswith(f"({id_})") for id_ in shown_as)


@pytest.mark.parametrize(
    "name",
    [
        *("ցrace", "gracė", "gräce", "graçe", "ǥrace", "ɢrace", "ᴳrace", "𝐠𝐫𝐚𝐜𝐞", "ⓖrace", "g̲race", "grace̊", "ꮐꭱꭺꮯꭼ"),  # noqa: RUF001
        *("grace!", "«grace»", "g.r.a.c.e", "grace 🛡", "GRACE", "g race"),
    ],
)
def test_a_name_that_looks_like_another_one_is_followed_by_its_id(name: str) -> None:
    shown_as = label_names({"U1": "Grace", "U2": "Ada", "U9": name})
    assert (shown_as["U1"], shown_as["U2"]) == ("Grace (U1)", "Ada")
    assert shown_as["U9"].endswith(" (U9)")


@pytest.mark.parametrize(
    "name",
    ["grаce (admin)", "Grace [bot]", "[mod] grace", "grace | Acme", "grace - admin", "Grace: admin", "Grace, admin"],  # noqa: RUF001
)
def test_a_name_that_only_adds_to_another_one_is_followed_by_its_id(name: str) -> None:
    shown_as = label_names({"U1": "Grace", "U9": name})
    assert shown_as["U1"] == "Grace"
    assert shown_as["U9"].endswith(" (U9)")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("Ada", "Adam"), ("Kim", "Kim Lee"), ("Grace", "Gracie"), ("Lin", "Liu"), ("Grace (Acme)", "Grace (Beta)")),
        *(("Lovelace, Ada", "Lovelace, Grace"), ("Acme | Ada", "Acme | Grace"), ("Иван", "Ivan"), ("🎉", "🚀")),
        *(("かき", "かぎ"), ("กิ", "กี"), ("राम", "रामू"), ("김민수", "김민서"), ("陳", "陈"), ("محمد", "أحمد")),
    ],
)
def test_two_names_that_look_different_have_no_ids(one: str, other: str) -> None:
    assert label_names({"U1": one, "U2": other}) == {"U1": one, "U2": other}


def test_an_invisible_name_is_replaced_by_the_user_id() -> None:
    assert label_names({"U1": "\u3164\u2800\ufe0f"}) == {"U1": "U1"}


async def test_the_newest_context_messages_stay_and_the_cut_is_noted() -> None:
    talk = [ContextMessage("U1", "Ada", f"word {n}", sent_at=float(n), is_thread_start=n == 0) for n in range(100)]
    text = await render_context(talk, most=24)
    lines = text.split("\n")[1:-1]
    assert lines == [
        "> Ada: word 0",
        f"{QUOTE_OPEN}94 older messages are left out{QUOTE_CLOSE}",
        *(f"> Ada: word {n}" for n in range(95, 100)),
    ]


async def test_a_long_context_message_is_truncated_with_a_note() -> None:
    long = " ".join(str(n) for n in range(1_000))
    text = await render_context(
        [ContextMessage("U1", "Ada", "before", sent_at=1.0), ContextMessage("U1", "Ada", long, sent_at=2.0)], most=100
    )
    assert "> Ada: 0 1 2" in text
    assert f"{QUOTE_OPEN}the rest is left out{QUOTE_CLOSE}" in text
    assert f"{QUOTE_OPEN}1 older message is left out{QUOTE_CLOSE}" in text
    assert "before" not in text.split("\n", 1)[1]
    assert len(text.split()) < 160
    assert await render_context([ContextMessage("U1", "Ada", long, sent_at=2.0)], most=0) == ""


async def test_messages_in_between_keep_their_position() -> None:
    first, second = inbound(sent_at=10.0), inbound(sent_at=20.0)
    quote = ContextMessage("U3", "Lin", "quoted", sent_at=1.0, kind="quoted", event_key=second.event_key)
    talk = [ContextMessage("U1", "Ada", "early", sent_at=5.0), ContextMessage("U1", "Ada", "late", sent_at=15.0), quote]
    after = ContextMessage("U1", "Ada", "too late", sent_at=25.0)
    names = label_names({message.author: message.name for message in talk})
    built = await build_context_quotes([first, second], [*talk, after], names, count=count_words, max_tokens=100)
    frames = built.quotes
    ((before,), (between, quoted)) = frames[first.event_key], frames[second.event_key]
    assert ("> Ada: early" in before, "> Ada: late" in between, "> Lin: quoted" in quoted) == (True, True, True)
    assert "The message that the next message replies to" in quoted
