"""Tokenizers: every byte is counted, pieces change nothing, and lost text is reported."""

from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from lossy import LOSSY, TEXT, letters
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from posenc_jax.data import tokenizer
from posenc_jax.runtime.errors import DataError


def specials():
    """Return a byte-level BPE whose special token occurs in the text."""
    learned = tokenizer.train_bpe([TEXT], 270)
    learned.add_special_tokens(["\x1b<end>\x1b"])
    return learned


WIDE = "naïve café: 東京 is 2 words\n" * 30
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
    said = f"1 of the first 2 documents decode to other text, without {characters} of their "
    assert f"{said}characters, such as {lossy['examples'][0]!r}" in message


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
    lossy = tokenized(LOSSY["no_accents"](), many).card["lossy"]
    assert (lossy["documents"], lossy["changed"]) == (64, 1)


def test_the_round_trip_truncates_long_documents(tokenized, monkeypatch):
    monkeypatch.setattr(tokenizer.RoundTrip, "CHARACTERS", 100)
    corpus = tokenized(LOSSY["no_accents"](), ["ab" * 49 + "ÉaÉ", "É"])
    lossy = {"documents": 1, "changed": 1, "characters": 1, "examples": ["É"]}
    assert corpus.card["lossy"] == lossy


@pytest.fixture
def learned(tmp_path):
    """A folder of a trained BPE, as tokenizer.json and as vocab.json with merges.txt."""
    (tmp_path / "files").mkdir()
    trained = tokenizer.train_bpe([WIDE], 280)
    trained.save(str(tmp_path / "tokenizer.json"))
    assert len(trained.model.save(str(tmp_path / "files"))) == 2
    return tmp_path


def test_files_and_folders_give_the_same_tokens_and_every_byte(learned):
    every = [tokenizer.load(str(learned / name)) for name in ("tokenizer.json", ".", "files")]
    encoded = [encoder.measure(WIDE.encode(), "text") for encoder in every]
    for tokens, widths in encoded:
        np.testing.assert_array_equal(tokens, encoded[0][0])
        assert every[0].decode(tokens) == WIDE
        assert widths.sum() == len(WIDE.encode()) and widths.min() >= 0


def test_the_corpus_stores_bytes_per_token(learned, prepare):
    (learned / "a.txt").write_text(WIDE)
    named = {"path": f"{learned}/a.txt", "tokenizer": f"{learned}/tokenizer.json"}
    corpus = prepare(source="text", valid_fraction=0.0, **named)
    assert corpus.train.bytes_of.sum() == len(WIDE.encode())
    assert corpus.vocab == 280 and corpus.train.tokens.dtype == np.uint16


def test_truncation_and_padding_of_a_tokenizer_are_ignored(learned):
    cutting = Tokenizer.from_file(f"{learned}/tokenizer.json")
    cutting.enable_truncation(8)
    cutting.enable_padding(length=8)
    cutting.save(f"{learned}/cutting.json")
    names = ("tokenizer.json", "cutting.json")
    whole, cut = (tokenizer.load(f"{learned}/{n}").measure(WIDE.encode(), "x") for n in names)
    np.testing.assert_array_equal(cut, whole)


def test_text_without_tokens_is_refused_with_its_document(learned):
    broken = b"abc\xff"
    np.testing.assert_array_equal(tokenizer.Bytes().measure(broken, "x")[0], list(broken))
    with pytest.raises(DataError, match=r"x is not UTF-8 at byte 3 \(0xff\)"):
        tokenizer.load(f"{learned}/tokenizer.json").measure(broken, "x")
    Tokenizer(models.WordLevel({"a": 0}, unk_token="?")).save(f"{learned}/t.json")
    with pytest.raises(DataError, match="doc.txt: .*t.json has no tokens for it: .*UNK"):
        tokenizer.load(f"{learned}/t.json").encode("b", "doc.txt")
    panicking = tokenizer.load(f"{learned}/t.json")
    panicking.tokenizer.pre_tokenizer = pre_tokenizers.FixedLength(length=0)
    with pytest.raises(DataError, match="doc.txt: .*t.json has no tokens for it: chunk size"):
        panicking.encode("a", "doc.txt")


