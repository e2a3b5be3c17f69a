"""A convolution whose messages prepare rows, and describe destinations by what these were before."""

from torch_geometric.nn import MessagePassing

from weft import MessageConvolution


class Above(MessagePassing):
    """How far what neighbours say is above the own row, column by column."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return (x_j.exp() - x_i).relu()


class Over(MessageConvolution):
    """The same, edge by edge."""

    module, columnwise = Above, True

    def prepare(self, x):
        return x.exp()

    def describe(self, own):
        return own

    def message(self, source, destination):
        return (source - destination).relu()

    def finish(self, merged, own):
        return merged
