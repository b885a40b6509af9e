"""Tokens of SentencePiece's own library, from the pieces that a GGUF file would hold."""

import io

import gguf
import numpy as np
import pytest
from llamas import TEXT

from posenc_jax.data import tokenizer
from posenc_jax.pretrained import sources

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

SYMBOLS = ["\n", "\n\n", "\u2581\u2581", "\u2581\u2581\u2581", "<table>"]
STRINGS = [
    "It was  the best   of times,\n\nit was\tthe worst",
    " leading and trailing ",
    "aaaaaaaaabaaaa wwwwwwas itititit",
    "caf\u00e9 \u6771\u4eac \U0001f600\u00a0\u2581x \x00",
    "",
    "the<table>was",
    "1234567890 (times); [best]",
]


@pytest.fixture(scope="module", params=[False, True], ids=["no prefix", "prefix"])
def both(request, tmp_path_factory):
    """A trained model of theirs and our tokenizer from its pieces."""
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXT.split(". "), "a aa aaa aaaa b ab", "0 1 2 3 4 5 6 7 8 9"]),
        model_writer=written,
        model_type="bpe",
        vocab_size=360,
        byte_fallback=True,
        add_dummy_prefix=request.param,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        user_defined_symbols=[] if request.param else SYMBOLS,
        split_digits=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    kinds = {
        gguf.TokenType.UNKNOWN: theirs.is_unknown,
        gguf.TokenType.CONTROL: theirs.is_control,
        gguf.TokenType.BYTE: theirs.is_byte,
    }
    ids = range(theirs.vocab_size())
    pieces = [theirs.id_to_piece(i) for i in ids]
    types = [next((kind for kind, has in kinds.items() if has(i)), 1) for i in ids]
    types = [4 if piece in SYMBOLS else kind for piece, kind in zip(pieces, types, strict=True)]
    facts = {
        "tokenizer.ggml.model": "llama",
        # As converters write them.
        sources.TOKENS: [p.replace("\u2581", " ") if p in SYMBOLS else p for p in pieces],
        sources.TYPES: list(map(int, types)),
        sources.SCORES: [theirs.get_score(i) for i in ids],
        sources.SPACE: request.param,
        sources.BOS_ID: theirs.bos_id(),
    }
    return theirs, *sources._gguf_tokenizer(facts, tmp_path_factory.mktemp("pieces"))


@pytest.mark.parametrize("text", STRINGS)
def test_tokens_and_text_are_those_of_sentencepiece(text, both):
    theirs, ours, _ = both
    assert ours.encode(text).tolist() == theirs.encode(text)
    assert ours.decode(ours.encode(text)) == text.replace("\u2581", " ")
    assert ours.measure(text.encode(), "a text")[1].sum() == len(text.encode())


def test_texts_of_few_letters_have_the_tokens_of_sentencepiece(both):
    """Where neighbours can be merged in many orders."""
    theirs, ours, _ = both
    rng = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(rng.choice([*"aabitws ", "\n"], size=rng.integers(1, 40)))
        assert ours.encode(text).tolist() == theirs.encode(text), repr(text)


def test_the_first_token_is_bos_and_a_saved_tokenizer_is_the_same(both, tmp_path):
    theirs, ours, first = both
    assert first == theirs.bos_id()
    (tmp_path / "tokenizer.json").write_text(ours.tokenizer.to_str())
    read = tokenizer.load(str(tmp_path))
    for text in STRINGS:
        np.testing.assert_array_equal(read.encode(text), ours.encode(text))
