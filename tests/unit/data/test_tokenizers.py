"""Lossy tokenizers are detected and reported, and yield no bits per byte."""

import pytest
from lossy import LOSSY, TEXT, letters
from tokenizers import Tokenizer, models

from posenc_jax.data import tokenizer
from posenc_jax.runtime.errors import DataError


def specials():
    """Return a byte-level BPE whose special token occurs in the text."""
    learned = tokenizer.train_bpe([TEXT], 270)
    learned.add_special_tokens(["\x1b<end>\x1b"])
    return learned


NONE_IN = sum(letter not in "abcdef " for letter in TEXT)  # gapped()


@pytest.fixture
def tokenized(tmp_path, prepare):
    """Prepare a corpus of texts with a tokenizer."""

    def make(learned, texts=(TEXT, "abc")):
        (tmp_path / "texts").mkdir(exist_ok=True)
        for i, text in enumerate(texts):
            (tmp_path / "texts" / f"{i:03d}.txt").write_bytes(text.encode())
        fields = {"source": "text", "path": f"{tmp_path}/texts/*.txt", "valid_fraction": 0.0}
        if learned is not None:
            learned.save(str(tmp_path / "t.json"))
            fields["tokenizer"] = str(tmp_path / "t.json")
        return prepare(**fields, quiet=False)

    return make


@pytest.mark.parametrize(
    ("name", "characters", "examples"),
    [("lower_case", 3, "AÉT"), ("no_accents", 2, "Éé"), ("no_unknown", NONE_IN, TEXT)],
)
def test_lost_characters_are_counted_and_reported(name, characters, examples, tokenized, capsys):
    corpus = tokenized(LOSSY[name]())
    lossy = corpus.card["lossy"]
    assert not corpus.lossless and not corpus.train.lossless
    assert (lossy["documents"], lossy["changed"], lossy["characters"]) == (2, 1, characters)
    assert lossy["examples"] and set(lossy["examples"]) <= set(examples)
    message = capsys.readouterr().err
    assert tokenized(LOSSY[name]()).card == corpus.card  # found in the cache, and reported again
    assert message.endswith(capsys.readouterr().err) and message.count("warning: ") == 1
    assert (
        f"1 of the first 2 documents decode to other text, without {characters} of their "
        "characters, "
        f"such as {lossy['examples'][0]!r}"
    ) in message


@pytest.mark.parametrize(
    "learned", [None, letters, lambda: tokenizer.train_bpe([TEXT], 270), specials]
)
def test_exact_round_trips_are_lossless(learned, tokenized, capsys):
    corpus = tokenized(learned and learned())
    assert corpus.lossless and corpus.train.lossless
    assert corpus.card["lossy"]["documents"] == (2 if learned else 0)
    assert "warning" not in capsys.readouterr().err


def test_invalid_utf8_is_lossless_as_bytes(tmp_path, prepare):
    (tmp_path / "a.txt").write_bytes(b"abc\xff\xfe")
    assert prepare(source="text", path=f"{tmp_path}/a.txt", valid_fraction=0.0).lossless


def test_a_round_trip_that_adds_characters_is_lossy(tokenized, capsys):
    learned = letters()
    learned.decoder = None  # joins tokens with spaces
    corpus = tokenized(learned)
    assert corpus.card["lossy"]["characters"] == 0 and not corpus.lossless
    assert "documents decode to other text. Bits per byte" in capsys.readouterr().err


def test_the_round_trip_covers_64_documents(tokenized):
    many = [f"{i:03d} abc" for i in range(63)] + ["É", "É later"]  # the 64th and 65th documents
    corpus = tokenized(LOSSY["no_accents"](), many)
    assert corpus.card["lossy"]["documents"] == 64
    assert corpus.card["lossy"]["changed"] == 1


def test_the_round_trip_truncates_long_documents(tokenized, monkeypatch):
    monkeypatch.setattr(tokenizer.RoundTrip, "CHARACTERS", 100)
    corpus = tokenized(LOSSY["no_accents"](), ["ab" * 49 + "ÉaÉ", "É"])
    lossy = {"documents": 1, "changed": 1, "characters": 1, "examples": ["É"]}
    assert corpus.card["lossy"] == lossy


def test_an_unknown_word_is_refused_with_its_document(tmp_path):
    Tokenizer(models.WordLevel({"a": 0}, unk_token="?")).save(str(tmp_path / "t.json"))
    encoder = tokenizer.load(str(tmp_path / "t.json"))
    with pytest.raises(DataError, match="doc.txt: .*t.json has no tokens for it: .*UNK"):
        encoder.encode(b"b", "doc.txt")


def test_special_tokens_in_the_text_are_encoded_as_text(tmp_path):
    specials().save(str(tmp_path / "t.json"))
    encoder = tokenizer.load(str(tmp_path / "t.json"))
    tokens, _ = encoder.encode(TEXT.encode(), "text")
    assert encoder.decode(tokens) == TEXT


def test_a_tokenizer_name_is_found_in_the_hub_cache(tmp_path, monkeypatch):
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
