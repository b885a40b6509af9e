"""python scripts/prepare_data.py --config=configs/rope.py [--vocab=4096 --out=tokenizer.json]

Writes the tokens of a configuration's text to the cache and prints their counts. With --vocab it
first trains a byte-level BPE of that size on the training documents and writes it to --out, for
--config.data.tokenizer=OUT.

--tokens_out=FOLDER also writes the tokens, held-out text and tokenizer to a folder, four bytes per
token (one with the tokenizer bytes, six with a vocabulary above 65,536). With
--config.data.tokens=FOLDER a run trains on them, on machines without the text or the package
tokenizers. --limit=16e6 keeps at most that many training tokens: whole documents, chosen by a hash
of their text, and the same share of the held-out text.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

from posenc_jax import config
from posenc_jax.config.flags import parse_flags, refuse_missing
from posenc_jax.config.schema import Training
from posenc_jax.data.sources import Documents
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.runtime import backend, terminal
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import NO_FILE, expanded, is_replaceable, write_atomically


def main(argv: list[str]) -> int:
    return terminal.code_of(lambda: write_tokens(argv))


def write_tokens(argv: list[str]) -> None:
    backend.configure()
    flags, recipe, problems = parse_flags(argv, __doc__ or "", define=_define)
    refuse_missing(problems, recipe)
    from posenc_jax.data import export
    from posenc_jax.data.prepare import prepare

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
    run = config.load(recipe, more=problems)
    source = run.data.source
    if not isinstance(source, Documents):
        made = "data.tokens are already prepared; name a text to prepare instead"
        several = "data.mixture is several texts; prepare each of them"
        raise ConfigError(made if isinstance(source, Tokens) else several)
    if flags.vocab is not None:
        source = _train(run, source, flags.vocab, flags.out)
    corpus = prepare(source, run.seed)
    if flags.tokens_out:
        place = expanded(flags.tokens_out)
        limit = None if flags.limit is None else int(flags.limit)
        corpus = export.write(corpus, place, limit)
        size = sum(path.stat().st_size for path in place.iterdir()) / 2**20
        terminal.say(f"{size:,.1f} MiB, for --config.data.tokens={flags.tokens_out}")
    terminal.say(f"{corpus.folder}\nfingerprint {corpus.fingerprint}\n{corpus.card['counts']}")
    for name, facts in corpus.card["splits"].items():
        terminal.say(f"{name}: {facts}")
    longer = corpus.in_longer(run.train_length)
    terminal.say(f"{longer:.1%} of the training tokens are in documents longer than L")


def _define(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("--vocab", type=int)
    flags.add_argument("--out", type=terminal.in_known_home, default="tokenizer.json")
    flags.add_argument("--tokens_out", "--tokens-out", type=terminal.in_known_home, default="")
    flags.add_argument("--limit", type=float)


def _train(run: Training, source: Documents, vocab: int, out: str) -> Documents:
    """The source with a tokenizer that is trained on its training documents."""
    from posenc_jax.data import tokenizer
    from posenc_jax.data.prepare import prepare

    split = prepare(dataclasses.replace(source, tokenizer="bytes"), run.seed).train
    texts = (
        bytes(split.tokens[start:end]).decode(errors="replace")
        for start, end in zip(split.starts, split.starts[1:], strict=False)
    )
    learned = tokenizer.train_bpe(texts, vocab)
    write_atomically(Path(out), learned.to_str(pretty=True))
    terminal.say(f"a BPE of {learned.get_vocab_size()} tokens: {out}")
    return dataclasses.replace(source, tokenizer=out)


if __name__ == "__main__":
    sys.exit(terminal.program(main))
