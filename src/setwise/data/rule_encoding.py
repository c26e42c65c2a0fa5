"""Ground clauses as vectors: the head a network reads and the set of body atoms it produces.

Legend: C clauses, n atoms in the body, V variables of the head, K constants, P predicate classes.

As in the paper, a head is a one-hot predicate and a one-hot constant for each argument, [P + V K],
and each element of the body a one-hot predicate and two one-hot constants, [P + 2 K]. For
neighbor-n over 163 countries that is 2 + 163 (n + 1) and n x 328.

The paper has P = 2 and does not name the two classes. Here head and body share one vocabulary: the
relations of the body in order of appearance, then the head's predicate. For neighbor-n these are
neighbor and neighbor-n, thus 2; in general P is the number of different predicates of the rule,
though at least 2 (a recursive rule may have a single one; the class left over is then unused).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from setwise.data.knowledge import KnowledgeBase
from setwise.data.rules import Rule
from setwise.data.terms import constant, read_term
from setwise.features import Categorical, Features

_UNUSED = "no predicate"


@dataclass(frozen=True)
class RuleEncoding:
    """The vectors of one rule's ground clauses over one knowledge base.

    The constants are all those of the knowledge base; ``kb.only("neighbor")`` leaves out the ones
    that other relations brought along.

    >>> from setwise.data.rules import chain_rule
    >>> kb = KnowledgeBase.parse("near(a,b).\\nnear(b,c).", symmetric=["near"])
    >>> encoding = RuleEncoding(chain_rule("near", 2), kb)
    >>> clauses = encoding.rule.ground(kb)
    >>> encoding.heads(clauses).shape, encoding.bodies(clauses).shape
    (torch.Size([2, 11]), torch.Size([2, 2, 8]))
    >>> encoding.read_body(encoding.bodies(clauses)[0])
    ['near(a,b)', 'near(b,c)']
    >>> encoding.read_head("near2(a,b,c)").equal(encoding.heads(clauses)[0])
    True
    """

    rule: Rule
    kb: KnowledgeBase

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule) or not isinstance(self.kb, KnowledgeBase):
            given = f"{type(self.rule).__name__} and {type(self.kb).__name__}"
            raise TypeError(f"RuleEncoding: expected a Rule and a KnowledgeBase, got {given}")
        for atom in self.rule.body:
            self.kb.pairs(atom.relation)  # complains about relations that are not there
        if len(self.kb.constants) < 2:
            raise ValueError("RuleEncoding: the knowledge base needs at least 2 constants")

    @property
    def predicates(self) -> tuple[str, ...]:
        """The names of the P predicate classes."""
        relations = (atom.relation for atom in self.rule.body)
        names = tuple(dict.fromkeys([*relations, self.rule.predicate]))
        return names if len(names) >= 2 else (*names, _UNUSED)

    @property
    def head_width(self) -> int:
        """P + V K."""
        return len(self.predicates) + len(self.rule.head) * len(self.kb.constants)

    def features(self, scored_as: Literal["categorical", "bernoulli"] = "categorical") -> Features:
        """What an element of the body is, for the losses: P classes, K classes, K classes."""
        K = len(self.kb.constants)
        widths = (len(self.predicates), K, K)
        return Features(*(Categorical(width, scored_as=scored_as) for width in widths))

    def heads(self, clauses: NDArray[np.int64]) -> Tensor:
        """The heads of clauses [C, variables] as from ``rule.ground``: [C, P + V K]."""
        clauses = self._check(clauses)
        C, V = len(clauses), len(self.rule.head)
        predicate = self._predicate(self.rule.predicate).expand(C, -1)
        arguments = _one_hot(torch.from_numpy(clauses[:, :V]), len(self.kb.constants))
        return torch.cat([predicate, arguments.flatten(1)], dim=1)

    def bodies(self, clauses: NDArray[np.int64]) -> Tensor:
        """The bodies of clauses [C, variables], in the order of the rule: [C, n, P + 2 K]."""
        clauses = self._check(clauses)
        body, column = self.rule.body, self.rule.variables.index
        predicates = torch.stack([self._predicate(atom.relation) for atom in body])
        arguments = [[column(atom.first), column(atom.second)] for atom in body]
        constants = _one_hot(torch.from_numpy(clauses[:, arguments]), len(self.kb.constants))
        return torch.cat([predicates.expand(len(clauses), -1, -1), constants.flatten(2)], dim=2)

    def read_head(self, text: str) -> Tensor:
        """The vector [P + V K] of a head in words: ``neighbor2(austria,germany,belgium)``."""
        predicate, arguments = read_term(text)
        rule = self.rule
        if predicate != rule.predicate or len(arguments) != len(rule.head):
            raise ValueError(
                f"{text}: expected {rule.predicate} with {len(rule.head)} arguments, as in "
                f"{rule}, got {predicate} with {len(arguments)}"
            )
        constants = [self.kb.index(constant(token)) for token in arguments]
        hot = _one_hot(torch.tensor(constants), len(self.kb.constants))
        return torch.cat([self._predicate(predicate), hot.flatten()])

    def read_body(self, elements: Tensor) -> list[str]:
        """The atoms in words of body elements [N, P + 2 K], after ``features().discretise``."""
        if not isinstance(elements, Tensor):
            raise TypeError(f"elements: expected a torch.Tensor, got {type(elements).__name__}")
        if elements.dim() != 2:
            raise ValueError(
                f"elements: expected one body, shape [elements, features], got "
                f"{tuple(elements.shape)}"
            )
        blocks = self.features().split(elements)
        for block in blocks:
            if not bool(((block == 0) | (block == 1)).all() and (block.sum(-1) == 1).all()):
                raise ValueError(
                    "elements: expected one-hot blocks; turn logits into such by "
                    "features().discretise(logits)"
                )
        classes = torch.stack([block.argmax(-1) for block in blocks], dim=1).tolist()
        return [self.kb.atom(self.predicates[p], first, second) for p, first, second in classes]

    def holds(self, atom: str) -> bool:
        """Whether an atom as from `read_body` is a fact; one of the head's predicate never is."""
        predicate = read_term(atom).predicate
        if predicate in self.predicates and predicate not in self.kb.facts:
            return False
        return self.kb.holds(atom)

    def _predicate(self, name: str) -> Tensor:
        index = torch.tensor(self.predicates.index(name))
        return _one_hot(index, len(self.predicates))

    def _check(self, clauses: NDArray[np.int64]) -> NDArray[np.int64]:
        clauses = np.asarray(clauses)
        names, K = self.rule.variables, len(self.kb.constants)
        if clauses.ndim != 2 or clauses.shape[1] != len(names) or clauses.dtype.kind not in "iu":
            raise ValueError(
                f"clauses: expected integers of shape [clauses, {len(names)}] for the variables "
                f"{', '.join(names)}, got {clauses.dtype} of shape {clauses.shape}"
            )
        if clauses.size and not 0 <= clauses.min() <= clauses.max() < K:
            raise ValueError(
                f"clauses: constants must lie between 0 and {K - 1}, got {clauses.min()} to "
                f"{clauses.max()}; were they made from another knowledge base?"
            )
        return clauses.astype(np.int64)


def _one_hot(index: Tensor, width: int) -> Tensor:
    return torch.zeros(*index.shape, width).scatter_(-1, index.unsqueeze(-1), 1.0)
