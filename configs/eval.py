"""What is measured of a run. The run's own folder says everything else.

python eval_extrapolation.py --workdir=runs/rope
"""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder


def get_config():
    config = ConfigDict()
    config.name = ""  # of this evaluation in eval/curves.csv; empty: from its text
    config.data = ConfigDict()
    config.data.source = ""  # empty: the held-out documents of the run's own text
    config.data.path = ""  # files or globs of another text to evaluate on
    config.data.tokens = ""  # a folder of prepared tokens to evaluate on, instead of a text
    config.data.part = "held_out"  # of the run's own text: held_out, choose (data.choose_fraction)
    config.data.field = ""  # of a JSON line or a row that holds the text; empty: that of the run
    config.data.split = ""  # of a hub data set; empty: that of the run
    config.multiples = "0.25,0.5,1,2,4,8"  # lengths, in multiples of the longest trained one
    # Of these, those that fit the run's encoding; name:scale sets a scale, else it is the largest
    # multiple; all: every one that needs no options.
    config.extensions = "none,pi,ntk,yarn,dynamic_ntk,interpolate"
    config.protocols = "same_token,nonoverlap,position"  # and sliding, which reads the most
    config.window = True  # the baseline: the same weights, a query sees the last L tokens alone
    # At most, of those as long as the longest window; None: 50, or more where it takes them.
    config.documents = placeholder(int)
    # At most, of the longest length, from one document; None: so many that `same_token` scores
    # about 2,000 targets.
    config.windows = placeholder(int)
    config.spread = True  # windows over the whole of a document; False: from its beginning on
    config.stride = 0  # how far `sliding` advances; 0: L. Lengths below it are not slid over
    config.last = 0  # K, the targets `same_token` scores in a window; 0: shortest length / 4
    config.tokens_per_call = 16_384  # a batch holds as many windows as fit
    config.wandb = ConfigDict()
    config.wandb.mode = ""  # empty: that of the run; auto, online, offline, disabled
    return config
