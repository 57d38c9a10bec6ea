"""Hand-made batches with a valid CRC around arbitrary contents."""

from broker.protocol.records.batch import seal
from broker.protocol.records.batch_records import record_body, write_varint
from broker.protocol.records.codecs import NONE, compress
from tests.broker.log.witness import altered, batch


def record(
    number=0,
    *,
    time=0,
    attributes=0,
    key=b"k",
    value=b"v",
    headers=(),
    body=None,
    extra=0,
    length=None,
):
    """Return the bytes of a record; ``extra`` is added to its length field."""
    body = record_body(key, value, headers) if body is None else body
    content = bytes([attributes]) + write_varint(time) + write_varint(number) + body
    said = len(content) + extra if length is None else length
    return write_varint(said) + content


def batch_of(records, *, codec=NONE, count=None, packed=None, changes=None):
    """Return a batch with a valid CRC around the given bytes of records.

    ``changes`` are header fields: {position: (struct format, value)}.
    """
    plain = b"".join(records)
    count = len(records) if count is None else count
    whole = altered(batch([b""]), {23: ("i", count - 1), 57: ("i", count)})[:61]
    whole += compress(codec, plain) if packed is None else packed
    fields = {21: ("h", codec), **(changes or {})}
    return bytes(seal(bytearray(altered(whole, fields, new_crc=False))))
