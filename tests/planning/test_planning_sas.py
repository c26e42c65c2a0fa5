"""SAS+ text against a hand-written task, a plain reader, and a plain search over what it says."""

from __future__ import annotations

import io
from collections import deque
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from setwise.planning import Encoding, identifying_bits, latent_graph, sas

ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
BOTH_WAYS = [[0, 1], [1, 0]]

TWO_STATES = """\
begin_version
3
end_version
begin_metric
0
end_metric
3
begin_variable
z0
-1
2
Atom z0(0)
Atom z0(1)
end_variable
begin_variable
z1
-1
2
Atom z1(0)
Atom z1(1)
end_variable
begin_variable
z2
-1
2
Atom z2(0)
Atom z2(1)
end_variable
0
begin_state
1
1
0
end_state
begin_goal
3
0 0
1 1
2 1
end_goal
2
begin_operator
t0
1
1 1
2
0 0 0 1
0 2 1 0
1
end_operator
begin_operator
t1
1
1 1
2
0 0 1 0
0 2 0 1
1
end_operator
0
"""
# The same in other variables: one bit tells the codes apart; the number of a code has two digits.
ONE_BIT = """\
1
begin_variable
z0
-1
2
Atom z0(0)
Atom z0(1)
end_variable
0
begin_state
1
end_state
begin_goal
1
0 0
end_goal
2
begin_operator
t0
0
1
0 0 0 1
1
end_operator
"""
TWO_DIGITS = """\
begin_operator
t0
1
0 0
1
0 1 0 1
1
end_operator
"""


def write(
    path: Path, graph: sas.LatentGraph, encoding: Encoding, init: int, goal: int, **options: int
) -> str:
    variables = sas.variables_of(graph, encoding)
    operators = path / "operators"
    with operators.open("wb") as file:
        sas.write_operators(file, variables, graph.edges, **options)
    task = path / "task.sas"
    sas.write_task(task, variables, operators, len(graph.edges), init, goal)
    return task.read_text()


def test_two_states(tmp_path: Path) -> None:
    codes = np.array([[1, 1, 0], [0, 1, 1]], dtype=bool)
    graph = latent_graph(codes, BOTH_WAYS)
    assert graph.node_of.tolist() == [1, 0]
    assert write(tmp_path, graph, "full", 1, 0) == TWO_STATES
    assert ONE_BIT in write(tmp_path, graph, "bits", 1, 0)
    assert TWO_DIGITS in write(tmp_path, graph, "index", 1, 0)


Operator = tuple[dict[int, int], dict[int, tuple[int, int]]]  # kept, changed


def read_sas(text: str) -> tuple[list[int], dict[int, int], dict[str, Operator]]:
    """The oracle: a reader of SAS+, line by line: the init, the goal and the operators."""
    lines = iter(text.splitlines())

    def expect(line: str) -> None:
        assert next(lines) == line

    for line in ("begin_version", "3", "end_version", "begin_metric", "0", "end_metric"):
        expect(line)
    sizes = []
    for _ in range(int(next(lines))):
        expect("begin_variable")
        next(lines)
        expect("-1")
        sizes.append(int(next(lines)))
        assert len({next(lines) for _ in range(sizes[-1])}) == sizes[-1]
        expect("end_variable")
    expect("0")
    expect("begin_state")
    init = [int(next(lines)) for _ in sizes]
    expect("end_state")
    expect("begin_goal")
    goal = dict(_ints(next(lines)) for _ in range(int(next(lines))))
    expect("end_goal")
    operators: dict[str, Operator] = {}
    for _ in range(int(next(lines))):
        expect("begin_operator")
        name = next(lines)
        kept = dict(_ints(next(lines)) for _ in range(int(next(lines))))
        changed = {}
        for _ in range(int(next(lines))):
            conditions, variable, before, after = _ints(next(lines))
            assert conditions == 0
            assert before != after
            assert max(before, after) < sizes[variable]
            changed[variable] = (before, after)
        expect("1")
        expect("end_operator")
        assert not kept.keys() & changed.keys()
        assert len(kept) + len(changed) == len(sizes)
        assert name not in operators
        operators[name] = (kept, changed)
    expect("0")
    assert list(lines) == []
    return init, goal, operators


