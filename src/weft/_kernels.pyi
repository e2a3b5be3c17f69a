"""Types of the compiled kernels (kernels/*.cpp); kept by hand, its names checked by tests/unit/test_kernel_stubs.py."""

from numpy import ndarray

LEVEL: str
LEVELS: str
NATIVE: bool
COMPILER: str
COMMIT: str

def mix64(x: int) -> int: ...

# kernels/sampling.cpp
class ArraySampler32:
    def __init__(self, vertices: int) -> None: ...
    def sample(
        self,
        indptr: ndarray,
        indices: ndarray,
        seeds: ndarray,
        fanouts: list[int],
        keys: list[int],
        original_ids: ndarray | None,
        weights: ndarray | None,
        replace: bool,
        edge_ids: bool,
        first: int,
        threads: int,
    ) -> tuple[ndarray, list[tuple[ndarray, ndarray, int, ndarray | None]]]: ...
    def sample_by_neighbour(
        self,
        indptr: ndarray,
        indices: ndarray,
        seeds: ndarray,
        fanouts: list[int],
        keys: list[int],
        all_ids: ndarray | None,
        edge_ids: bool,
        first: int,
        threads: int,
    ) -> tuple[ndarray, list[tuple[ndarray, ndarray, int, ndarray | None]]]: ...
    def sample_by_layer(
        self,
        indptr: ndarray,
        indices: ndarray,
        seeds: ndarray,
        scales: list[float],
        keys: list[int],
        all_ids: ndarray | None,
        importance: ndarray,
        edge_ids: bool,
        first: int,
        threads: int,
    ) -> tuple[ndarray, list[tuple[ndarray, ndarray, int, ndarray | None]]]: ...

class HashSampler32(ArraySampler32): ...
class HashSampler64(ArraySampler32): ...

# kernels/spread.cpp
class ArrayNumbering32:
    def __init__(self, vertices: int) -> None: ...
    def number(self, ids: ndarray, unique: ndarray, slots: ndarray) -> int: ...

class HashNumbering32(ArrayNumbering32): ...
class HashNumbering64(ArrayNumbering32): ...

def by_owner(ids: ndarray, bounds: ndarray, order: ndarray, counts: ndarray) -> None: ...
def balance_seeds(known: ndarray, lengths: ndarray, holders: ndarray, most: ndarray, shares: ndarray) -> None: ...

# kernels/cover.cpp
def minimum_cover(
    indptr: ndarray, right: ndarray, rights: int, left_cost: int, right_cost: int, chosen: ndarray
) -> None: ...
def exact_cover(
    indptr: ndarray, src: ndarray, member: ndarray, rank: int, size: int, pull: int, push: int, pulled: ndarray
) -> None: ...

# kernels/split.cpp
def greedy_cover(
    indptr: ndarray, src: ndarray, member: ndarray, rank: int, size: int, pull: float, push: float, pulled: ndarray
) -> None: ...
def count_split(
    indptr: ndarray,
    src: ndarray,
    member: ndarray,
    pulled: ndarray,
    rank: int,
    edge_counts: ndarray,
    pair_counts: ndarray,
) -> None: ...
def split_edges(
    indptr: ndarray,
    src: ndarray,
    member: ndarray,
    pulled: ndarray,
    rank: int,
    kept_indptr: ndarray,
    kept_src: ndarray,
    kept_at: ndarray | None,
    away_src: ndarray,
    away_at: ndarray | None,
    pair_dst: ndarray,
    lengths: ndarray,
    edge_counts: ndarray,
    pair_counts: ndarray,
) -> tuple[int, int]: ...

# kernels/gather.cpp, kernels/blocks.cpp
def gather_rows(table: ndarray, ids: ndarray, out: ndarray, at: ndarray | None, threads: int) -> None: ...
def edge_destinations(indptr: ndarray, dst: ndarray, threads: int) -> None: ...
def transpose(
    indptr: ndarray, src: ndarray, t_indptr: ndarray, t_dst: ndarray, t_edge: ndarray, threads: int
) -> None: ...
def add_self_loops(
    indptr: ndarray,
    src: ndarray,
    edge_ids: ndarray | None,
    out_indptr: ndarray,
    out_src: ndarray,
    out_edge_ids: ndarray | None,
) -> int: ...

