"""The fully connected decoder: from one vector to the elements of a set.

Legend: B examples, N elements, F features; ``*`` any leading dimensions.
"""

from __future__ import annotations

from torch import Tensor, nn

from setwise.features import Features
from setwise.models.deep_sets import check_floats, check_size, width_of
from setwise.models.initialise import glorot


class SetDecoder(nn.Module):
    """Vectors [*, inputs] -> logits [*, size, features].

    ``hidden_layers`` times a linear layer of ``width``, ReLU, batch normalisation and dropout, then
    a linear layer to ``size * features``. The defaults are the decoder of the Set Cross Entropy
    paper; with ``width=400`` it is the paper's network for rule learning, from the head of a rule
    to the set of its body. The logits belong to any `setwise.Features`: softmax or sigmoid are the
    business of the loss. With ``presence`` there is one more number for each element, the last: the
    logit that it exists, as every loss and metric takes it.

    In training, batch normalisation takes its statistics over all leading dimensions together and
    needs at least two examples.

    >>> import torch
    >>> decoder = SetDecoder(inputs=6, size=3, features=4, width=16)
    >>> decoder(torch.rand(5, 6)).shape
    torch.Size([5, 3, 4])
    >>> unsure = SetDecoder(inputs=6, size=3, features=4, width=16, presence=True)
    >>> logits, presence = unsure(torch.rand(5, 6)).split([4, 1], dim=-1)
    >>> logits.shape, presence.squeeze(-1).shape
    (torch.Size([5, 3, 4]), torch.Size([5, 3]))
    """

    def __init__(
        self,
        inputs: int,
        size: int,
        features: int | Features,
        width: int = 1000,
        hidden_layers: int = 2,
        dropout: float = 0.5,
        presence: bool = False,
    ) -> None:
        super().__init__()
        for name, given in [
            ("inputs", inputs),
            ("size", size),
            ("width", width),
            ("hidden_layers", hidden_layers),
        ]:
            check_size(name, given)
        features = width_of(features)
        self.inputs, self.size, self.features, self.presence = inputs, size, features, presence
        layers: list[nn.Module] = []
        for layer in range(hidden_layers):
            layers += [
                nn.Linear(width if layer else inputs, width),
                nn.ReLU(),
                nn.BatchNorm1d(width),
                nn.Dropout(dropout),
            ]
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, size * (features + presence))
        glorot(self)

    def forward(self, input: Tensor) -> Tensor:
        check_floats("input", input, "[*, inputs]", 1, self.inputs)
        lead = input.shape[:-1]
        # BatchNorm1d wants [B, width]. To export, B as a number would be a constant.
        output = self.output(self.hidden(input.reshape(-1, self.inputs)))
        return output.reshape(*lead, self.size, self.features + self.presence)