def _ints(line: str) -> list[int]:
    return [int(word) for word in line.split(" ")]


def cost_of(text: str) -> int | None:
    """Breadth-first over a task as its text says."""
    init, goal, operators = read_sas(text)
    depth = {tuple(init): 0}
    waiting = deque(depth)
    while waiting:
        state = waiting.popleft()
        if all(state[variable] == value for variable, value in goal.items()):
            return depth[state]
        for kept, changed in operators.values():
            before = kept | {variable: pair[0] for variable, pair in changed.items()}
            if all(state[variable] == value for variable, value in before.items()):
                after = list(state)
                for variable, (_, value) in changed.items():
                    after[variable] = value
                if tuple(after) not in depth:
                    depth[tuple(after)] = depth[state] + 1
                    waiting.append(tuple(after))
    return None


def plain_cost(codes: list[list[bool]], steps: list[list[int]]) -> int | None:
    """From the code of state 0 to that of state 1, on the codes themselves."""
    names = [tuple(code) for code in codes]
    depth, waiting = {names[0]: 0}, deque([names[0]])
    while waiting:
        here = waiting.popleft()
        for before, after in steps:
            if names[before] == here and names[after] not in depth:
                depth[names[after]] = depth[here] + 1
                waiting.append(names[after])
    return depth.get(names[1])


@st.composite
def latent_spaces(draw: st.DrawFn) -> tuple[list[list[bool]], list[list[int]]]:
    """A few states, of which some may share a code, and steps between them."""
    bits = draw(st.integers(2, 12))
    code = st.lists(st.booleans(), min_size=bits, max_size=bits)
    codes = draw(st.lists(code, min_size=2, max_size=12))
    state = st.integers(0, len(codes) - 1)
    steps = draw(st.lists(st.lists(state, min_size=2, max_size=2), max_size=30))
    return codes, steps


@given(space=latent_spaces(), chunk=st.sampled_from([1, 300, 2**20]))
def test_all_encodings_cost_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    space: tuple[list[list[bool]], list[list[int]]],
    chunk: int,
) -> None:
    codes, steps = space
    transitions = np.array(steps, dtype=np.int64).reshape(-1, 2)
    graph = latent_graph(np.array(codes), transitions)
    init, goal = graph.node_of[:2].tolist()
    path = tmp_path_factory.mktemp("sas")
    costs = {
        encoding: cost_of(write(path, graph, encoding, init, goal, chunk_bytes=chunk))
        for encoding in ENCODINGS
    }
    assert set(costs.values()) == {plain_cost(codes, steps)}


def test_every_step_is_one_operator() -> None:
    random = np.random.default_rng(0)
    codes = random.integers(0, 2, (300, 37)).astype(bool)
    graph = latent_graph(codes, random.integers(0, 300, (1100, 2)))
    for encoding in ENCODINGS:
        variables = sas.variables_of(graph, encoding)
        file = io.BytesIO()
        sas.write_operators(file, variables, graph.edges, chunk_bytes=5000)
        head = sas._head(variables, 0, 1, len(graph.edges)).decode()
        _, _, operators = read_sas(head + file.getvalue().decode() + "0\n")
        assert len(operators) == len(graph.edges)
        for name, (kept, changed) in operators.items():
            before, after = variables.values[graph.edges[sas.step_of(name)]].tolist()
            assert kept == {v: x for v, x in enumerate(before) if x == after[v]}
            assert changed == {v: (x, after[v]) for v, x in enumerate(before) if x != after[v]}


def test_pairs_of_codes_are_states_and_transitions() -> None:
    random = np.random.default_rng(1)
    codes = random.integers(0, 2, (20, 9)).astype(bool)
    transitions = random.integers(0, 20, (60, 2))
    one = latent_graph(codes, transitions)
    two = latent_graph(codes[transitions])
    steps = {(before.tobytes(), after.tobytes()) for before, after in one.codes[one.edges]}
    same = {(before.tobytes(), after.tobytes()) for before, after in two.codes[two.edges]}
    assert steps == same
    assert len(steps) == len(one.edges) == len(two.edges)


