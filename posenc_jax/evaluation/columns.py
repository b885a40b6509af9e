"""The columns of curves.csv and what they hold, in their order; new ones come last."""

_PARTS = (
    "part of the targets (gap: 65-128 tokens back; found: within or beyond L; last_of_two: within, "
    "hard, beyond, one-pass, apart-5-8, back-65-128; depth: 0.1-0.2) or change to the text (order: "
    "shuffled-16; copies: 9216 with a copy 9,216 tokens back, unread-9216 without; riffle: alone, "
    "riffled, foreign, and the differences price, null-price and saved; planted: 0, or 3-128 with "
    "3 older settings 128 tokens apart)"
)
COLUMNS = {
    "run": "name of the run's folder",
    "encoding": "scheme, a file in posenc_jax/schemes",
    "extension": "extension or composition, with options other than defaults; fresh: a baseline",
    "scale": "s of the extension; empty if it has none or follows the length",
    "protocol": "what was measured: docs/evaluation.md",
    "window": "tokens a query sees, itself included; empty: all; without an extension a baseline",
    "stride": "targets per window of sliding",
    "train_length": "L, the longest length the run was trained at",
    "length": "tokens in a window",
    "tokens": "scored targets",
    "token_hash": "hash of the scored targets; rows with the same hash compare",
    "nll": "mean loss, nats per token",
    "nll_se": "standard error of nll over documents, without the correction for leverage",
    "ppl": "perplexity per token, exp(nll)",
    "bpb": "bits per byte; empty if the tokenizer loses text",
    "null_nll": "null of this row, nats per token; empty where its protocol has none",
    "gain_bpb": "gain over the null, bits per byte; positive: more than L tokens pay",
    "seed": "seed of the run",
    "step": "checkpoint",
    "last": "targets per window of same_token and its kin; tokens of a block of riffle",
    "documents": "documents scored; a package or the stretches of a document count as one",
    "answers": "scored targets marked as answers (synthetic text)",
    "accuracy": "share of the answers that the model ranks first",
    "flag": "why a number is missing: not finite, no bits per byte, a method that does not fit",
    "windows": "windows read",
    "null_low": "95% interval of null_nll over documents, lower end",
    "null_high": "upper end",
    "gain_low": "95% interval of gain_bpb over documents, lower end",
    "gain_high": "upper end",
    "evaluation": "name of the evaluation",
    "text": "description of the text",
    "data": "fingerprint of the text",
    "part": _PARTS,
    "chance": "accuracy of a guess",
    "ceiling": "accuracy of a reader that finds every setting in its window",
    "accuracy_low": "95% Wilson interval of accuracy, lower end",
    "accuracy_high": "upper end",
    "method": "name of the row in tables and pictures: none, window, fresh, yarn:8+logn",
    "orderless": "accuracy of a reader without order (variables, planted)",
    "older": "older settings of the asked names",
    "separation": "tokens between the last two settings (last_of_two, planted)",
    "weights": "digest of the parameters",
    "processor": "device that computed the row",
    "jaxlib": "version that computed the row",
}
for _name in ("window", "fresh", "streaming"):
    COLUMNS |= {
        f"over_{_name}": f"gain over the baseline {_name}, beyond L, nats per token",
        f"over_{_name}_low": "95% interval of that gain, paired by document, lower end",
        f"over_{_name}_high": "upper end",
    }
COLUMNS |= {
    "nll_low": "95% interval of nll over documents, lower end",
    "nll_high": "upper end",
    "older_right": "share answered with the older value (last_of_two)",
    "other": "share answered with another value (last_of_two)",
    "found": "share found beyond chance (found)",
    "held": "share of pairs whose values are both found alone (last_of_two)",
    "order": "share of held pairs answered with the last value (last_of_two)",
    "unit": "what counts as one in intervals: package, stretch; empty: document",
    "units": "their number",
}
