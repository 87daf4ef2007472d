from dataclasses import replace
from xml.etree import ElementTree

from benchmarks.replies.cell import Cell
from benchmarks.replies.plot import plot

CELL = Cell(
    platform="slack",
    contender="Parley",
    replies=10,
    channels=5,
    ending="together",
    speed=4.0,
    calls=63,
    refused={"chat.update": 2, "chat.postMessage": 1},
    wrong=0,
    age=4.0,
    age_floor=2.0,
    end_mean=0.1,
    end_median=0.09,
    end_p99=0.2,
    end_mean_floor=0.05,
    end_median_floor=0.05,
    end_p99_floor=0.05,
    drain=0.93,
    cpu=0.4,
    late=0.004,
    busiest=0.03,
    word_late=0.001,
    seconds=33.0,
    failures={},
)
LOSER = replace(CELL, contender="Another's policy", wrong=3, end_median=None, end_p99=None, cpu=0.97)


def test_the_plot_is_an_svg_with_each_contender() -> None:
    drawn = plot([CELL, LOSER, replace(CELL, platform="discord")], "together")
    ElementTree.fromstring(drawn)
    assert all(name in drawn for name in ("Slack", "Discord", "Parley", "Another&#x27;s policy", "least possible"))
