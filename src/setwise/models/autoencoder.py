"""The set autoencoder: a set, its discrete code, and the set again.

Legend: B sets, N elements, F features, L latent variables, U distinct elements; ``*`` any leading
dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from setwise.features import Features
from setwise.models.decoder import SetDecoder
from setwise.models.deep_sets import DeepSetsEncoder
from setwise.models.latent import GumbelSoftmax, Latent


class SetAutoencoder(nn.Module):
    """``decoder(latent(encoder(set)))``: sets [*, N, F] -> logits [*, size, features].

    The encoder ignores the order and takes sets of any number of elements; the decoder always
    produces ``size``. The defaults are the network of the Set Cross Entropy paper for the 8-puzzle,
    which is ``SetAutoencoder(size=9, features=15)``; a `setwise.Features` does as well as its
    width. ``latent`` defaults to ``GumbelSoftmax(100)``. With ``presence`` every output has one
    more number, the last: the logit that it exists; see `SetDecoder`.

    >>> model = SetAutoencoder(
    ...     size=3,
    ...     features=4,
    ...     latent=GumbelSoftmax(5),
    ...     encoder_element_widths=(16,),
    ...     encoder_widths=(16,),
    ...     decoder_width=16,
    ... )
    >>> sets = torch.rand(2, 3, 4)
    >>> model(sets, temperature=0.7).shape
    torch.Size([2, 3, 4])
    >>> codes = model.encode(sets)
    >>> codes.shape, codes.dtype
    (torch.Size([2, 5]), torch.bool)
    >>> model.decode(codes).equal(model.eval()(sets))
    True
    """

    def __init__(
        self,
        size: int,
        features: int | Features,
        latent: Latent | None = None,
        encoder_element_widths: Sequence[int] = (1000, 1000),
        encoder_widths: Sequence[int] = (1000, 1000),
        decoder_width: int = 1000,
        decoder_hidden_layers: int = 2,
        dropout: float = 0.5,
        presence: bool = False,
    ) -> None:
        super().__init__()
        if latent is None:
            latent = GumbelSoftmax(100)
        if not isinstance(latent, Latent):
            raise TypeError(
                f"latent: expected GumbelSoftmax(variables) or BinaryConcrete(variables), "
                f"got {latent!r}"
            )
        self.encoder = DeepSetsEncoder(
            features, latent.width, encoder_element_widths, encoder_widths
        )
        self.latent = latent
        self.decoder = SetDecoder(
            latent.width, size, features, decoder_width, decoder_hidden_layers, dropout, presence
        )

    def forward(
        self, sets: Tensor, temperature: float | Tensor = 1.0, valid: Tensor | None = None
    ) -> Tensor:
        """[*, N, F] -> [*, size, features]; elements where ``valid`` is False are left out."""
        return self.decoder(self.latent(self.encoder(sets, valid), temperature))

    def forward_counts(
        self, counts: Tensor, elements: Tensor, temperature: float | Tensor = 1.0
    ) -> Tensor:
        """The same for sets given by counts [*, U] of the rows of a table ``elements`` [U, F].

        See `DeepSetsEncoder.from_counts`.
        """
        return self.decoder(self.latent(self.encoder.from_counts(counts, elements), temperature))

    def encode(self, sets: Tensor, valid: Tensor | None = None) -> Tensor:
        """The code of each set: [*, N, F] -> bool [*, L], the same in training and evaluation."""
        with torch.no_grad():
            return self.latent.codes(self.encoder(sets, valid))

    def encode_counts(self, counts: Tensor, elements: Tensor) -> Tensor:
        """The same for sets given by counts [*, U] of the rows of ``elements`` [U, F]."""
        with torch.no_grad():
            return self.latent.codes(self.encoder.from_counts(counts, elements))

    def decode(self, codes: Tensor) -> Tensor:
        """The set behind each code: bool [*, L] -> logits [*, size, features].

        The decoder works as in evaluation, whatever mode the model is in; that mode stays.
        """
        activation = self.latent.from_codes(codes).to(self.decoder.output.weight.dtype)
        with _evaluating(self.decoder):
            return self.decoder(activation)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each part is in the mode it was in before."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
