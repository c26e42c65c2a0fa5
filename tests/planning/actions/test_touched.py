"""Conditions that name an element of which the action touches nothing but one value."""

from __future__ import annotations

from setwise.planning import ActionModel
from setwise.planning.actions import from_elements


def test_what_is_done_at_a_place_may_need_something_else_at_another() -> None:
    """A lamp is switched where the guard is one further; the guard is never touched by that."""
    states = [
        [("off", lamp), ("guard", guard), ("dog", dog)]
        for lamp, guard, dog in ((1, 2, 5), (1, 2, 6), (3, 4, 5), (3, 4, 6))
    ]
    after = [[("on", one[0][1]), *one[1:]] for one in states]
    model = ActionModel.learn(from_elements(states, after, ["what", "place"]), absent=False)
    state = model.symbols.state
    switched = state([("on", 1), ("guard", 2), ("dog", 5)])
    assert switched in model.successors(state([("off", 1), ("guard", 2), ("dog", 5)]))
    assert not model.successors(state([("off", 1), ("guard", 4), ("dog", 5)]))
    assert not model.successors(state([("off", 3), ("guard", 2), ("dog", 5)]))
    # The dog was here and there: it is not needed anywhere.
    assert model.successors(state([("off", 3), ("guard", 4)]))
