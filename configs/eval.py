"""What is measured of a run. The run's own folder says everything else.

python eval_extrapolation.py --workdir=runs/rope
"""

from ml_collections import ConfigDict


def get_config():
    config = ConfigDict()
    config.data = ConfigDict()
    config.data.source = ""  # empty: the held-out documents of the run's own text
    config.data.path = ""  # files or globs of another text to evaluate on
    config.multiples = "1,2,4,8"  # lengths, in multiples of the trained one
    config.extensions = "none,pi,ntk,yarn"  # those that fit; name:scale sets a scale
    config.protocols = "position,nonoverlap"
    config.documents = 50  # at most, of those as long as the longest window
    config.windows = 4  # at most, of the longest length, from one document
    config.tokens_per_call = 16_384  # a batch holds as many windows as fit
    return config
