"""Text to token numbers. Bytes, or any tokenizer that the library `tokenizers` reads."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np

from posenc_jax.errors import DataError


class Bytes:
    """One token per byte."""

    name = "bytes"
    vocab = 256
    hash = "bytes"

    def encode(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.frombuffer(text, np.uint8)
        return tokens, np.ones(len(tokens), np.uint8)

    def decode(self, tokens) -> str:
        return bytes(np.asarray(tokens, np.uint8)).decode(errors="replace")


class Learned:
    """A tokenizer.json, or a folder with vocab.json and merges.txt as GPT-2 has it."""

    def __init__(self, path: Path):
        self.name = str(path)
        self.tokenizer = _load(path)
        # A published file may ask for cut or padded texts; the whole text is wanted here.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab = 1 + max(self.tokenizer.get_vocab().values())  # numbers may have holes
        self.hash = hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()

    def encode(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Tokens, and how many bytes of the text each one adds; these sum to its length."""
        string = decode_utf8(text, name)
        try:
            encoding = self.tokenizer.encode(string, add_special_tokens=False)
        except Exception as error:  # plain ones: of a word that has no token, say
            raise DataError(f"{name}: {self.name} has no tokens for it: {error}") from error
        ends = np.array([end for _, end in encoding.offsets], np.int64)
        byte_at = _byte_offsets(string)
        ends = np.maximum.accumulate(byte_at[ends]) if len(ends) else ends
        if len(ends):
            ends[-1] = len(text)
        return np.array(encoding.ids, np.int64), np.diff(ends, prepend=0)

    def decode(self, tokens) -> str:
        """A text may spell special tokens, so they are written out like others."""
        return self.tokenizer.decode(np.asarray(tokens).tolist(), skip_special_tokens=False)


class RoundTrip:
    """What the first documents of a text lose on their way to tokens and back: a tokenizer that
    lower-cases, drops accents or has no token for a character predicts less than the text."""

    DOCUMENTS, CHARACTERS = 64, 1_000_000

    def __init__(self, encoder: Bytes | Learned):
        self.encoder = encoder
        self.documents = self.changed = self.characters = 0
        self.lost: Counter[str] = Counter()

    def see(self, text: bytes, name: str) -> None:
        room = self.CHARACTERS - self.characters
        if isinstance(self.encoder, Bytes) or self.documents == self.DOCUMENTS or not room:
            return
        before = decode_utf8(text, name)[:room]
        tokens, _ = self.encoder.encode(before.encode(), name)
        after = self.encoder.decode(tokens)
        if after == f" {before}":  # some put a space in front, which loses nothing
            after = before
        self.documents += 1
        self.characters += len(before)
        self.changed += after != before
        self.lost += Counter(before) - Counter(after)

    def card(self) -> dict:
        return {
            "documents": self.documents,
            "changed": self.changed,
            "characters": self.lost.total(),
            "examples": [character for character, _ in self.lost.most_common(3)],
        }


def load(name: str) -> Bytes | Learned:
    return Bytes() if name == "bytes" else Learned(Path(name).expanduser())


def decode_utf8(text: bytes, name: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} is not UTF-8 at byte {error.start} (0x{text[error.start]:02x}); mend it, "
            "or use data.tokenizer=bytes, which takes any bytes"
        ) from error


def _byte_offsets(string: str) -> np.ndarray:
    """For each place between characters, the bytes before it."""
    points = np.frombuffer(string.encode("utf-32-le"), np.uint32)
    width = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate([[0], np.cumsum(width)])


def _load(path: Path):
    import tokenizers

    try:
        if path.is_dir():
            vocab, merges = path / "vocab.json", path / "merges.txt"
            for file in (vocab, merges):
                if not file.is_file():
                    raise DataError(f"data.tokenizer: {path} is a folder without {file.name}")
            tokenizer = tokenizers.Tokenizer(
                tokenizers.models.BPE.from_file(str(vocab), str(merges))
            )
            tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = tokenizers.decoders.ByteLevel()
            return tokenizer
        if not path.is_file():
            raise DataError(
                f"data.tokenizer must be 'bytes', a tokenizer.json, or a folder with vocab.json "
                f"and merges.txt; there is no {path}"
            )
        json.loads(path.read_text(encoding="utf-8"))
        return tokenizers.Tokenizer.from_file(str(path))
    except DataError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"data.tokenizer: cannot read {path}: {error}") from error


def train_bpe(texts, vocab: int):
    """A byte-level BPE of `vocab` tokens."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
