"""Ways to damage a file."""


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
