"""Scores of links: an encoder gives rows of vertices, a decoder makes of two rows how likely they are linked."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.errors import ConfigError, ModelError, WeftError
from weft.keys import Stream, seeded

DECODERS = ("dot", "mlp")


class DotProduct(nn.Module):
    """The product of the two rows."""

    def forward(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Scores [links, tails], of rows [links, width] and [links, tails, width]."""
        return (heads.unsqueeze(1) * tails).sum(-1)


class MLP(nn.Module):
    """Two dense layers on the rows' product, column by column: whichever row is the head, the score is the same."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, hidden), nn.Linear(hidden, 1)

    def forward(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Scores [links, tails], of rows [links, width] and [links, tails, width]."""
        if heads.shape[-1] != self.first.in_features:
            raise ModelError(
                f"the model gives rows of {heads.shape[-1]} columns, but its decoder takes {self.first.in_features}: give "
                f"out_channels as many (hidden says how many), or choose decoder = 'dot'"
            )
        return self.second(self.first(heads.unsqueeze(1) * tails).relu()).squeeze(-1)


class LinkPredictor(nn.Module):
    """An encoder (any PyG model that gives a row for each vertex) and a decoder."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, x: Tensor, edge_index: Tensor, pairs: Tensor, **edges: Tensor) -> Tensor:
        """Scores [pairs] of `pairs` [2, pairs], on the whole graph: plain PyG."""
        rows = self.encoder(x, edge_index, **edges)
        return self.score(rows[pairs[0]], rows[pairs[1]].unsqueeze(1)).squeeze(1)

    @property
    def known(self) -> bool:
        """Is the decoder one of Weft's, which score each pair by itself?"""
        return type(self.decoder) in (DotProduct, MLP)

    def score(self, heads: Tensor, tails: Tensor) -> Tensor:
        """The decoder's scores [links, tails] of rows [links, width] and [links, tails, width]; other shapes are refused."""
        try:
            scores = self.decoder(heads, tails)
        except (WeftError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ModelError(f"{self._asked(heads, tails)} ({type(error).__name__}: {error})") from error
        if not isinstance(scores, Tensor) or scores.shape != tails.shape[:2] or not scores.is_floating_point():
            got = f"{scores.dtype} {list(scores.shape)}" if isinstance(scores, Tensor) else f"a {type(scores).__name__}"
            raise ModelError(f"{self._asked(heads, tails)} (it gave {got})")
        return scores

    def _asked(self, heads: Tensor, tails: Tensor) -> str:
        return (
            f"decoder {type(self.decoder).__name__} must make scores {list(tails.shape[:2])} of heads {list(heads.shape)} "
            f"and tails {list(tails.shape)}: let its forward begin with heads = heads.unsqueeze(1).expand_as(tails), and "
            f"give one number for each row of tails, as in self.bilinear(heads, tails).squeeze(-1)"
        )


def make_decoder(name: str, width: int, seed: int) -> nn.Module:
    """A decoder by name (dot, mlp) for rows of a width; the same seed gives the same parameters."""
    if name not in DECODERS:
        raise ConfigError(f"decoder {name!r} is not known: choose one of {', '.join(DECODERS)}")
    if name == "dot":
        return DotProduct()
    with seeded(Stream.INIT, seed, 1):
        return MLP(width, width)


def encoder_of(model: nn.Module) -> nn.Module:
    """What runs on the graph: a link predictor's encoder; any other model itself."""
    return model.encoder if isinstance(model, LinkPredictor) else model


def link_loss(scores: Tensor, loss: str, margin: float) -> Tensor:
    """The loss of links, summed over its terms: [links, 1 + negatives], the link's own score first.

    Binary cross-entropy has a term a score; the margin loss has one for each negative, which is to be that much lower.
    """
    if loss == "bce":
        return F.softplus(-scores[:, :1]).sum() + F.softplus(scores[:, 1:]).sum()
    assert loss == "margin", loss
    return (margin - scores[:, :1] + scores[:, 1:]).relu().sum()


def loss_terms(links: int, negatives: int, loss: str) -> int:
    """How many terms the loss of so many links with so many negatives each has."""
    return links * (negatives + (loss == "bce"))
