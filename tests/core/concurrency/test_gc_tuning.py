"""What is there at the start is never looked at again, and a cycle that came later is found at rest."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from core.concurrency import gc_tuning as garbage
from tests.conftest import THRESHOLDS


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


@pytest.mark.usefixtures("_as_before")
def test_what_stands_stays_and_what_a_turn_left_behind_goes() -> None:
    standing = Cycle()
    garbage.freeze_gc()
    assert not any(held is standing for held in gc.get_objects())
    left = weakref.ref(Cycle())
    garbage.collect_garbage()
    assert left() is None
    assert standing.itself is standing


@pytest.mark.usefixtures("_as_before")
def test_nothing_is_looked_through_while_a_process_starts() -> None:
    garbage.disable_gc()
    assert not gc.isenabled()
    garbage.freeze_gc()
    assert gc.isenabled()


@pytest.mark.usefixtures("_as_before")
def test_full_collections_are_rare_while_there_is_no_rest() -> None:
    before = THRESHOLDS
    garbage.freeze_gc()
    young, middle, full = gc.get_threshold()
    assert young * middle * full > 10 * before[0] * before[1] * before[2]
    assert young * middle < before[0] * before[1], "and the others are short"