def test_the_graph_does_not_depend_on_the_order_of_the_states() -> None:
    random = np.random.default_rng(2)
    codes = random.integers(0, 2, (200, 130)).astype(bool)  # more than two words of 64 bits
    codes[:, :70] = False  # so that the first word tells nothing
    codes[100:] = codes[:100]
    transitions = random.integers(0, 200, (500, 2))
    order = random.permutation(200)
    one = latent_graph(codes, transitions)
    two = latent_graph(codes[order], order.argsort()[transitions])
    assert np.array_equal(one.codes, two.codes)
    assert np.array_equal(one.edges, two.edges)
    assert one.codes.tolist() == sorted(codes[:100].tolist())
    assert np.array_equal(one.codes[one.node_of], codes)
    assert (one.states_per_node() == 2).all()
    assert (one.edges[:, 0] != one.edges[:, 1]).all()
    assert one.nearest(codes[3]) == (one.node_of[3], 0)
    flipped = codes[3].copy()
    flipped[[5, 120]] ^= True
    assert one.nearest(flipped) == (one.node_of[3], 2)


@given(codes=st.sets(st.integers(0, 2**10 - 1), min_size=1, max_size=60))
def test_identifying_bits_tell_all_codes_apart(codes: set[int]) -> None:
    rows = np.array(sorted(codes))[:, None] >> np.arange(10) & 1
    bits = identifying_bits(rows.astype(bool))
    assert len(np.unique(rows[:, bits], axis=0)) == len(codes)
    assert 1 <= len(bits) <= max(1, len(codes) - 1)
    assert bits.tolist() == sorted(set(bits.tolist()))


def test_identifying_bits_are_few() -> None:
    codes = np.random.default_rng(0).integers(0, 2, (5000, 100)).astype(bool)
    assert len(identifying_bits(codes)) <= 20  # 13 are needed at least
    with pytest.raises(ValueError, match="distinct"):
        identifying_bits(codes[[0, 1, 0]])


def test_tensors_do_as_well_as_arrays() -> None:
    codes = torch.tensor([[True, False], [False, True]])
    graph = latent_graph(codes, torch.tensor(BOTH_WAYS))
    assert graph.edges.tolist() == BOTH_WAYS


@pytest.mark.parametrize(
    ("codes", "transitions", "error", "message"),
    [
        (np.zeros((2, 3)), BOTH_WAYS, TypeError, "^codes: expected booleans, got float64"),
        (np.zeros((2, 3), bool), None, ValueError, r"^codes: .* \[transitions, 2, bits\]"),
        (np.zeros((0, 3), bool), BOTH_WAYS, ValueError, r"^codes: .* got \(0, 3\)"),
        (np.zeros((2, 3), bool), [[0, 2]], ValueError, "^transitions: .* 2 states, got 0 to 2"),
        (np.zeros((2, 3), bool), [[-1, 1]], ValueError, "^transitions: .* got -1 to 1"),
        (np.zeros((2, 3), bool), [0, 1], ValueError, r"^transitions: .* got \(2,\)"),
        (np.zeros((2, 3), bool), [[0.0, 1.0]], TypeError, "^transitions: .* got float64"),
    ],
)
def test_bad_spaces_are_refused(
    codes: object, transitions: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        latent_graph(codes, transitions)  # type: ignore[arg-type]


def test_other_bad_calls() -> None:
    graph = latent_graph(np.eye(2, dtype=bool), BOTH_WAYS)
    with pytest.raises(ValueError, match=r"^encoding: .*'full', 'bits', 'index'.* got 'short'"):
        sas.variables_of(graph, "short")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^code: expected 2 booleans, got bool"):
        graph.nearest(np.zeros(3, dtype=bool))
    for name in ("t", "t-1", "x3", "t1.5", ""):
        with pytest.raises(ValueError, match=r"^operator: expected t0"):
            sas.step_of(name)
