"""The order of the suite where several processes share it: what takes long is begun first.

Each process is given as many tests as the others, one after another of the list, and who has none
left takes from the end of what another has. So what takes long is to stand where a share begins:
at its end the others would wait for it, and a file that is shared out sets up its fixtures twice.
"""

from __future__ import annotations

from typing import TypeVar

Test = TypeVar("Test")

# Files whose tests, or what they set up, take longest.
LONGEST = (
    "planning/test_planning_cli.py",
    "executors/test_ray_cluster.py",
    "kernels/test_compiled.py",
    "attack/test_kill.py",
    "losses/test_sharded.py",
    "documents/test_examples.py",
    "attack/test_disk_full.py",
    "planning/test_starters.py",
    "kernels/test_panels.py",
    "extension/test_world.py",
    "demo/test_demo.py",
    "demo/test_demo_ends.py",
    "extension/test_own_files.py",
)


def longest_first(tests: list[tuple[str, Test]], processes: int) -> list[Test]:
    """Tests with the files that they are in, in the order in which so many processes run them."""
    long: list[list[Test]] = [[] for _ in range(processes)]
    for number, name in enumerate(LONGEST):
        long[number % processes] += [test for file, test in tests if file.endswith(f"/{name}")]
    others = [test for file, test in tests if not file.endswith(tuple(f"/{n}" for n in LONGEST))]
    ordered: list[Test] = []
    for number, own in enumerate(long):
        share = (len(tests) - len(ordered)) // (processes - number)
        more = share - len(own)
        ordered += [*own, *others[: max(0, more)]]
        del others[: max(0, more)]
    return ordered + others
