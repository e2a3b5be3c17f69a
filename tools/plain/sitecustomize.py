"""In front of PYTHONPATH: an environment in which Weft is installed for editing (`make` does it) goes by PYTHONPATH again.

What such an installation puts into sys.meta_path is asked first of all, and answers with its own sources and kernels.
"""

import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
