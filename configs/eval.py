"""What is measured of a run. The run's own folder says everything else.

python eval_extrapolation.py --workdir=runs/rope
"""

from ml_collections import ConfigDict


def get_config():
    config = ConfigDict()
    config.data = ConfigDict()
    config.data.source = ""  # empty: the held-out documents of the run's own text
    config.data.path = ""  # files or globs of another text to evaluate on
    config.data.field = ""  # of a JSON line or a row that holds the text; empty: that of the run
    config.data.split = ""  # of a hub data set; empty: that of the run
    config.multiples = "0.25,0.5,1,2,4,8"  # lengths, in multiples of the longest trained one
    # Of these, those that fit the run's encoding; name:scale sets a scale, else it is the largest
    # multiple; all: every one that needs no options.
    config.extensions = "none,pi,ntk,yarn,dynamic_ntk,interpolate"
    config.protocols = "same_token,nonoverlap,sliding,position"
    config.window = True  # the baseline: the same weights, a query sees the last L tokens alone
    config.documents = 50  # at most, of those as long as the longest window
    config.windows = 2  # at most, of the longest length, from one document
    config.stride = 0  # how far `sliding` advances; 0: L. Lengths below it are not slid over
    config.last = 0  # K, the targets `same_token` scores in a window; 0: shortest length / 4
    config.tokens_per_call = 16_384  # a batch holds as many windows as fit
    config.wandb = ConfigDict()
    config.wandb.mode = ""  # empty: that of the run; auto, online, offline, disabled
    return config
