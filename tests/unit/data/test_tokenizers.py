"""Tokenizers that do not give the text back: noticed, said, and no bits per byte from them."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from running import ROOT
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from configs import base
from posenc_jax.data import corpora, tokenizer
from posenc_jax.errors import DataError
from posenc_jax.runs.metrics import read_metrics

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


def specials():
    """A byte-level BPE whose special token is spelled in the text."""
    learned = tokenizer.train_bpe([TEXT], 270)
    learned.add_special_tokens(["\x1b<end>\x1b"])
    return learned


LOSSY = {
    "lower_case": lambda: letters(normalizers.Lowercase()),
    "no_accents": lambda: letters(
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    ),
    "no_unknown": gapped,
}


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
        f"of its first 2 documents 1 come back changed, without {characters} of their characters, "
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
    assert "documents 2 come back changed. Bits per byte" in capsys.readouterr().err


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


@pytest.fixture
def texts(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "many").mkdir()
    for i in range(12):
        text = "".join(rng.choice(list("abcdef É"), 240))
        (tmp_path / "many" / f"{i}.txt").write_text(text)
    learned = LOSSY["no_accents"]()
    learned.save(str(tmp_path / "lossy.json"))
    return {
        "data.path": f"{tmp_path}/many/*.txt",
        "data.cache": tmp_path / "cache",
        "data.tokenizer": tmp_path / "lossy.json",
    }


def test_training_states_no_bits_per_byte_of_it(texts, call, tmp_path, monkeypatch):
    import wandb

    logged = []
    run = SimpleNamespace(
        log=logged.append, define_metric=lambda *a, **k: None, finish=lambda **k: None, summary={}
    )
    monkeypatch.setattr(wandb, "init", lambda **options: run)
    fields = {"data.choose_fraction": 0.3, "wandb.mode": "online", "steps": 6}
    fields["valid_every"] = 6
    out = call("train.py", tmp_path / "run", **texts, **fields)
    assert "does not give the text back: of its first 12 documents 12 come back" in out
    assert out.count("warning: ") == 1 and "bits/byte" not in out
    assert re.search(r"documents held out; \d+ to choose on; no bits per byte, the tokenizer", out)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [3, 6]
    for line in lines:
        assert line["bpb"] is None and line["loss"] > 0
    assert lines[1]["valid_bpb"] is None is lines[1]["choose_bpb"]
    assert lines[1]["choose_loss"] > 0
    assert f"held out: loss {lines[1]['valid_loss']:.4f}  to choose on: loss" in out
    assert len(logged) == 2 and all("train/loss" in line for line in logged)
    assert not any("bpb" in name for line in logged for name in line)


def test_a_step_that_is_not_finite_is_still_seen(texts, call, tmp_path):
    fields = {"learning_rate": 1e30, "warmup_steps": 0}
    out = call("train.py", tmp_path / "run", **texts, **fields, code=70)
    assert "is not finite: grad_norm" in out and "bpb" not in out


def test_preparing_the_text_says_it(texts, tmp_path):
    program = ["scripts/prepare_data.py", "--config=configs/rope.py", "--config.data.source=text"]
    program += [f"--config.{name}={value}" for name, value in texts.items()]
    for _ in range(2):  # built, and found in the cache
        done = subprocess.run([sys.executable, *program], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("warning: the tokenizer ") == 1
    folder = done.stdout.splitlines()[0]
    with open(f"{folder}/corpus.json") as stream:
        assert json.load(stream)["lossy"]["examples"] == ["É"]
