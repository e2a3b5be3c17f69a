"""Nothing that a graph brings is dropped in silence: it is used, left out by name, or refused."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from weft import cli
from weft.errors import InputError
from weft.graph import Graph

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def data(**more):
    return Data(x=torch.zeros(3, 2), edge_index=EDGES, name="a word is no array", **more)


def test_arrays_that_are_not_used_are_refused_by_name():
    with pytest.raises(InputError, match=r"Data has pos, area, which Weft does not use.*--leave-out pos,area"):
        Graph.from_pyg(data(pos=torch.zeros(3, 2), area=torch.zeros(3, 4)))


def test_a_split_of_another_type_than_that_with_labels_is_refused_with_the_reason():
    typed = HeteroData(
        {"a": {"x": torch.zeros(3, 2), "train_mask": torch.ones(3) > 0}, ("a", "to", "a"): {"edge_index": EDGES}}
    )
    typed["b"].x, typed["b"].y = torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(InputError, match=r"Weft does not use \(a split is of the vertices that have labels, y\): "):
        Graph.from_pyg(typed)


def test_labels_of_some_vertices_alone_are_refused_with_what_is_read():
    """As PyG's Entities have them."""
    with pytest.raises(InputError, match=r"has train_idx, train_y, .* \(give y of all vertices, -1 where unknown, and"):
        Graph.from_pyg(data(train_idx=torch.arange(2), train_y=torch.zeros(2)))


def test_links_that_were_split_already_are_refused_with_what_splits_them():
    with pytest.raises(
        InputError, match=r"edge_label_index, .* \(Weft splits links itself .* before RandomLinkSplit\)"
    ):
        Graph.from_pyg(data(edge_label=torch.ones(3), edge_label_index=EDGES))


def test_arrays_that_are_left_out_by_name_are_not_used():
    graph = Graph.from_pyg(data(edge_attr=torch.zeros(3, 4), pos=torch.zeros(3, 2)), leave_out=("edge_attr", "pos"))
    assert graph.num_edges == 3 and graph.edge_weight is None and graph.edge_features is None


def test_one_array_may_be_left_out_by_its_name_alone():
    assert Graph.from_pyg(data(pos=torch.zeros(3, 2)), leave_out="pos").num_edges == 3


def test_attributes_of_one_column_are_weights():
    assert Graph.from_pyg(data(edge_attr=torch.ones(3, 1))).edge_weight.tolist() == [1, 1, 1]


def test_weights_of_one_column_are_weights():
    """As OGB's ogbl-collab has them."""
    assert Graph.from_pyg(data(edge_weight=torch.tensor([[1], [2], [3]]))).edge_weight.tolist() == [3, 1, 2]


def test_attributes_that_are_left_out_are_no_weights_either():
    given = data(edge_attr=torch.full((3, 1), 2.0))
    assert Graph.from_pyg(given, leave_out=("edge_attr",)).edge_weight is None
    assert Graph.from_pyg(given).edge_weight.tolist() == [2, 2, 2]  # it is as it was
    kinds = HeteroData({"a": {"x": torch.zeros(3, 2)}})
    for name, columns in (("one", 1), ("several", 4)):
        kinds["a", name, "a"].edge_index, kinds["a", name, "a"].edge_attr = EDGES, torch.full((3, columns), 2.0)
    graph = Graph.from_pyg(kinds, leave_out=("edge_attr",))
    assert graph.num_edges == 6 and graph.edge_weight is None and graph.edge_features is None


def test_masks_without_a_training_mask_are_refused():
    with pytest.raises(InputError, match="has val_mask"):
        Graph.from_pyg(data(val_mask=torch.ones(3, dtype=torch.bool)))


@pytest.mark.parametrize("mask", [torch.tensor([0.3, 0.0, 0.0]), torch.tensor([2, 1, 0])])
def test_masks_that_are_none_are_refused(mask):
    """Ids where a mask is wanted would be a mask of all but vertex 0."""
    with pytest.raises(InputError, match=r"train_mask holds other values than true and false: .*index_to_mask"):
        Graph.from_pyg(data(y=torch.zeros(3, dtype=torch.int64), train_mask=mask))


def test_whole_numbers_that_float32_has_not_are_refused():
    """Of vertices' numbers, whose rows are learned, two would be one."""
    first, kept = torch.arange(3)[:, None] + 2**24, torch.tensor([[2**24], [2**24 + 2], [-(2**24)]])
    typed = HeteroData({"a": {"x": first}, "b": {"x": torch.zeros(2, 2)}, ("a", "to", "a"): {"edge_index": EDGES}})
    for given in (Data(x=first, edge_index=EDGES), Data(x=-first, edge_index=EDGES), typed):
        with pytest.raises(
            InputError, match=r"whole numbers up to -?16777218, of which float32 .* two columns, id // 4096"
        ):
            Graph.from_pyg(given)
    for fits in (kept, first.double(), first.int() - 3):
        typed["a"].x = fits
        for given in (Data(x=fits, edge_index=EDGES), typed):
            rows = Graph.from_pyg(given).features
            assert np.array_equal(rows if isinstance(rows, np.ndarray) else rows.tables[0], fits.float().numpy())


def test_masks_of_one_column_are_masks():
    masks = {"train_mask": torch.tensor([[1], [0], [0]]) > 0, "test_mask": torch.tensor([0, 0, 1]) > 0}
    assert Graph.from_pyg(data(y=torch.zeros(3, dtype=torch.int64), **masks)).split.tolist() == [0, 3, 2]


def test_what_is_used_or_not_there_cannot_be_left_out():
    for name in ("x", "nonsense"):
        with pytest.raises(InputError, match=f"Data has no '{name}' that Weft does not use"):
            Graph.from_pyg(data(), leave_out=(name,))


@pytest.mark.parametrize("place", ["time", "year", "shared"])
def test_hetero_data_too(place):
    hetero = HeteroData()
    hetero["paper"].x = torch.zeros(3, 2)
    hetero["paper", "cites", "paper"].edge_index = EDGES
    target = {"time": hetero["paper", "cites", "paper"], "year": hetero["paper"], "shared": hetero}[place]
    setattr(target, place, torch.zeros(3, 4))
    with pytest.raises(InputError, match=f"HeteroData has {place}"):
        Graph.from_pyg(hetero)
    assert Graph.from_pyg(hetero, leave_out=(place,)).num_edges == 3


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "raw"
        folder.mkdir()
        np.save(folder / "edge_index.npy", EDGES.numpy())
        np.save(folder / "positions.npy", np.zeros((3, 2)))
        return folder

    def test_files_of_a_folder(self, folder, tmp_path, capsys):
        assert cli.main(["import", str(folder), str(tmp_path / "out")]) == 2
        assert "has positions, which Weft does not use" in capsys.readouterr().err
        assert cli.main(["import", str(folder), str(tmp_path / "out"), "--leave-out", "positions"]) == 0
        assert "not imported" in (out := capsys.readouterr().out) and "positions" in out

    def test_columns_of_tables_are_named(self, tmp_path, capsys):
        (tmp_path / "edges.csv").write_text("src,dst,since\n0,1,1999\n1,0,2001\n")
        assert cli.main(["import", str(tmp_path / "edges.csv"), str(tmp_path / "out")]) == 0
        assert "edges.csv: since" in capsys.readouterr().out

    def test_tables_leave_out_by_themselves(self, tmp_path, capsys):
        (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
        assert cli.main(["import", str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--leave-out", "since"]) == 2
        assert "--leave-out is not for tables" in capsys.readouterr().err
