import time

import pytest

from channels import ttl_cache as remembered
from channels.ttl_cache import Remembered


def test_what_was_told_is_fresh_for_a_while_and_known_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    known = Remembered[str, str | None](10.0)
    assert (known.is_fresh("a"), known.get("a")) == (False, None)
    assert known.keep("a", "one") == "one"
    known.keep("b", None)
    assert (known.is_fresh("a"), known.get("a"), known.is_fresh("b")) == (True, "one", True)
    now += 10.0
    assert (known.is_fresh("a"), known.get("a")) == (False, "one")


def test_of_too_much_what_was_told_first_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST", 2)
    known = Remembered[int, int](10.0)
    for key in (1, 2, 2, 3):
        known.keep(key, key)
    assert [known.get(key) for key in (1, 2, 3)] == [None, 2, 3]
