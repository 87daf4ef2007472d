"""Garbage collector settings that avoid stalls of the event loop.

A collection blocks the event loop while it visits every object of its generations: 0.5 to 1 ms for a thousand objects.
A running turn has some 400 objects of ADK, and ten more for each delta of its reply. A full collection (the third
generation) during 200 turns blocks the event loop for 50 to 170 ms. It frees little: reference counting frees a turn's
objects, except about a hundred of them, 10 kB.
"""

import gc

#: Threshold of the young generation: new objects minus freed ones. Python's default of 700 lets 20,000 young objects
#: gather when many turns begin at once, since freed old objects count against it.
_YOUNG_THRESHOLD = 400

#: Collections of the young generation per one of the middle generation. Python's default of 10 blocks the event loop
#: for 25 ms, this value for 15 ms.
_MIDDLE_THRESHOLD = 2

#: Collections of the middle generation per full one. With 200 turns, one comes every few minutes, after some 10 MB.
_FULL_THRESHOLD = 1000


def disable_gc() -> None:
    """Turn the garbage collector off until `freeze_gc`, while modules are imported.

    Imported objects are never garbage, and collections would take a fifth of the start time.
    """
    gc.disable()


def freeze_gc() -> None:
    """Turn the garbage collector on; it ignores all objects that exist now.

    It never frees the objects that exist now, even those that are garbage: 3,000 of 300,000 after the imports. It sets
    the thresholds of the process so that full collections are rare. Collecting the garbage first would take 0.3 s.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(_YOUNG_THRESHOLD, _MIDDLE_THRESHOLD, _FULL_THRESHOLD)
