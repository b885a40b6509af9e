"""Tokenizers that do not give the text back: noticed, said, and no bits per byte from them."""

import pytest
from lossy import LOSSY, TEXT, letters
from tokenizers import Tokenizer, models

from configs import base
from posenc_jax.data import corpora, tokenizer
from posenc_jax.errors import DataError


def specials():
    """A byte-level BPE whose special token is spelled in the text."""
    learned = tokenizer.train_bpe([TEXT], 270)
    learned.add_special_tokens(["\x1b<end>\x1b"])
    return learned


NONE_IN = sum(letter not in "abcdef " for letter in TEXT)  # gapped()


@pytest.fixture
def made(tmp_path):
    """The corpus of some texts through a tokenizer."""

    def make(learned, texts=(TEXT, "abc"), **fields):
        (tmp_path / "texts").mkdir()
        for i, text in enumerate(texts):
            (tmp_path / "texts" / f"{i:03d}.txt").write_bytes(text.encode())
        if learned is not None:
            learned.save(str(tmp_path / "t.json"))
        data = base.get_config().data
        data.update(source="text", path=f"{tmp_path}/texts/*.txt", cache=str(tmp_path / "cache"))
        data.update(tokenizer="bytes" if learned is None else str(tmp_path / "t.json"))
        data.update(valid_fraction=0.0, **fields)
        return corpora.prepare(data, 0)

    return make


@pytest.mark.parametrize(
    ("name", "characters", "examples"),
    [("lower_case", 3, "AÉT"), ("no_accents", 2, "Éé"), ("no_unknown", NONE_IN, TEXT)],
)
def test_what_does_not_come_back_is_counted_and_said(name, characters, examples, made, capsys):
    made_corpus = made(LOSSY[name]())
    lossy = made_corpus.card["lossy"]
    assert not made_corpus.lossless and not made_corpus.train.lossless
    assert (lossy["documents"], lossy["changed"], lossy["characters"]) == (2, 1, characters)
    assert lossy["examples"] and set(lossy["examples"]) <= set(examples)
    said = capsys.readouterr().err
    assert said.count("warning: ") == 1
    assert (
        f"1 of the first 2 documents decode to other text, without {characters} of their "
        "characters, "
        f"such as {lossy['examples'][0]!r}"
    ) in said


@pytest.mark.parametrize(
    "learned", [None, letters, lambda: tokenizer.train_bpe([TEXT], 270), specials]
)
def test_what_comes_back_is_lossless(learned, made, capsys):
    made_corpus = made(learned and learned())
    assert made_corpus.lossless and made_corpus.train.lossless
    assert made_corpus.card["lossy"]["documents"] == (2 if learned else 0)
    assert "warning" not in capsys.readouterr().err


def test_bytes_that_are_no_text_are_lossless(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"abc\xff\xfe")
    data = base.get_config().data
    data.update(source="text", path=f"{tmp_path}/a.txt", cache=str(tmp_path / "cache"))
    data.update(valid_fraction=0.0)
    assert corpora.prepare(data, 0).lossless


def test_a_text_that_loses_no_letter_may_still_come_back_another(made, capsys):
    learned = letters()
    learned.decoder = None  # tokens are joined by spaces
    made_corpus = made(learned)
    assert made_corpus.card["lossy"]["characters"] == 0 and not made_corpus.lossless
    assert "documents decode to other text. Bits per byte" in capsys.readouterr().err


def test_the_first_documents_are_tried_and_no_more(made):
    many = [f"{i:03d} abc" for i in range(63)] + ["É", "É later"]  # the 64th, and one too late
    made_corpus = made(LOSSY["no_accents"](), many)
    assert made_corpus.card["lossy"]["documents"] == 64
    assert made_corpus.card["lossy"]["changed"] == 1


def test_a_long_document_is_tried_in_part(made, monkeypatch):
    monkeypatch.setattr(tokenizer.RoundTrip, "CHARACTERS", 100)
    made_corpus = made(LOSSY["no_accents"](), ["ab" * 49 + "ÉaÉ", "É"])
    lossy = {"documents": 1, "changed": 1, "characters": 1, "examples": ["É"]}
    assert made_corpus.card["lossy"] == lossy


def test_a_word_without_a_token_is_an_error_that_names_the_document(tmp_path):
    Tokenizer(models.WordLevel({"a": 0}, unk_token="?")).save(str(tmp_path / "t.json"))
    encoder = tokenizer.load(str(tmp_path / "t.json"))
    with pytest.raises(DataError, match="doc.txt: .*t.json has no tokens for it: .*UNK"):
        encoder.encode(b"b", "doc.txt")


def test_special_tokens_are_written_out(tmp_path):
    specials().save(str(tmp_path / "t.json"))
    encoder = tokenizer.load(str(tmp_path / "t.json"))
    tokens, _ = encoder.encode(TEXT.encode(), "text")
    assert encoder.decode(tokens) == TEXT


def test_a_name_is_found_in_the_cache_of_the_hub(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    folder = tmp_path / "hub" / "models--maker--letters"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("c0ffee")
    (folder / "snapshots" / "c0ffee").mkdir(parents=True)
    tokenizer.train_bpe([TEXT], 270).save(str(folder / "snapshots" / "c0ffee" / "tokenizer.json"))
    encoder = tokenizer.load("maker/letters")
    assert isinstance(encoder, tokenizer.Learned)
    assert (encoder.name, encoder.vocab) == ("maker/letters", 270)
    assert encoder.hash == tokenizer.load(str(folder / "snapshots" / "c0ffee")).hash
    with pytest.raises(DataError, match="no file or folder 'letters', and no tokenizer .* Hub"):
        tokenizer.load("letters")
