"""Turn text into token ids: bytes, or any tokenizer that the library `tokenizers` reads."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from posenc_jax.checks import may_be_of_hub
from posenc_jax.data import pieces
from posenc_jax.errors import DataError

BLOCK = 1 << 24  # bytes of text that are tokens at once where a byte is a token


class Named(Protocol):
    """A text with a name for errors."""

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> bytes: ...


class Stretch(NamedTuple):
    """Tokens of a stretch of a text, in order."""

    text: Any  # the text they are of, as it was given
    tokens: np.ndarray  # [N]
    widths: np.ndarray | None  # [N], bytes of text each of them adds; None: one each
    size: int  # bytes of text
    ends: bool  # whether the text ends here


class Bytes:
    """A tokenizer with one token per byte."""

    name = "bytes"
    vocab = 256
    hash = "bytes"

    def encode(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.frombuffer(text, np.uint8)
        return tokens, np.ones(len(tokens), np.uint8)

    def stream(self, texts: Iterable[Named]) -> Iterator[Stretch]:
        """The tokens of texts, one after another."""
        for text in texts:
            tokens, length = np.frombuffer(text.text, np.uint8), len(text.text)
            for start in range(0, max(length, 1), BLOCK):
                block = tokens[start : start + BLOCK]
                yield Stretch(text, block, None, len(block), start + BLOCK >= length)

    def decode(self, tokens) -> str:
        return bytes(np.asarray(tokens, np.uint8)).decode(errors="replace")


class Learned:
    """A tokenizer from a tokenizer.json, or from a folder with one or with GPT-2's vocab.json and
    merges.txt."""

    def __init__(self, path: Path, name: str = ""):
        self.name = name or str(path)
        self.tokenizer = _load(path)
        # A published file may ask for truncated or padded texts; here the whole text is needed.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab = 1 + max(self.tokenizer.get_vocab().values())  # ids may have gaps
        self.hash = hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()
        self.widths = pieces.widths(self.tokenizer, self.vocab)  # [V]; None: not known

    def encode(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Tokens, and the bytes of text each of them adds, which sum to the text's length."""
        found = list(self.stream([_Text(name, text)]))
        tokens, widths = zip(*((part.tokens, part.widths) for part in found), strict=True)
        return np.concatenate(tokens), np.concatenate(widths)

    def stream(self, texts: Iterable[Named]) -> Iterator[Stretch]:
        """The tokens of texts, one after another: all cores work on pieces of them, and memory
        stays bounded."""
        held: Stretch | None = None  # of a text that is not over: its last token may end later
        end = 0  # of that token, in bytes of its text
        for piece, tokens, ends in self._encoded(_groups(self._pieces(texts))):
            if held is None:
                end = 0
            ends = np.maximum.accumulate(np.concatenate([[end], piece.start + ends]))
            widths, end = np.diff(ends), int(ends[-1])
            made = Stretch(piece.text, tokens, widths, len(piece.content), piece.last)
            if held is not None and len(tokens):
                yield held
                held = made
            elif held is not None:  # nothing in it became a token
                held = held._replace(size=held.size + made.size, ends=made.ends)
            else:
                held = made
            if piece.last:
                if held.widths is not None:  # nothing is left over
                    held.widths[-1:] += len(piece.text.text) - end
                yield held
                held = None

    def _pieces(self, texts: Iterable[Named]) -> Iterator["_Piece"]:
        for text in texts:
            for start, stop in pieces.cut(text.text, self.tokenizer):
                content = text.text[start:stop]
                yield _Piece(text, start, content, stop == len(text.text))

    def _encoded(
        self, groups: Iterable[list["_Piece"]]
    ) -> Iterator[tuple["_Piece", np.ndarray, np.ndarray]]:
        """Each piece with its tokens, and where in it each of them ends, in bytes; while a group is
        looked at, the cores work on the next one."""
        with ThreadPoolExecutor(1) as pool:
            ahead: list[tuple[list[_Piece], Future]] = []
            for group in groups:
                ahead.append((group, pool.submit(self._encode, group)))
                if len(ahead) > 1:
                    yield from self._looked_at(*ahead.pop(0))
            for group, found in ahead:
                yield from self._looked_at(group, found)

    def _encode(self, group: list["_Piece"]) -> list:
        """As the library encodes; without offsets, which take time, where widths are known."""
        encode = self.tokenizer.encode_batch
        if self.widths is not None:
            encode = self.tokenizer.encode_batch_fast
        strings = [decode_utf8(p.content, p.text.name, p.start) for p in group]
        try:
            return encode(strings, add_special_tokens=False)
        except Exception as error:  # plain Exceptions, as for a word without a token
            if len(group) > 1:  # in one of them
                return [one for piece in group for one in self._encode([piece])]
            name = group[0].text.name
            raise DataError(f"{name}: {self.name} has no tokens for it: {error}") from error

    def _looked_at(self, group: list["_Piece"], found: Future) -> Iterator:
        for piece, encoding in zip(group, found.result(), strict=True):
            tokens = np.array(encoding.ids, np.int64)
            ends = None if self.widths is None else pieces.ends(piece.content, self.widths[tokens])
            if ends is None:
                string = piece.content.decode()
                if self.widths is not None:  # which is not so here
                    encoding = self.tokenizer.encode(string, add_special_tokens=False)
                places = np.array([end for _, end in encoding.offsets], np.int64)
                ends = pieces.byte_offsets(string)[places] if len(places) else places
            yield piece, tokens, ends

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
    """`bytes`, a file or a folder, or a tokenizer of the Hugging Face Hub by its name."""
    path = Path(name).expanduser()
    if name == "bytes":
        return Bytes()
    if path.exists() or not may_be_of_hub(name):
        return Learned(path)
    return Learned(_of_hub(name), name)


