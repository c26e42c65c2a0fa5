"""A rule learner that does not care what things are called.

Legend: K constants, P predicate classes, V variables of the head, n atoms of the body; ``*`` any
leading dimensions.

What a rule says does not depend on which constants it is about: with the constants renamed in its
head they are renamed in its body, and nothing else changes. A network with that symmetry treats all
constants alike (Zaheer et al., 2017), so that what it learns from one it knows of all.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from setwise.models.deep_sets import check_floats, check_size
from setwise.models.initialise import glorot


class EquivariantLayer(nn.Module):
    """[*, K, inputs] -> [*, K, outputs]: the same for each constant, which also sees their mean."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.each = nn.Linear(inputs, outputs)
        self.all = nn.Linear(inputs, outputs, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        together: Tensor = self.all(input.mean(dim=-2, keepdim=True))
        return together + self.each(input)


class EquivariantRuleLearner(nn.Module):
    """Heads [*, P + V K] -> logits [*, n, P + 2 K] of the bodies; see `setwise.data.RuleEncoding`.

    The constants are the elements that layers are equivariant to. What a layer reads of a constant
    is which arguments of the head it is, and the head's predicate.

    >>> learner = EquivariantRuleLearner(constants=5, arguments=3, atoms=2)
    >>> head = torch.rand(4, 2 + 3 * 5)
    >>> learner(head).shape
    torch.Size([4, 2, 12])

    Constants that change places in the head change places in the body:

    >>> swap = torch.tensor([1, 0, 2, 3, 4])
    >>> def renamed(blocks, count):
    ...     rest = blocks[..., 2:].unflatten(-1, (count, 5))[..., swap].flatten(-2)
    ...     return torch.cat([blocks[..., :2], rest], dim=-1)
    >>> torch.allclose(learner(renamed(head, 3)), renamed(learner(head), 2), atol=1e-5)
    True
    """

    def __init__(
        self,
        constants: int,
        arguments: int,
        atoms: int,
        predicates: int = 2,
        width: int = 64,
        hidden_layers: int = 2,
    ) -> None:
        super().__init__()
        sizes = {
            "constants": constants,
            "arguments": arguments,
            "atoms": atoms,
            "predicates": predicates,
            "width": width,
            "hidden_layers": hidden_layers,
        }
        for name, given in sizes.items():
            check_size(name, given)
        self.constants, self.arguments, self.atoms = constants, arguments, atoms
        self.predicates, self.inputs = predicates, predicates + arguments * constants
        widths = [predicates + arguments, *[width] * hidden_layers]
        self.hidden = nn.ModuleList(EquivariantLayer(*pair) for pair in pairwise(widths))
        self.choices = nn.Linear(width, 2 * atoms)
        self.relations = nn.Linear(width, predicates * atoms)
        glorot(self)

    def forward(self, input: Tensor) -> Tensor:
        check_floats("input", input, "[*, predicates + arguments * constants]", 1, self.inputs)
        predicate, arguments = input.split([self.predicates, self.inputs - self.predicates], -1)
        each = arguments.unflatten(-1, (self.arguments, self.constants)).mT
        h = torch.cat([predicate.unsqueeze(-2).expand(*each.shape[:-1], -1), each], dim=-1)
        for layer in self.hidden:
            h = layer(h).relu()
        relations = self.relations(h.mean(dim=-2)).unflatten(-1, (self.atoms, -1))
        choices = self.choices(h).mT.unflatten(-2, (self.atoms, 2)).flatten(-2)
        return torch.cat([relations, choices], dim=-1)
