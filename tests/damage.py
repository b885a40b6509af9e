"""Ways to damage a file, and values of JSON in the wrong place."""

DEEP = "[" * 100_000 + "]" * 100_000
OTHERS = [None, True, 0, -1, 1.5, 10**30, 10**400, float("nan"), "", "8", [], [[1]], {}, {"a": 1}]


def variations(tree):
    """Copies of a JSON value with one place of it changed or missing."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        lacking = tree.copy()
        del lacking[key]
        yield lacking
        inner = tree[key]
        for one in [*OTHERS, *(variations(inner) if isinstance(inner, dict | list) else [])]:
            other = tree.copy()
            other[key] = one
            yield other


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path, bit=None):
    data = bytearray(path.read_bytes())
    bit = 8 * (len(data) // 2) + 3 if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def delete(path):
    path.unlink()
