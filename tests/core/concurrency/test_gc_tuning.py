"""Garbage collector settings: frozen start-up objects, and rare full runs."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from core.concurrency import gc_tuning as garbage
from tests.conftest import GC_THRESHOLDS


class ReferenceCycle:
    def __init__(self) -> None:
        self.reference = self


@pytest.fixture
def _restored_gc() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


@pytest.mark.usefixtures("_restored_gc")
def test_frozen_objects_stay_and_later_cycles_are_collected() -> None:
    standing = ReferenceCycle()
    garbage.freeze_gc()
    assert not any(tracked is standing for tracked in gc.get_objects())
    reference = weakref.ref(ReferenceCycle())
    gc.collect()
    assert reference() is None
    assert standing.reference is standing


@pytest.mark.usefixtures("_restored_gc")
def test_no_collection_runs_while_a_process_starts() -> None:
    garbage.disable_gc()
    assert not gc.isenabled()
    garbage.freeze_gc()
    assert gc.isenabled()


@pytest.mark.usefixtures("_restored_gc")
def test_full_collections_are_rare() -> None:
    before = GC_THRESHOLDS
    garbage.freeze_gc()
    young, middle, full = gc.get_threshold()
    assert young * middle * full > 10 * before[0] * before[1] * before[2]
    assert young * middle < before[0] * before[1], "and the others are short"
