"""Tokenizers: bytes, or any tokenizer that the library `tokenizers` reads."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.checks import may_be_of_hub
from posenc_jax.data.sources import Document
from posenc_jax.fields import whole
from posenc_jax.runtime.errors import DataError
from posenc_jax.runtime.files import expanded, reading
from posenc_jax.runtime.hub import connected

BLOCK = 1 << 24  # bytes of text per block of byte tokens


END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
PIECE_BYTES = 1 << 15  # approximate bytes of a piece
CUT_CONTEXT = 128  # bytes tried on either side of a cut
CUT_TRIES = 8  # places tried near the end of a piece


class Stretch(NamedTuple):
    """Tokens of a stretch of text."""

    text: Document  # that they belong to
    tokens: np.ndarray  # [N]
    widths: np.ndarray | None  # [N], bytes of text per token; None: one each
    size: int  # bytes of text
    ends: bool  # True if it ends the text


class _Tokenizer:
    def encode(self, text: str, name: str = "the text") -> np.ndarray:  # [N]
        """Tokens of a text; the name is that in errors."""
        return self.measure(text.encode(), name)[0]

    def measure(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of a text and the bytes of text of each, which sum to its length."""
        raise NotImplementedError


class Bytes(_Tokenizer):
    """A tokenizer with one token per byte."""

    name = file = "bytes"
    vocab = 256
    hash = "bytes"

    def measure(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.frombuffer(text, np.uint8)
        return tokens, np.ones(len(tokens), np.uint8)

    def stream(self, texts: Iterable[Document]) -> Iterator[Stretch]:
        """Tokens of texts, in order."""
        for text in texts:
            tokens, length = np.frombuffer(text.text, np.uint8), len(text.text)
            for start in range(0, max(length, 1), BLOCK):
                block = tokens[start : start + BLOCK]
                yield Stretch(text, block, None, len(block), start + BLOCK >= length)

    def decode(self, tokens) -> str:
        return bytes(np.asarray(tokens, np.uint8)).decode(errors="replace")


class Learned(_Tokenizer):
    """A tokenizer from a tokenizer.json, or a folder with it or with vocab.json and merges.txt."""

    def __init__(self, path: Path, name: str = "", read: Any = None):
        """`read` is the tokenizer of a file of another kind."""
        self.name, self.file = name or str(path), str(path)
        if (path / "tokenizer.json").is_file():
            path = path / "tokenizer.json"
        with reading(path):
            self.tokenizer = _load(path) if read is None else read
            # A published file may set truncation or padding; here the whole text is needed.
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()
            # Ids may have gaps.
            self.vocab = 1 + max(self.tokenizer.get_vocab().values(), default=-1)
            whole(1, 2**24)("its number of tokens", self.vocab)
            self.hash = hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()
            self.widths = token_widths(self.tokenizer, self.vocab)  # [V]; None: not known

    def within(self, vocab: int) -> "Learned":
        """The tokenizer without added tokens of larger ids, as Gemma 3 has one for images."""
        import tokenizers

        written = json.loads(self.tokenizer.to_str())
        written["added_tokens"] = [t for t in written["added_tokens"] if t["id"] < vocab]
        reduced = tokenizers.Tokenizer.from_str(json.dumps(written))
        return Learned(Path(self.file), self.name, read=reduced)

    def measure(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        found = list(self.stream([Document(name, text)]))
        tokens, widths = zip(*((part.tokens, part.widths) for part in found), strict=True)
        return np.concatenate(tokens), np.concatenate(widths)

    def stream(self, texts: Iterable[Document]) -> Iterator[Stretch]:
        """Tokens of texts, in order, computed piecewise on all cores in bounded memory."""
        held: Stretch | None = None  # last stretch, held back as its last token may grow
        end = 0  # end of that token, in bytes of its text
        for piece, tokens, ends in self._encoded(_groups(self._pieces(texts))):
            if held is None:
                end = 0
            ends = np.maximum.accumulate(np.concatenate([[end], piece.start + ends]))
            widths, end = np.diff(ends), int(ends[-1])
            made = Stretch(piece.text, tokens, widths, len(piece.content), piece.last)
            if held is not None and not len(tokens):
                made = held._replace(size=held.size + made.size, ends=made.ends)
            elif held is not None:
                yield held
            held = made
            if piece.last:
                widths = held.widths
                assert widths is not None
                widths[-1:] += len(piece.text.text) - end
                yield held
                held = None

    def _pieces(self, texts: Iterable[Document]) -> Iterator["_Piece"]:
        for text in texts:
            for start, stop in cut_pieces(text.text, self.tokenizer):
                content = text.text[start:stop]
                yield _Piece(text, start, content, stop == len(text.text))

    def _encoded(
        self, groups: Iterable[list["_Piece"]]
    ) -> Iterator[tuple["_Piece", np.ndarray, np.ndarray]]:
        """Pieces with tokens and the ends of these in bytes; the cores work one group ahead."""
        with ThreadPoolExecutor(1) as pool:
            ahead: list[tuple[list[_Piece], Future]] = []
            for group in groups:
                ahead.append((group, pool.submit(self._encode, group)))
                if len(ahead) > 1:
                    yield from self._looked_at(*ahead.pop(0))
            for group, found in ahead:
                yield from self._looked_at(group, found)

    def _encode(self, group: list["_Piece"]) -> list:
        """Encode a group; if widths are known, without offsets, which take time."""
        encode = self.tokenizer.encode_batch
        if self.widths is not None:
            encode = self.tokenizer.encode_batch_fast
        strings = [decode_utf8(p.content, p.text.name, p.start) for p in group]
        try:
            return encode(strings, add_special_tokens=False)
        except BaseException as error:  # for a word without a token, or a panic of Rust
            if len(group) > 1:  # find the piece at fault
                return [one for piece in group for one in self._encode([piece])]
            name = group[0].text.name
            raise DataError(f"{name}: {self.name} has no tokens for it: {error}") from error

    def _looked_at(self, group: list["_Piece"], found: Future) -> Iterator:
        for piece, encoding in zip(group, found.result(), strict=True):
            tokens = np.array(encoding.ids, np.int64)
            ends = None if self.widths is None else token_ends(piece.content, self.widths[tokens])
            if ends is None:
                string = piece.content.decode()
                if self.widths is not None:  # the widths do not hold here
                    encoding = self.tokenizer.encode(string, add_special_tokens=False)
                places = np.array([end for _, end in encoding.offsets], np.int64)
                ends = byte_offsets(string)[places] if len(places) else places
            yield piece, tokens, ends

    def decode(self, tokens) -> str:
        """Text of tokens, including special tokens, as a text may contain them."""
        return self.tokenizer.decode(np.asarray(tokens).tolist(), skip_special_tokens=False)


class Unavailable(_Tokenizer):
    """Tokenizer of prepared tokens whose file or package is missing; it raises errors when used."""

    def __init__(self, name: str, vocab: int, hash: str, why: str):
        self.name, self.vocab, self.hash, self.why = name, vocab, hash, why

    @property
    def file(self) -> str:
        raise DataError(f"text cannot be tokenized: {self.why}")

    def measure(self, text: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
        raise DataError(f"{name} cannot be tokenized: {self.why}")

    def decode(self, tokens) -> str:
        raise DataError(f"tokens cannot be decoded: {self.why}")


Encoder = Bytes | Learned


def end_of_text(encoder: Encoder | Unavailable) -> int | None:
    """The token that ends a text, if the tokenizer has one."""
    if not isinstance(encoder, Learned):
        return None
    ids = map(encoder.tokenizer.token_to_id, END_OF_TEXT)
    return next((number for number in ids if number is not None), None)


class RoundTrip:
    """Measures the text lost in tokens, as by a tokenizer that lower-cases or drops characters."""

    DOCUMENTS, CHARACTERS = 64, 1_000_000

    def __init__(self, encoder: Encoder):
        self.encoder = encoder
        self.documents = self.changed = self.characters = 0
        self.lost: Counter[str] = Counter()

    def see(self, text: bytes, name: str) -> None:
        room = self.CHARACTERS - self.characters
        if isinstance(self.encoder, Bytes) or self.documents == self.DOCUMENTS or not room:
            return
        before = decode_utf8(text, name)[:room]
        tokens = self.encoder.encode(before, name)
        after = self.encoder.decode(tokens)
        if after == f" {before}":  # some tokenizers prepend a space
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


def load(name: str) -> Encoder:
    """Load `bytes`, a file, a folder, or a tokenizer of the Hugging Face Hub by name."""
    path = expanded(name)
    if name == "bytes":
        return Bytes()
    if path.exists() or not may_be_of_hub(name):
        return Learned(path)
    return Learned(_of_hub(name), name)


def _of_hub(name: str) -> Path:
    """Path of a repository's tokenizer.json, from the Hub's cache or else downloaded."""
    from huggingface_hub import hf_hub_download

    with suppress(Exception):  # not in the cache
        return Path(hf_hub_download(name, "tokenizer.json", local_files_only=True))
    what = (
        f"data.tokenizer: there is no file or folder {name!r}, and no tokenizer of that name from "
        "the Hugging Face Hub"
    )
    with connected(what):
        return Path(hf_hub_download(name, "tokenizer.json"))


def decode_utf8(text: bytes, name: str, start: int = 0) -> str:
    """Decode a text, or a piece of it that begins at byte `start`."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} is not UTF-8 at byte {start + error.start} (0x{text[error.start]:02x}); "
            "repair it, or use data.tokenizer=bytes, which accepts any bytes"
        ) from error


class _Piece(NamedTuple):
    text: Document
    start: int  # in the text, in bytes
    content: bytes
    last: bool


def _groups(every: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Groups of pieces for all cores: four pieces each, or as many bytes of shorter ones."""
    room = 4 * (os.cpu_count() or 1) * PIECE_BYTES
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


def _load(path: Path):
    import tokenizers

    if path.is_dir():
        vocab, merges = path / "vocab.json", path / "merges.txt"
        for file in (vocab, merges):
            if not file.is_file():
                raise DataError(
                    f"data.tokenizer: the folder {path} has neither {file.name} nor a "
                    "tokenizer.json"
                )
        return _byte_level(tokenizers.models.BPE.from_file(str(vocab), str(merges)))
    return tokenizers.Tokenizer.from_file(str(path))


def _byte_level(model):
    """A tokenizer of a BPE whose characters stand for bytes."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def train_bpe(texts, vocab: int):
    """Train a byte-level BPE of `vocab` tokens."""
    import tokenizers

    tokenizer = _byte_level(tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def bytes_as_bpe():
    """The tokenizer `bytes` in the form of a tokenizer.json: a BPE without merges."""
    import tokenizers

    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    vocabulary = {letters[byte]: byte for byte in range(256)}
    return _byte_level(tokenizers.models.BPE(vocabulary, []))


SPACE = b" \t\r\n\f\v"
# Characters of every width in UTF-8, and every kind of white space.
SAMPLE = "Once  upon a\ttime,\n\n  caf\u00e9 \u6771\u4eac \U0001f600\u00a0! x1 \n "


def cut_pieces(text: bytes, tokenizer: Any) -> Iterator[tuple[int, int]]:
    """Start and end of each piece, cut before white space where the tokenizer splits words.

    Where it does not, pieces are longer, up to the whole text.
    """
    start, end = 0, PIECE_BYTES
    while tokenizer.pre_tokenizer is not None and end + CUT_CONTEXT < len(text):
        places = _candidates(text, max(start + CUT_CONTEXT, end - PIECE_BYTES), end)
        place = next((p for p in places if _apart(text, p, tokenizer)), None)
        if place is not None:
            yield start, place
            start = end = place
        end += PIECE_BYTES
    yield start, len(text)


def _candidates(text: bytes, low: int, high: int) -> Iterator[int]:
    """Places before white space, line ends first, the last first."""
    tries = 0
    for space in (b"\n", b" "):
        place = high
        while tries < CUT_TRIES and (place := text.rfind(space, low, place)) > low:
            if text[place - 1] not in SPACE:
                tries += 1
                yield place


def _apart(text: bytes, place: int, tokenizer: Any) -> bool:
    """True if a cut at this place leaves the tokens around it unchanged."""
    left, right = (
        side.decode(errors="ignore")
        for side in (text[place - CUT_CONTEXT : place], text[place : place + CUT_CONTEXT])
    )
    whole, first, second = (
        tokenizer.encode(part, add_special_tokens=False) for part in (left + right, left, right)
    )
    moved = [(a + len(left), b + len(left)) for a, b in second.offsets]
    return whole.ids == first.ids + second.ids and whole.offsets == first.offsets + moved


def token_widths(tokenizer: Any, vocab: int) -> np.ndarray | None:  # [V]
    """Bytes of text of each token of a byte-level tokenizer; None for others.

    A vocabulary may lack bytes that its training text did not have; `token_ends` shows where they
    occur.
    """
    import tokenizers

    written = json.loads(tokenizer.to_str())
    if '"trim_offsets": true' in json.dumps(written["post_processor"]):
        return None  # white space counts as part of the next token
    if '"ByteLevel"' not in json.dumps([written["pre_tokenizer"], written["normalizer"]]):
        return None
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = tokenizer.get_vocab()
    added = tokenizer.get_added_tokens_decoder()
    known = np.zeros(vocab, np.int64)
    for token, number in vocabulary.items():
        if number in added:
            plain = not (added[number].lstrip or added[number].rstrip)
            known[number] = len(token.encode()) if plain else 0
        elif set(token) <= alphabet:
            known[number] = len(token)
        else:
            return None
    sample = tokenizer.encode(SAMPLE, add_special_tokens=False)
    expected = byte_offsets(SAMPLE)[[end for _, end in sample.offsets]]
    computed = token_ends(SAMPLE.encode(), known[sample.ids])
    return known if computed is not None and np.array_equal(computed, expected) else None


def token_ends(text: bytes, widths: np.ndarray) -> np.ndarray | None:
    """Ends of tokens in a text by their widths, moved to the end of a character.

    None if the widths do not sum to the length of the text.
    """
    found = np.cumsum(widths, dtype=np.int64)
    if len(text) != (found[-1] if len(found) else 0):
        return None
    inside = np.frombuffer(text + b" ", np.uint8) & 0xC0 == 0x80  # continuation bytes
    if inside[found].any():
        first = np.flatnonzero(~inside)
        found = first[np.searchsorted(first, found)]
    return found


def byte_offsets(string: str) -> np.ndarray:
    """Number of bytes before each character, and in all."""
    points = np.frombuffer(string.encode("utf-32-le"), np.uint32)
    width = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate([[0], np.cumsum(width)])
