"""The columns of curves.csv in their order, and what they hold; new ones come last."""

from typing import NamedTuple


class Column(NamedTuple):
    about: str
    kind: type | None = None  # of a fact of a cell: str, int or float; None: computed from its sums


_PARTS = (
    "part of the targets (gap: 65-128 tokens back; found: within or beyond L; last_of_two: within, "
    "hard, beyond, one-pass, apart-5-8, back-65-128; depth: 0.1-0.2) or change to the text (order: "
    "shuffled-16; copies: 9216 with a copy 9,216 tokens back, near-9216 with one 128 back, "
    "unread-9216 without; riffle: alone, riffled, foreign, and the differences price, null-price "
    "and saved; revised: 412-50 with the last setting 412 back and 50 between, older-, absent-)"
)
OF_PROTOCOL = Column("")  # declared by protocols, and here for its place alone
COMMON = {
    "run": Column("name of the run's folder", str),
    "encoding": Column("scheme, a file in posenc_jax/schemes", str),
    "extension": Column(
        "extension or composition, with options other than defaults; fresh: a baseline", str
    ),
    "scale": Column("s of the extension; empty if it has none or follows the length", float),
    "protocol": Column("what was measured: docs/evaluation.md", str),
    "window": Column(
        "tokens a query sees, itself included; empty: all; without an extension a baseline", int
    ),
    "stride": OF_PROTOCOL,
    "train_length": Column("L, the longest length the run was trained at", int),
    "length": Column("tokens in a window", int),
    "tokens": Column("scored targets"),
    "token_hash": Column("hash of the scored targets; rows with the same hash compare", str),
    "nll": Column("mean loss, nats per token"),
    "nll_se": Column("standard error of nll over documents, without the correction for leverage"),
    "ppl": Column("perplexity per token, exp(nll)"),
    "bpb": Column("bits per byte; empty if the tokenizer loses text"),
    "null_nll": Column("null of this row, nats per token; empty where its protocol has none"),
    "gain_bpb": Column("gain over the null, bits per byte; positive: more than L tokens pay"),
    "seed": Column("seed of the run", int),
    "step": Column("checkpoint", int),
    "last": OF_PROTOCOL,
    "documents": Column("documents scored; a package or the stretches of a document count as one"),
    "answers": Column("scored targets marked as answers (synthetic text)"),
    "accuracy": Column("share of the answers that the model ranks first"),
    "flag": Column(
        "why a number is missing: not finite, no bits per byte, a method that does not fit"
    ),
    "windows": Column("windows read"),
    "null_low": Column("95% interval of null_nll over documents, lower end"),
    "null_high": Column("upper end"),
    "gain_low": Column("95% interval of gain_bpb over documents, lower end"),
    "gain_high": Column("upper end"),
    "evaluation": Column("name of the evaluation", str),
    "text": Column("description of the text", str),
    "data": Column("fingerprint of the text", str),
    "part": Column(_PARTS, str),
    "chance": OF_PROTOCOL,
    "ceiling": OF_PROTOCOL,
    "accuracy_low": Column("95% Wilson interval of accuracy, lower end"),
    "accuracy_high": Column("upper end"),
    "method": Column("name of the row in tables and pictures: none, window, fresh, yarn:8+logn"),
    "orderless": OF_PROTOCOL,
    "older": OF_PROTOCOL,
    "separation": OF_PROTOCOL,
    "weights": Column("digest of the parameters", str),
    "processor": Column("device that computed the row", str),
    "jaxlib": Column("version that computed the row", str),
}
for _name in ("window", "fresh", "streaming"):
    COMMON |= {
        f"over_{_name}": Column(f"gain over the baseline {_name}, beyond L, nats per token"),
        f"over_{_name}_low": Column("95% interval of that gain, paired by document, lower end"),
        f"over_{_name}_high": Column("upper end"),
    }
COMMON |= {
    "nll_low": Column("95% interval of nll over documents, lower end"),
    "nll_high": Column("upper end"),
    "older_right": OF_PROTOCOL,
    "other": OF_PROTOCOL,
    "found": OF_PROTOCOL,
    "held": OF_PROTOCOL,
    "order": OF_PROTOCOL,
    "unit": Column("what counts as one in intervals: package, stretch; empty: document", str),
    "units": Column("their number"),
}
