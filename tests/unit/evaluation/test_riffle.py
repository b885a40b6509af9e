"""The protocol `riffle`: what the rows hold, and what readers of known habits pay."""

import numpy as np
import pytest
from measuring import split

from posenc_jax.evaluation import evaluate, protocols, records, table, windows
from posenc_jax.runtime.errors import ConfigError

L, BLOCK, DOCUMENTS, LENGTH = 32, 8, 12, 128
RIFFLE = protocols.find("riffle")


def read_text(lengths=(300, *[LENGTH + 1] * (DOCUMENTS - 1))):
    """A token is its place in the text, and a byte more than its document."""
    source = split(lengths, widths=np.repeat(np.arange(len(lengths)), lengths) + 1)
    source.tokens[:] = np.arange(len(source.tokens))
    return windows.choose(source, LENGTH, documents=DOCUMENTS, per_document=2)


def rows_of(one):
    return one.text.split.tokens[one.starts[:, None] + np.arange(one.length + 1)]


@pytest.mark.parametrize("length", [LENGTH, 48, 37, 18])
def test_a_row_alternates_the_blocks_of_two_documents(length):
    text, own = read_text(), length // 2
    alone, riffled, foreign = RIFFLE.readings(text, length, BLOCK, L)
    assert (alone.part, riffled.part, foreign.part) == ("alone", "riffled", "foreign")
    threads, whole, replaced = map(rows_of, (alone, riffled, foreign))
    ends = text.starts + text.longest
    np.testing.assert_array_equal(threads[::2], ends[:, None] + np.arange(1 - own, 1))
    sizes = [own % BLOCK or BLOCK] + [BLOCK] * ((own - 1) // BLOCK)
    second = np.repeat(np.arange(2 * len(sizes)) % 2, np.repeat(sizes, 2)).astype(bool)
    of = text.split.starts.searchsorted
    for pair in range(len(ends)):
        a, b = threads[2 * pair : 2 * pair + 2]
        for number in (0, 1):
            row, third = whole[2 * pair + number], replaced[2 * pair + number]
            np.testing.assert_array_equal(row[~second], a)
            np.testing.assert_array_equal(row[second], b)
            kept = third[second] if number == 0 else third[~second]
            np.testing.assert_array_equal(kept, a if number else b)
            changed = third[~second] if number == 0 else third[second]
            np.testing.assert_array_equal(changed[-BLOCK:], (a, b)[number][-BLOCK:])
            documents = {*of((a[0], b[0], changed[0]), side="right")}
            assert len(documents) == 3
    scored = [rows_of(one)[:, 1:][one.scored()].reshape(-1, BLOCK) for one in (alone, riffled)]
    np.testing.assert_array_equal(scored[0], threads[:, -BLOCK:])
    np.testing.assert_array_equal(scored[0], scored[1])
    third = rows_of(foreign)[:, 1:][foreign.scored()].reshape(-1, BLOCK)
    np.testing.assert_array_equal(third, scored[0])
    for one in (riffled, foreign):  # bytes follow their tokens, documents their targets
        targets = one.targets()[one.scored()].reshape(-1, BLOCK)
        documents = of(third[:, 0], side="right") - 1
        np.testing.assert_array_equal(one.text.split.bytes_of[targets][:, 0], documents + 1)
        np.testing.assert_array_equal(text.documents[one.document], documents)
        assert one.token_hash == alone.token_hash


def last_block(seen, own):
    """The last tokens, as many as a block has."""
    return 1 / (1 + np.sum(seen[-BLOCK:] == own))


def mixture(seen, own):
    """Everything, as one text: the share of the target's document among its tokens."""
    return np.log((1 + len(seen)) / (1 + np.sum(seen == own)))


def priced(reader):
    text, cells = read_text(), []
    for one in RIFFLE.readings(text, LENGTH, BLOCK, L):
        tokens = text.split.starts.searchsorted(rows_of(one), side="right")  # their documents
        nats = np.zeros((len(tokens), one.length), np.float32)
        for row, place in zip(*np.nonzero(one.scored()), strict=True):
            nats[row, place] = reader(tokens[row, : place + 1], tokens[row, place + 1])
        known = dict(run="run", protocol="riffle", length=LENGTH, part=one.part, train_length=L)
        known |= dict(token_hash=one.token_hash, extension="none", step=1)
        facts = dict.fromkeys(protocols.facts()) | known
        cells.append(evaluate.summed(facts, one, nats, nats > 9))
    cells += RIFFLE.derived(cells)
    return cells, {row["part"]: row for row in records.rows(cells)}


def test_a_reader_of_the_last_block_pays_its_null():
    _, rows = priced(last_block)
    # After a switch it sees the other document.
    assert rows["price"]["nll"] == rows["null-price"]["nll"] > 0.1
    assert rows["saved"]["nll"] == 0


def test_a_reader_that_cannot_tell_two_documents_apart_pays_for_both():
    cells, rows = priced(mixture)
    own, size = LENGTH // 2, BLOCK
    first = np.arange(size)[None] + [[own - size], [own - size]]  # own tokens before each target
    others = np.array([[own - size], [own]])
    price = np.mean(np.log((1 + first + others) / (1 + first)))
    assert rows["alone"]["nll"] == 0
    assert rows["price"]["nll"] == pytest.approx(rows["riffled"]["nll"])
    assert rows["price"]["nll"] == pytest.approx(price, rel=1e-5)
    saved = rows["null-price"]["nll"] - rows["price"]["nll"]
    assert rows["saved"]["nll"] == pytest.approx(saved, rel=1e-5) and saved > 1
    assert rows["price"]["documents"] == DOCUMENTS and rows["price"]["accuracy"] is None
    printed = " ".join(table.table(list(rows.values())).split())
    assert f"none 0.000 {price:.3f} +{price:.3f} [+{price:.3f}, +{price:.3f}]" in printed


def test_lengths_and_texts_without_two_threads_are_refused_or_left_out():
    text = read_text()
    assert RIFFLE.readings(text, 17, BLOCK, L) == []
    with pytest.raises(ConfigError, match="riffle needs a length above 17: .* last = 8 tokens"):
        RIFFLE.check([8, 17], BLOCK, L)
    few = read_text(lengths=(300, 129, 129))
    with pytest.raises(ConfigError, match="riffle needs three documents, .* 2 of 4 are of one"):
        RIFFLE.readings(few, LENGTH, BLOCK, L)
