"""python scripts/prepare_data.py --config=configs/rope.py [--vocab=4096 --out=tokenizer.json]

Writes the tokens of a configuration's text to the cache and prints their counts. With --vocab it
first trains a byte-level BPE of that size on the training documents and writes it to --out, for
--config.data.tokenizer=OUT.

--tokens_out=FOLDER also writes the tokens, held-out text and tokenizer to a folder, about two bytes
per token: --config.data.tokens=FOLDER trains on them, on machines without the text or the package
tokenizers. --limit=16e6 keeps at most that many training tokens: whole documents, chosen by a hash
of their text, and the same share of the held-out text.
"""

import sys
from pathlib import Path

from absl import flags as absl_flags

from posenc_jax import command, lineage, terminal, validation
from posenc_jax.files import NO_FILE, is_replaceable, write_atomically


def main(argv: list[str]) -> int:
    argv = [word.replace("--tokens-out", "--tokens_out") for word in argv]
    flags, config = command.read(argv, __doc__ or "", define=_define)
    problems = validation.validate(config)
    if flags.vocab is not None and flags.vocab < 257:
        problems.append(
            f"--vocab must be at least 257, one token more than bytes; got {flags.vocab}"
        )
    if flags.limit is not None and not (flags.tokens_out and 1 <= flags.limit < 2**53):
        problems.append(
            f"--limit must be at least 1 and needs --tokens_out, whose tokens it limits; "
            f"got {flags.limit:g}"
        )
    if flags.vocab is not None and not is_replaceable(Path(flags.out)):
        problems.append(f"cannot write --out={flags.out}: {NO_FILE}")
    if config.data.get("tokens"):
        problems.append("data.tokens are already prepared; give a text instead")
    if problems:
        command.refuse(problems)
    config = lineage.resolved(config)

    limit = None if flags.limit is None else int(flags.limit)
    return terminal.code_of(
        lambda: _prepare(config, flags.vocab, flags.out, flags.tokens_out, limit)
    )


def _prepare(config, vocab: int | None, out: str, folder: str, limit: int | None) -> None:
    from posenc_jax.data import corpora, prepared, tokenizer

    if vocab is not None:
        _train(config, vocab, out)
    corpus = corpora.prepare(config.data, config.seed, config.train_length)
    if folder:
        encoder, path = tokenizer.load(config.data.tokenizer), Path(folder).expanduser()
        corpus = prepared.write(corpus, encoder, path, limit)
        size = prepared.size_of(path) / 2**20
        terminal.say(f"{size:,.1f} MiB, for --config.data.tokens={folder}")
    terminal.say(f"{corpus.folder}\nfingerprint {corpus.fingerprint}\n{corpus.card['counts']}")
    for name, facts in corpus.card["splits"].items():
        terminal.say(f"{name}: {facts}")


def _define(values: absl_flags.FlagValues) -> None:
    absl_flags.DEFINE_integer("vocab", None, "train a BPE of this many tokens", flag_values=values)
    absl_flags.DEFINE_string("out", "tokenizer.json", "file of the BPE", flag_values=values)
    absl_flags.DEFINE_string("tokens_out", "", "folder for the tokens", flag_values=values)
    absl_flags.DEFINE_float(
        "limit", None, "most training tokens in --tokens_out", flag_values=values
    )


def _train(config, vocab: int, out: str) -> None:
    from posenc_jax.data import corpora, tokenizer

    data = config.data.copy_and_resolve_references()
    data.tokenizer = "bytes"
    split = corpora.prepare(data, config.seed, config.train_length).train
    texts = (
        bytes(split.tokens[start:end]).decode(errors="replace")
        for start, end in zip(split.starts, split.starts[1:], strict=False)
    )
    write_atomically(Path(out), tokenizer.train_bpe(texts, vocab).to_str(pretty=True))
    config.data.tokenizer = out
    terminal.say(f"a BPE of {vocab} tokens: {out}")


if __name__ == "__main__":
    sys.exit(terminal.program(main))
