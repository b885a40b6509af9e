"""The fields of an evaluation that choose its text."""

import dataclasses

from posenc_jax.fields import default, one_of


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    source: str = default("", "empty: the held-out documents of the run's own text")
    path: str = default("", "files or globs of another text to evaluate on")
    tokens: str = default("", "a folder of prepared tokens to evaluate on, instead of a text")
    part: str = default(
        "held_out",
        "of the run's own text: held_out, choose (data.choose_fraction)",
        one_of("held_out", "choose"),
    )
    field: str = default(
        "", "field of a JSON line or row that holds the text; empty: that of the run"
    )
    split: str = default("", "split of a hub data set; empty: that of the run")
    name: str = default("", "configuration of a hub data set; empty: the run's, of its own data")
    revision: str = default("", "of a hub data set; empty: that of the run, of its own data")
    begins: str = default("", "line or row that begins a document; empty: the run's, of its own")
    valid_path: str = default(
        "", "where the held-out documents of a run that moved are now, beside path"
    )