def _of_hub(name: str) -> Path:
    """The tokenizer.json of a repository, from the Hub's cache or else from the Hub."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise DataError(
            f"data.tokenizer: there is no {name!r} here, and the package huggingface_hub, which "
            "would fetch it, is not installed"
        ) from error
    failures = []
    for local in (True, False):
        try:
            return Path(
                huggingface_hub.hf_hub_download(name, "tokenizer.json", local_files_only=local)
            )
        except Exception as error:  # many types, from the network to a name that is none
            failures.append(error)
    reason = " ".join(str(failures[-1]).split())
    raise DataError(
        f"data.tokenizer: there is no file or folder {name!r}, and the Hugging Face Hub gives no "
        f"tokenizer of that name: {reason}"
    ) from failures[-1]


def decode_utf8(text: bytes, name: str, start: int = 0) -> str:
    """The characters of a text, or of a piece of it from `start` on."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} is not UTF-8 at byte {start + error.start} (0x{text[error.start]:02x}); "
            "repair it, or use data.tokenizer=bytes, which takes any bytes"
        ) from error


class _Text(NamedTuple):
    name: str
    text: bytes


class _Piece(NamedTuple):
    text: Named
    start: int  # in the text, in bytes
    content: bytes
    last: bool


def _groups(every: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces for all cores at once, at most four for each or as many bytes of shorter texts."""
    room = 4 * (os.cpu_count() or 1) * pieces.LENGTH
    group: list[_Piece] = []
    size = 0
    for piece in every:
        group.append(piece)
        size += len(piece.content)
        if size >= room:
            yield group
            group, size = [], 0
    if group:
        yield group


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
        if (path / "tokenizer.json").is_file():
            path = path / "tokenizer.json"
        if path.is_dir():
            vocab, merges = path / "vocab.json", path / "merges.txt"
            for file in (vocab, merges):
                if not file.is_file():
                    raise DataError(
                        f"data.tokenizer: {path} is a folder without {file.name}, or else a "
                        "tokenizer.json"
                    )
            tokenizer = tokenizers.Tokenizer(
                tokenizers.models.BPE.from_file(str(vocab), str(merges))
            )
            tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = tokenizers.decoders.ByteLevel()
            return tokenizer
        if not path.is_file():
            raise DataError(
                f"data.tokenizer must be 'bytes', a tokenizer.json, a folder with one or with "
                f"vocab.json and merges.txt, or a name of the Hugging Face Hub; there is no {path}"
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
