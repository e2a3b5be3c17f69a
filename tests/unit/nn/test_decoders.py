"""Decoders and losses of links, held against torch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn.models import GraphSAGE

from weft.errors import ConfigError, ModelError
from weft.nn import LinkPredictor, encoder_of, link_loss, loss_terms, make_decoder


@pytest.mark.parametrize("name", ["dot", "mlp"])
def test_decoders_score_each_tail(name):
    decoder = make_decoder(name, 6, 0)
    heads, tails = torch.randn(4, 6), torch.randn(4, 3, 6)
    scores = decoder(heads, tails)
    assert scores.shape == (4, 3)
    for link in range(4):
        for tail in range(3):
            product = heads[link] * tails[link, tail]
            want = product.sum() if name == "dot" else decoder.second(decoder.first(product).relu())[0]
            torch.testing.assert_close(scores[link, tail], want)
    turned = decoder(tails[:, 0], heads.unsqueeze(1))  # links have no direction
    torch.testing.assert_close(turned[:, 0], scores[:, 0])
    assert decoder(heads[:0], tails[:0]).shape == (0, 3)


def test_a_predictor_is_plain_pyg():
    torch.manual_seed(0)
    encoder = GraphSAGE(4, 8, 2, 6)
    model = LinkPredictor(encoder, make_decoder("mlp", 6, 0))
    x, edges, pairs = torch.randn(5, 4), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([[0, 4], [3, 1]])
    rows = encoder(x, edges)
    want = model.decoder(rows[pairs[0]], rows[pairs[1]].unsqueeze(1))[:, 0]
    torch.testing.assert_close(model(x, edges, pairs), want)
    assert encoder_of(model) is encoder
    assert encoder_of(encoder) is encoder


def test_the_same_seed_gives_the_same_decoder():
    one, two, other = (make_decoder("mlp", 6, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["first.weight"], other["first.weight"])


def test_losses_are_torchs():
    scores = torch.randn(7, 4, dtype=torch.float64) * 5
    labels = torch.zeros_like(scores)
    labels[:, 0] = 1
    want = F.binary_cross_entropy_with_logits(scores, labels)
    torch.testing.assert_close(link_loss(scores, "bce", 1.0) / loss_terms(7, 3, "bce"), want)
    own, others = scores[:, :1].expand(7, 3), scores[:, 1:]
    want = F.margin_ranking_loss(own, others, torch.ones_like(own), 0.4)
    torch.testing.assert_close(link_loss(scores, "margin", 0.4) / loss_terms(7, 3, "margin"), want)
    assert link_loss(scores[:, :1], "margin", 0.4) == 0  # without negatives


class Given(torch.nn.Module):
    def __init__(self, score):
        super().__init__()
        self.score = score

    def forward(self, heads, tails):
        return self.score(heads, tails)


@pytest.mark.parametrize(
    ("decoder", "told"),
    [
        (torch.nn.Bilinear(6, 6, 1), r"RuntimeError: bilinear\(\)"),
        (torch.nn.Linear(6, 1), "TypeError"),
        (Given(lambda heads, tails: (heads * tails[:, 0]).sum(1, keepdim=True)), r"it gave torch.float32 \[4, 1\]"),
        (
            Given(lambda heads, tails: (heads[:, None] * tails).sum(2, keepdim=True)),
            r"it gave torch.float32 \[4, 3, 1\]",
        ),
        (Given(lambda heads, tails: None), "it gave a NoneType"),
        (Given(lambda heads, tails: (heads[:, None] * tails).sum(2) > 0), r"it gave torch.bool \[4, 3\]"),
    ],
)
def test_decoders_of_other_shapes_are_refused(decoder, told):
    model = LinkPredictor(torch.nn.Identity(), decoder)
    with pytest.raises(
        ModelError, match=rf"scores \[4, 3\] of heads \[4, 6\] and tails \[4, 3, 6\]: let its .*\({told}"
    ):
        model.score(torch.randn(4, 6), torch.randn(4, 3, 6))


def test_a_bilinear_decoder_as_the_refusal_says():
    bilinear = torch.nn.Bilinear(6, 6, 1)
    decoder = Given(lambda heads, tails: bilinear(heads.unsqueeze(1).expand_as(tails), tails).squeeze(-1))
    heads, tails = torch.randn(4, 6), torch.randn(4, 3, 6)
    got = LinkPredictor(torch.nn.Identity(), decoder).score(heads, tails)
    torch.testing.assert_close(got[:, 2], bilinear(heads, tails[:, 2]).squeeze(1))


def test_mistakes_are_explained():
    with pytest.raises(ConfigError, match="decoder 'doot' is not known: choose one of dot, mlp"):
        make_decoder("doot", 4, 0)
    with pytest.raises(ModelError, match="rows of 5 columns, but its decoder takes 4"):
        make_decoder("mlp", 4, 0)(torch.randn(2, 5), torch.randn(2, 1, 5))
