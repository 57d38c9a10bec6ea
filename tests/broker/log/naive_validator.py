"""A deliberately simple validator for the records of a produced batch.

Tests compare `broker.protocol.records.validation` with it. It holds the whole batch
in memory and reads it byte by byte.
"""


class Refused(Exception):
    """The records break a rule."""


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, size):
        if size > len(self.data) - self.at:
            raise Refused("past the end")
        taken = self.data[self.at : self.at + size]
        self.at += size
        return taken

    def number(self, bits):
        """Read a zig-zag varint; longer encodings than the shortest are allowed."""
        code, at = 0, 0
        while True:
            (byte,) = self.take(1)
            code += (byte % 128) * 128**at
            at += 1
            if byte < 128:
                break
            if at == -(-bits // 7):
                raise Refused("a varint that does not end")
        if code >= 2**bits:
            raise Refused("a varint that is too large")
        return -(code + 1) // 2 if code % 2 else code // 2

    def field(self):
        size = self.number(32)
        return None if size < 0 else self.take(size)


def contents(plain, count):
    """Return (smallest delta, largest delta, whether a key is missing)."""
    reader = Reader(plain)
    deltas, keys = [], []
    for number in range(count):
        record = Reader(reader.field() or b"")
        record.take(1)
        deltas.append(record.number(64))
        if record.number(32) != number:
            raise Refused("an offset delta out of order")
        keys.append(record.field())
        record.field()
        headers = record.number(32)
        if headers < 0:
            raise Refused("fewer than no headers")
        for _ in range(headers):
            if record.field() is None:
                raise Refused("a header without a key")
            record.field()
        if record.at != len(record.data):
            raise Refused("bytes behind a record's fields")
    if reader.at != len(plain):
        raise Refused("bytes behind the last record")
    return min(deltas), max(deltas), None in keys
