"""Examples of the README, as they stand there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"

pytest_plugins = ["pytester"]


def test_the_examples_of_the_readme_pass(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"^```python\n# (\w+\.py).*?\n(.*?)^```", README.read_text(), re.M | re.S)
    assert {name for name, _ in blocks} == {
        "test_bot.py",
        "bot.py",
        "test_more.py",
        "test_faults.py",
        "test_sign_in.py",
    }
    for name, code in blocks:
        (pytester.path / name).write_text(code)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=6)
