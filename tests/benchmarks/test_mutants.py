"""Mutants: descriptions that still apply after other changes of their module."""

import ast
from dataclasses import replace
from pathlib import Path

from benchmarks.mutants.__main__ import draw_mutants, redraw_missing
from benchmarks.mutants.mutations import apply_mutation, list_candidates

SOURCE = '''\
class Queue:
    def take(self, size: int = 3) -> list[str]:
        """Take items."""
        log.info("taking %s", size)
        if size > 3 and not self.closed:
            self.wake()
        return [item for item in self.items if item != f"a {size}"][: size + 1]
'''


def write_module(root: Path, text: str, name: str = "queues") -> Path:
    path = root / "core" / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_each_mutation_changes_the_module_and_leaves_it_valid(tmp_path: Path) -> None:
    path = write_module(tmp_path, SOURCE)
    for candidate in list_candidates(tmp_path):
        assert ast.dump(ast.parse(apply_mutation(candidate, SOURCE))) != ast.dump(ast.parse(SOURCE))
    assert path.read_text() == SOURCE


def test_a_mutation_without_source_is_drawn_again_from_its_successor(tmp_path: Path) -> None:
    mutations = [c.mutation for c in list_candidates(Path(__file__).parents[2])]
    mutants = draw_mutants(mutations)
    moved = replace(mutants[0].mutation, path="channels/gone.py", before="gone")
    (successor, *others) = redraw_missing([replace(mutants[0], mutation=moved), *mutants[1:]], mutations)
    assert successor.mutation.path.startswith("channels/")
    assert successor.mutation not in [mutant.mutation for mutant in mutants[1:]]
    assert others == mutants[1:]