# kernels/aggregate.cpp
def sum_rows(
    indptr: ndarray,
    other: ndarray,
    edge: ndarray | None,
    weight: ndarray | None,
    x: ndarray,
    out: ndarray,
    mean: bool,
    onto: bool,
    threads: int,
) -> None: ...
def add_rows_at(rows: ndarray, at: ndarray, out: ndarray, threads: int) -> None: ...
def edge_dot(indptr: ndarray, src: ndarray, g: ndarray, x: ndarray, out: ndarray, threads: int) -> None: ...
def max_rows(indptr: ndarray, src: ndarray, x: ndarray, out: ndarray, ties: ndarray, threads: int) -> None: ...
def max_rows_backward(
    t_indptr: ndarray, t_dst: ndarray, g: ndarray, best: ndarray, x: ndarray, gx: ndarray, threads: int
) -> None: ...
def film(
    indptr: ndarray,
    src: ndarray,
    x: ndarray,
    gamma: ndarray,
    beta: ndarray,
    out: ndarray,
    mean: bool,
    threads: int,
) -> None: ...
def film_backward_dst(
    indptr: ndarray,
    src: ndarray,
    x: ndarray,
    gamma: ndarray,
    beta: ndarray,
    g: ndarray,
    g_gamma: ndarray,
    g_beta: ndarray,
    threads: int,
) -> None: ...
def film_backward_src(
    t_indptr: ndarray,
    t_dst: ndarray,
    x: ndarray,
    gamma: ndarray,
    beta: ndarray,
    g: ndarray,
    gx: ndarray,
    threads: int,
) -> None: ...

# kernels/attention.cpp
ROWS_A_PIECE: int

def gat(
    indptr: ndarray,
    src: ndarray,
    a_src: ndarray | None,
    a_dst: ndarray | None,
    edge_logits: ndarray | None,
    keep: ndarray | None,
    x: ndarray,
    p: ndarray,
    out: ndarray,
    lse: ndarray | None,
    slope: float,
    threads: int,
) -> None: ...
def gat_backward_dst(
    indptr: ndarray,
    src: ndarray,
    a_src: ndarray | None,
    a_dst: ndarray | None,
    edge_logits: ndarray | None,
    keep: ndarray | None,
    x: ndarray,
    p: ndarray,
    g: ndarray,
    g_lse: ndarray | None,
    shares: ndarray,
    g_dst: ndarray,
    slope: float,
    threads: int,
) -> None: ...
def gat_backward_src(
    t_indptr: ndarray,
    t_dst: ndarray,
    t_edge: ndarray,
    shares: ndarray,
    g: ndarray,
    gx: ndarray,
    g_src: ndarray,
    threads: int,
) -> None: ...
def head_terms(x: ndarray, att: ndarray, out: ndarray, threads: int) -> None: ...
def head_terms_backward(x: ndarray, att: ndarray, g: ndarray, gx: ndarray, g_att: ndarray, threads: int) -> None: ...
def gatv2(
    indptr: ndarray,
    src: ndarray,
    xl: ndarray,
    xr: ndarray,
    att: ndarray,
    keep: ndarray | None,
    p: ndarray,
    out: ndarray,
    slope: float,
    threads: int,
) -> None: ...
def gatv2_backward_dst(
    indptr: ndarray,
    src: ndarray,
    xl: ndarray,
    xr: ndarray,
    att: ndarray,
    keep: ndarray | None,
    p: ndarray,
    g: ndarray,
    d_logit: ndarray,
    g_xr: ndarray,
    g_att: ndarray,
    slope: float,
    threads: int,
) -> None: ...
def gatv2_backward_src(
    t_indptr: ndarray,
    t_dst: ndarray,
    t_edge: ndarray,
    xl: ndarray,
    xr: ndarray,
    att: ndarray,
    keep: ndarray | None,
    p: ndarray,
    d_logit: ndarray,
    g: ndarray,
    g_xl: ndarray,
    slope: float,
    threads: int,
) -> None: ...

# kernels/shares.cpp
def edge_shares(
    indptr: ndarray,
    src: ndarray,
    a_src: ndarray,
    a_dst: ndarray,
    keep: ndarray | None,
    own_keep: ndarray | None,
    out: ndarray,
    own: ndarray,
    slope: float,
    loops: bool,
    threads: int,
) -> None: ...
def edge_shares_backward(
    indptr: ndarray,
    src: ndarray,
    a_src: ndarray,
    a_dst: ndarray,
    keep: ndarray | None,
    own_keep: ndarray | None,
    g: ndarray,
    g_own: ndarray,
    g_edge: ndarray,
    g_dst: ndarray,
    g_loop: ndarray,
    slope: float,
    loops: bool,
    threads: int,
) -> None: ...

# kernels/dropout.cpp
def dropout_mask(key: int, row_keys: ndarray, threshold: int, scale: float, out: ndarray, threads: int) -> None: ...
def keep_freed_memory() -> bool: ...
def return_freed_memory() -> bool: ...

