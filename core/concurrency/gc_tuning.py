"""Garbage collector settings that avoid stalls of the event loop.

A collection stops the loop for as long as it takes to look at every object of its generations: 0.5 to 1 ms for a
thousand. A running turn holds some 400 objects of ADK's, and ten more for each delta of its reply. A full collection
(the third generation) amid 200 turns stops the loop for 50 to 170 ms. It frees little: a turn's objects are freed as
their references go, but for about a hundred objects, 10 kB.
"""

import gc

#: Threshold of the young generation: new objects minus freed ones. Python's default of 700 lets 20,000 young objects
#: gather when many turns begin at once, since freed old objects count against it.
_YOUNG = 400

#: Collections of the young generation per one of the middle generation. Python's 10 stalls the loop for 25 ms, this for
#: 15 ms.
_MIDDLE = 2

#: Collections of the middle generation per full one: a few minutes of 200 turns, and some 10 MB.
_ALL = 1000


def disable_gc() -> None:
    """Turn the garbage collector off until `freeze_gc`, while modules are imported.

    Imported objects stay: collections among them take a fifth of the start.
    """
    gc.disable()


def freeze_gc() -> None:
    """Exclude all present objects from collection, and make automatic full ones rare.

    Present garbage stays as well: 3,000 of 300,000 objects. To collect it first would take 0.3 s.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(_YOUNG, _MIDDLE, _ALL)
