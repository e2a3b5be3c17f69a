"""The kinds of work that epochs are made of, and what a unit of each is; the probe finds the seconds that it takes."""

# Besides the model's layers.
KINDS = {
    "hop": "seconds a layer whose neighbours are drawn",
    "draw": "seconds an edge drawn",
    "number": "seconds a vertex among the sources of a layer",
    "cut": "seconds an edge that may be computed at its source's owner",
    "cover": "seconds an edge between owners, where it is found what to pull and what to push exactly",
    "even": "seconds a seed whose home is too full",
    "edge": "seconds an edge whose ends are sent or come",
    "ask": "seconds a row asked of another worker, or by one",
    "message": "seconds an exchange",
    "tell": "seconds an exchange of lists, while batches are drawn",
    "fetch": "seconds a batch's rows are fetched in, whatever they are",
    "gather": "seconds a byte of rows gathered",
    "disk": "seconds a byte of rows that are not in memory",
    "carry": "seconds a byte that is sent or comes",
    "cross": "seconds a layer whose rows or sums cross between workers, whatever they are",
    "join": "seconds a row that layers send, or get and put in place",
    "sum": "seconds a byte of gradients",
    "step": "seconds in training of a second that the model takes by itself, whatever its rows",
    "layers": "seconds in training of a second that its layers take by themselves for rows and edges",
    "pace": "seconds of a small fixed piece of work, by which these times are told from others and other machines'",
    "busy": "the share of processors' time that workers make use of, where they wait for each other again and again",
    "overlap": "how well processors, links, training and preparing run side by side: the exponent of a norm",
}