# kernels/graph.cpp
def count_edges(src: ndarray, dst: ndarray, counts: ndarray, undirected: bool) -> int: ...
def place_edges(
    src: ndarray,
    dst: ndarray,
    first: int,
    next: ndarray,
    indices: ndarray,
    weight: ndarray | None,
    out_weight: ndarray | None,
    type: ndarray | None,
    out_type: ndarray | None,
    undirected: bool,
) -> None: ...
def clean_lists(
    indptr: ndarray,
    indices: ndarray,
    weight: ndarray | None,
    type: ndarray | None,
    first: int,
    drop_duplicates: bool,
    loops: int,
    lengths: ndarray,
    out: ndarray,
    out_weight: ndarray | None,
    out_type: ndarray | None,
) -> int: ...

class NameTable:
    def look_up(self, offsets: ndarray, bytes: ndarray, add: bool, out: ndarray) -> None: ...
    def __len__(self) -> int: ...
    def text(self) -> bytes: ...
    def offsets(self, out: ndarray) -> None: ...

def rmat_edges(
    key: int,
    first: int,
    vertices: int,
    a: float,
    b: float,
    c: float,
    relabel: ndarray,
    src: ndarray,
    dst: ndarray,
    threads: int,
) -> None: ...
def community_edges(
    key: int,
    first: int,
    sums: ndarray,
    guide: ndarray,
    block_bounds: ndarray,
    class_bounds: ndarray,
    in_block: float,
    in_class: float,
    relabel: ndarray,
    src: ndarray,
    dst: ndarray,
    threads: int,
) -> None: ...

# kernels/lists.cpp
def add_by_source(indptr: ndarray, indices: ndarray, terms: ndarray | None, sums: ndarray) -> None: ...
def describe_edges(
    indptr: ndarray, indices: ndarray, labels: ndarray | None, uses: ndarray
) -> tuple[int, int, int]: ...
def renumber_lists(
    indptr: ndarray,
    indices: ndarray,
    order: ndarray,
    new_ids: ndarray,
    offsets: ndarray,
    out: ndarray,
    threads: int,
) -> None: ...

# kernels/mesh.cpp
def out_lists(
    indptr: ndarray, indices: ndarray, t_indptr: ndarray, t_dst: ndarray, threads: int, first: int = 0
) -> None: ...
def count_neighbours(
    indptr: ndarray, indices: ndarray, t_indptr: ndarray, t_dst: ndarray, counts: ndarray, threads: int, first: int = 0
) -> None: ...
def join_neighbours(
    indptr: ndarray,
    indices: ndarray,
    t_indptr: ndarray,
    t_dst: ndarray,
    draws: ndarray | None,
    scale: float,
    heaviest: int,
    offsets: ndarray,
    neighbours: ndarray,
    weights: ndarray | None,
    threads: int,
    first: int = 0,
) -> None: ...

# kernels/quality.cpp
def count_halos(
    indptr: ndarray, indices: ndarray, owners: ndarray, cut: ndarray, halo: ndarray, threads: int
) -> None: ...

# kernels/streaming.cpp
def deal_by_room(
    offsets: ndarray,
    neighbours: ndarray,
    edges: ndarray | None,
    weights: ndarray,
    training: ndarray | None,
    order: ndarray,
    bounds: ndarray | None,
    targets: ndarray,
    training_targets: ndarray | None,
    slack: float,
    owners: ndarray,
) -> int: ...
def deal_by_cost(
    offsets: ndarray,
    neighbours: ndarray,
    edges: ndarray | None,
    weights: ndarray,
    training: ndarray | None,
    order: ndarray,
    targets: ndarray,
    training_targets: ndarray | None,
    slack: float,
    cost: float,
    owners: ndarray,
) -> int: ...

# kernels/growing.cpp
def grow_blocks(
    offsets: ndarray, neighbours: ndarray, weights: ndarray, order: ndarray, centres: int, most: int, blocks: ndarray
) -> int: ...
def join_blocks(
    offsets: ndarray,
    neighbours: ndarray,
    edges: ndarray | None,
    blocks: ndarray,
    members: ndarray,
    bounds: ndarray,
    small: int,
    most: int,
    sizes: ndarray,
    roots: ndarray,
) -> None: ...

# kernels/linear.cpp
def multiply(
    x: ndarray,
    matrix: ndarray,
    x2: ndarray | None,
    matrix2: ndarray | None,
    transposed: bool,
    bias: ndarray | None,
    plus: ndarray | None,
    y: ndarray,
    threads: int,
) -> None: ...
def multiply_pair(
    x: ndarray, matrix: ndarray, matrix2: ndarray, bias2: ndarray | None, y: ndarray, y2: ndarray, threads: int
) -> None: ...
def multiply_transposed(g: ndarray, x: ndarray, w: ndarray, threads: int) -> None: ...
def multiply_transposed_pair(g: ndarray, g2: ndarray, x: ndarray, w: ndarray, w2: ndarray, threads: int) -> None: ...

