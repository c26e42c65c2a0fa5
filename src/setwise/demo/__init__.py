"""The demonstration: two networks learn sets, a planner uses one of them, a page shows it."""

from setwise.demo.learn import Learned, learn
from setwise.demo.solve import Solved, solve

__all__ = ["Learned", "Solved", "learn", "solve"]
