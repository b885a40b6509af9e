"""The tokenizer that belongs to a text or to prepared tokens."""

from posenc_jax.data import tokenizer
from posenc_jax.data.corpora import card_of
from posenc_jax.data.sources import Origin, Text
from posenc_jax.data.sources.tokens import Tokens
from posenc_jax.data.writing import TOKENIZER, Encoder
from posenc_jax.errors import DataError


def encoder_of(origin: Origin) -> Encoder | tokenizer.Unavailable:
    """The tokenizer of a text; that of prepared tokens may be unavailable."""
    if not isinstance(origin, Tokens):
        return tokenizer.load(file_of(origin))
    card = _card(origin)
    try:
        return tokenizer.load(file_of(origin))
    except DataError as error:
        name, vocab = str(card["tokenizer"]), card["vocab"]
        return tokenizer.Unavailable(name, vocab, str(card.get("tokenizer_hash")), str(error))


def file_of(origin: Origin) -> str:
    """`bytes`, or the tokenizer file that belongs to a text's tokens."""
    if isinstance(origin, Text):
        return origin.tokenizer
    assert isinstance(origin, Tokens)
    card = _card(origin)
    if card.get("tokenizer_hash") == tokenizer.Bytes.hash:
        return tokenizer.Bytes.name
    path = origin.folder / TOKENIZER
    if not path.is_file():
        raise DataError(
            f"{origin.tokens} holds tokens of {card['tokenizer']} and no {TOKENIZER}; put that "
            "file there, or take tokens made beforehand (data.tokens)"
        )
    beside = tokenizer.load(str(path))
    if beside.hash != card.get("tokenizer_hash"):
        raise DataError(f"{path} is not the tokenizer of the tokens in its folder")
    return str(path)


def _card(origin: Tokens) -> dict:
    card = card_of(origin.folder)
    if card is None:
        raise DataError(f"{origin.tokens} holds no prepared tokens (data.tokens)")
    return card