# kernels/links.cpp
class Links:
    def __init__(self, sockets: list[int], timeout: float) -> None: ...
    def begin(self, data: ndarray, counts: list[int]) -> None: ...
    def finish_into(self, out: ndarray, expected: list[int]) -> list[int]: ...
    def finish_any(self) -> tuple[list[int], list[ndarray]]: ...

# kernels/nets.cpp
class Nets:
    def __init__(self, vertices: int) -> None: ...
    def vertices(self) -> int: ...
    def count(self) -> int: ...
    def pins(self) -> int: ...
    def phases(self) -> int: ...
    def keep_copies(self, rows: ndarray) -> None: ...
    def start(self, needs: ndarray) -> None: ...
    def hop(self, indptr: ndarray, src: ndarray, num_src: int) -> None: ...
    def gather(self, indptr: ndarray, src: ndarray) -> None: ...
    def finish(self, owners: ndarray, weight: float, phase: int) -> None: ...
    def cover(
        self,
        indptr: ndarray,
        src: ndarray,
        vertices: ndarray,
        parts: ndarray,
        count: int,
        costs: tuple[float, float],
        phases: tuple[int, int],
    ) -> None: ...
    def append(self, others: Nets) -> None: ...
    def reserve(self, times: float) -> None: ...
    def clear(self) -> None: ...
    def fold(self, groups: ndarray, onto: Nets) -> None: ...
    def rows(self, parts: ndarray, rows: ndarray) -> None: ...

class Moves:
    def __init__(
        self,
        nets: Nets,
        owners: ndarray,
        weights: ndarray,
        limits: ndarray,
        seconds: ndarray,
        pairs: ndarray,
        threads: int,
    ) -> None: ...
    def go(self, order: ndarray, power: float, rent: float, loss: float, doubt: float, threads: int) -> int: ...
    def rouse(self) -> None: ...
    def rows(self, rows: ndarray) -> None: ...

# kernels/coarsen.cpp, kernels/contract.cpp
def balls(
    offsets: ndarray,
    neighbours: ndarray,
    edges: ndarray | None,
    vertices: ndarray,
    training: ndarray,
    apart: ndarray | None,
    key: int,
    share: float,
    hops: int,
    most: int,
    most_training: int,
    cluster: ndarray,
    threads: int,
) -> int: ...
def matching(
    offsets: ndarray,
    neighbours: ndarray,
    edges: ndarray | None,
    vertices: ndarray,
    training: ndarray,
    apart: ndarray | None,
    order: ndarray,
    most: int,
    most_training: int,
    cluster: ndarray,
) -> int: ...

class Contraction32:
    def __init__(
        self,
        offsets: ndarray,
        neighbours: ndarray,
        edges: ndarray | None,
        clusters: ndarray,
        count: int,
        threads: int,
    ) -> None: ...
    def edges(self) -> int: ...
    def write(self, lengths: ndarray, neighbours: ndarray, edges: ndarray) -> None: ...

class Contraction64(Contraction32): ...

def prune(offsets: ndarray, neighbours: ndarray, edges: ndarray, share: float, threads: int) -> int: ...

# kernels/allocate.cpp, kernels/refine.cpp
def greedy(
    offsets: ndarray,
    neighbours: ndarray,
    edges: ndarray | None,
    vertices: ndarray,
    training: ndarray,
    coefficients: ndarray,
    orders: ndarray,
    shares: ndarray,
    owners: ndarray,
    threads: int,
) -> None: ...
def best_naming(gains: ndarray, rows: ndarray) -> None: ...
def refine(
    offsets: ndarray,
    neighbours: ndarray,
    edges: ndarray | None,
    vertices: ndarray,
    training: ndarray,
    limits: ndarray,
    training_limits: ndarray,
    heaviest: int,
    sweeps: int,
    enough: float,
    owners: ndarray,
    threads: int,
) -> int: ...
def refine_all(
    offsets: ndarray,
    neighbours: ndarray,
    edges: ndarray | None,
    vertices: ndarray,
    training: ndarray,
    limits: ndarray,
    training_limits: ndarray,
    heaviest: int,
    sweeps: int,
    owners: ndarray,
    threads: int,
) -> None: ...

# kernels/traces.cpp
def spread_masks(indptr: ndarray, src: ndarray, before: ndarray, after: ndarray) -> None: ...
def count_reached(masks: ndarray, owners: ndarray, first: int, rows: ndarray) -> None: ...

class Fold:
    def __init__(self, groups: int) -> None: ...
    def begin(self, groups: ndarray) -> None: ...
    def hop(self, indptr: ndarray, src: ndarray, num_src: int, kept: ndarray | None) -> None: ...
    def end(self, groups: ndarray, each: int, joined: bool) -> None: ...
    def count(self, allocations: ndarray, rows: ndarray, threads: int) -> None: ...
    def batches(self) -> int: ...
    def classes(self) -> int: ...
    def members(self) -> int: ...
    def kinds(self) -> int: ...
