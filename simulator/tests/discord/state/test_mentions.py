"""Mentions in texts of the local Discord, and the users and roles that they ping."""

from hypothesis import given
from hypothesis import strategies as st

from chatrig.discord.state.mentions import MessageMentions, parse_mentions, replace_ids

KNOWN = {"1", "2", "3"}
texts = st.lists(st.sampled_from(["<@1>", "<@!2>", "<@9>", "<@&7>", "@everyone", "@here", "<#1>", "word", "@1"])).map(
    " ".join
)


@given(texts)
def test_no_allowed_mentions_ping_nobody(text: str) -> None:
    assert parse_mentions(text, {"parse": []}, KNOWN, reply_to="3").pings == frozenset()


@given(texts, st.sets(st.sampled_from(["users", "roles", "everyone"])))
def test_allowed_mentions_ping_at_most_the_defaults(text: str, parse: set[str]) -> None:
    default = parse_mentions(text, None, KNOWN)
    allowed = parse_mentions(text, {"parse": sorted(parse)}, KNOWN)
    assert allowed.users == (default.users if "users" in parse else ())
    assert allowed.roles == (default.roles if "roles" in parse else ())
    assert allowed.everyone == (default.everyone if "everyone" in parse else frozenset())


@given(texts, st.sets(st.sampled_from(sorted(KNOWN))))
def test_listed_ids_ping_if_mentioned(text: str, listed: set[str]) -> None:
    default = parse_mentions(text, None, KNOWN)
    assert set(parse_mentions(text, {"users": sorted(listed)}, KNOWN).users) == listed & set(default.users)


def test_each_user_is_pinged_once_in_the_order_of_the_text() -> None:
    found = parse_mentions("<@2> <@1> <@!2> <@9> <@&7> <@&7> @here", None, KNOWN, reply_to="3")
    assert found == MessageMentions(("2", "1", "3"), ("7",), frozenset({"here"}))


def test_known_ids_are_shown_as_names() -> None:
    names = {"1": "Ada", "4": "general"}
    assert replace_ids("<@1> <@!1> <#4> <@9>", names) == "@Ada @Ada #general <@9>"
