"""Lossy tokenizers, by the kind of loss."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

TEXT = "Ann and Émile met at the café. They said \x1b<end>\x1b 1 word\r\n"


def letters(normalizer=None):
    """Return a tokenizer with one token per letter."""
    known = sorted({"?", *"abcdefgh 0123456789E", *TEXT, *TEXT.lower()})
    vocab = {letter: i for i, letter in enumerate(known)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def gapped():
    """Return a BPE without tokens for some letters and without an unknown token."""
    tokenizer = Tokenizer(models.BPE({letter: 2 * i for i, letter in enumerate("abcdef ")}, []))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


LOSSY = {
    "lower_case": lambda: letters(normalizers.Lowercase()),
    "no_accents": lambda: letters(
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    ),
    "no_unknown": gapped,
}
