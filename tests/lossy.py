"""Tokenizers that do not give the text back, by what they lose."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

TEXT = "Ann and Émile met at the café. They said \x1b<end>\x1b 1 word\r\n"


def letters(normalizer=None):
    """One token per letter."""
    known = sorted({"?", *"abcdefgh 0123456789E", *TEXT, *TEXT.lower()})
    vocab = {letter: i for i, letter in enumerate(known)}
    learned = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    learned.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    learned.decoder = decoders.Fuse()
    if normalizer is not None:
        learned.normalizer = normalizer
    return learned


def gapped():
    """A BPE that has no token for some letters, and none for the unknown."""
    learned = Tokenizer(models.BPE({letter: 2 * i for i, letter in enumerate("abcdef ")}, []))
    learned.decoder = decoders.Fuse()
    return learned


LOSSY = {
    "lower_case": lambda: letters(normalizers.Lowercase()),
    "no_accents": lambda: letters(
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    ),
    "no_unknown": gapped,
}