def test_token_ids_may_have_gaps():
    model = models.WordLevel({"a": 0, "?": 1, "b": 500}, unk_token="?")
    assert tokenizer.Learned(Path("x"), read=Tokenizer(model)).vocab == 501


def test_an_invalid_tokenizer_is_named(tmp_path):
    with pytest.raises(DataError, match="has neither vocab.json nor a tokenizer.json"):
        tokenizer.load(str(tmp_path))
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(DataError, match="cannot read .*t.json"):
        tokenizer.load(str(tmp_path / "t.json"))


def test_special_tokens_in_the_text_are_encoded_as_text():
    encoder = tokenizer.Learned(Path("x"), read=specials())
    assert encoder.decode(encoder.encode(TEXT)) == TEXT


def test_a_tokenizer_name_is_found_in_the_hub_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refs = tmp_path / "hub" / "models--maker--letters" / "refs"
    snapshot = refs.parent / "snapshots" / "c0ffee"
    for folder in (refs, snapshot):
        folder.mkdir(parents=True)
    (refs / "main").write_text("c0ffee")
    tokenizer.train_bpe([TEXT], 270).save(str(snapshot / "tokenizer.json"))
    encoder = tokenizer.load("maker/letters")
    assert isinstance(encoder, tokenizer.Learned)
    assert (encoder.name, encoder.vocab) == ("maker/letters", 270)
    assert encoder.hash == tokenizer.load(str(snapshot)).hash
    with pytest.raises(DataError, match="no file or folder 'letters', and no tokenizer .* Hub"):
        tokenizer.load("letters")


def test_tokenizing_in_pieces_gives_the_tokens_of_the_whole(monkeypatch):
    """Holds for every tokenizer; text without word boundaries stays whole."""
    rng = np.random.default_rng(0)
    characters = [*"ab c\n\n  \t.,é東😀'x1239\u00a0\u2003 \r\n", "foo ", " bar\n", "don't", "<end>"]
    text = "".join(rng.choice(characters, 4_000))
    monkeypatch.setattr(tokenizer, "PIECE_BYTES", 200)
    monkeypatch.setattr(tokenizer, "CUT_CONTEXT", 40)
    bpe = tokenizer.train_bpe([text], 300)
    bpe.add_special_tokens(["<end>"])
    split = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    split += r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    words = pre_tokenizers.Split(Regex(split), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    kinds = {
        "plain": {},
        "llama": {"pre_tokenizer": pre_tokenizers.Sequence([words, as_bytes])},
        "prefix": {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)},
        "trimmed": {"post_processor": processors.ByteLevel(trim_offsets=True)},
        "normalized": {"normalizer": normalizers.NFKC()},
        "whole": {"pre_tokenizer": None},
        "spaces": {"model": models.WordLevel({"a": 0, "?": 1}, unk_token="?")}
        | {"pre_tokenizer": pre_tokenizers.WhitespaceSplit()},
    }
    cuts = {}
    for name, parts in kinds.items():
        built = Tokenizer.from_str(bpe.to_str())
        for part, value in parts.items():
            setattr(built, part, value)
        encoder = tokenizer.Learned(Path(name), read=built)
        cuts[name] = len(list(tokenizer.cut_pieces(text.encode(), built)))
        tokens, widths = encoder.measure(text.encode(), name)
        whole = built.encode(text, add_special_tokens=False)
        np.testing.assert_array_equal(tokens, whole.ids, err_msg=name)
        offsets = tokenizer.byte_offsets(text)[[end for _, end in whole.offsets]]
        ends = np.maximum.accumulate(offsets)
        ends[-1] = len(text.encode())
        np.testing.assert_array_equal(widths, np.diff(ends, prepend=0), err_msg=name)
    assert cuts["whole"] == 1 and cuts["plain"] > 20 and cuts["llama"] > 20
