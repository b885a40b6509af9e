"""Turn text into token ids: bytes, or any tokenizer that the library `tokenizers` reads."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np

from posenc_jax.errors import DataError


class Bytes:
    """A tokenizer with one token per byte."""

    name = "bytes"
    vocab = 256
    hash = "bytes"

    def encode(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.frombuffer(text, np.uint8)
        return tokens, np.ones(len(tokens), np.uint8)

    def decode(self, tokens) -> str:
        return bytes(np.asarray(tokens, np.uint8)).decode(errors="replace")


class Learned:
    """A tokenizer from a tokenizer.json, or from GPT-2's vocab.json and merges.txt in a folder."""

    def __init__(self, path: Path):
        self.name = str(path)
        self.tokenizer = _load(path)
        # A published file may ask for truncated or padded texts; here the whole text is needed.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab = 1 + max(self.tokenizer.get_vocab().values())  # ids may have gaps
        self.hash = hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()

    def encode(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Tokens, and the bytes of text each of them adds, which sum to the text's length."""
        string = decode_utf8(text, name)
        try:
            encoding = self.tokenizer.encode(string, add_special_tokens=False)
        except Exception as error:  # plain Exceptions, as for a word without a token
            raise DataError(f"{name}: {self.name} has no tokens for it: {error}") from error
        ends = np.array([end for _, end in encoding.offsets], np.int64)
        byte_at = _byte_offsets(string)
        ends = np.maximum.accumulate(byte_at[ends]) if len(ends) else ends
        if len(ends):
            ends[-1] = len(text)
        return np.array(encoding.ids, np.int64), np.diff(ends, prepend=0)

    def decode(self, tokens) -> str:
        """The text of tokens; special tokens are written out, since a text may spell them."""
        return self.tokenizer.decode(np.asarray(tokens).tolist(), skip_special_tokens=False)


class Unavailable:
    """The tokenizer of prepared tokens whose file or package is missing: its name is known, and it
    refuses text."""

    def __init__(self, name: str, vocab: int, hash: str, why: str):
        self.name, self.vocab, self.hash, self.why = name, vocab, hash, why

    def encode(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        raise DataError(f"{name} cannot be made into tokens: {self.why}")

    def decode(self, tokens) -> str:
        raise DataError(f"tokens cannot be made into text: {self.why}")


class RoundTrip:
    """Measures what documents lose between text and tokens: a tokenizer that lower-cases, drops
    accents or has no token for a character predicts less than the text."""

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
        if after == f" {before}":  # some prepend a space, which loses nothing
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
            f"{name} is not UTF-8 at byte {error.start} (0x{text[error.start]:02x}); repair it, "
            "or use data.tokenizer=bytes, which takes any bytes"
        ) from error


def _byte_offsets(string: str) -> np.ndarray:
    """The number of bytes before each place between characters."""
    points = np.frombuffer(string.encode("utf-32-le"), np.uint32)
    width = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate([[0], np.cumsum(width)])


def _package():
    try:
        import tokenizers
    except ImportError as error:
        raise DataError(
            "text is made into tokens by the package tokenizers, which is not installed here; "
            "install it, or take tokens made beforehand (data.tokens)"
        ) from error
    return tokenizers


def _load(path: Path):
    tokenizers = _package()

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
    """Train a byte-level BPE of `vocab` tokens."""
    tokenizers = _package()

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
