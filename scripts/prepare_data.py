"""python scripts/prepare_data.py --config=configs/rope.py [--vocab=4096 --out=tokenizer.json]

Writes the tokens of a configuration's text into the cache, and says what is in them. With --vocab a
byte-level BPE of that many tokens is trained on the training documents first and written to --out;
--config.data.tokenizer=OUT uses it from then on.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from absl import flags as absl_flags  # noqa: E402

from posenc_jax import command, configuration, terminal  # noqa: E402


def main(argv: list[str]) -> int:
    flags, config = command.read(argv, __doc__ or "", define=_define)
    problems = configuration.validate(config)
    if flags.vocab is not None and flags.vocab < 257:
        problems.append(
            f"--vocab must be at least 257, one token more than bytes; got {flags.vocab}"
        )
    if problems:
        command.refuse(problems)
    config = configuration.resolved(config)

    return terminal.code_of(lambda: _prepare(config, flags.vocab, flags.out))


def _prepare(config, vocab: int | None, out: str) -> None:
    from posenc_jax.data import corpora

    if vocab is not None:
        _train(config, vocab, out)
    made = corpora.prepare(config.data, config.seed)
    print(f"{made.folder}\nfingerprint {made.fingerprint}\n{made.card['counts']}")
    for name, facts in made.card["splits"].items():
        print(f"{name}: {facts}")


def _define(values: absl_flags.FlagValues) -> None:
    absl_flags.DEFINE_integer("vocab", None, "train a BPE of this many", flag_values=values)
    absl_flags.DEFINE_string("out", "tokenizer.json", "where it goes", flag_values=values)


def _train(config, vocab: int, out: str) -> None:
    from posenc_jax.data import corpora, tokenizer

    data = config.data.copy_and_resolve_references()
    data.tokenizer = "bytes"
    split = corpora.prepare(data, config.seed).train
    texts = (
        bytes(split.tokens[start:end]).decode(errors="replace")
        for start, end in zip(split.starts, split.starts[1:], strict=False)
    )
    tokenizer.train_bpe(texts, vocab).save(out)
    config.data.tokenizer = out
    print(f"a BPE of {vocab} tokens: {out}")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
