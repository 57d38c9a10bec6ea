"""The subject of a certificate in the form of RFC 2253, as Java writes it.

Kafka's principal of a client is ``X500Principal.getName()``: relative names in reverse
order, nine attributes by keyword, all others by number with their bytes in hexadecimal.
Python's ``getpeercert`` keeps neither numbers nor string types. Therefore this module
reads the DER elements that lead to the subject. OpenSSL has verified the certificate
before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString.
_TEXTS: Final = frozenset({12, 19, 20, 22, 27, 30})
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_VERSION_TAG: Final = 0xA0


class _Element(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes


def subject_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER; raise ValueError if malformed.

    >>> subject_name(b"0")
    Traceback (most recent call last):
    ...
    ValueError: a certificate that ends too early
    """
    try:
        (outer,) = _elements(certificate)
        signed, *_ = _elements(outer.content)
        fields = list(_elements(signed.content))
        if fields[0].tag == _VERSION_TAG:
            del fields[0]
        _serial, _algorithm, _issuer, _validity, subject, *_ = fields
    except (IndexError, ValueError):
        raise ValueError("a certificate that ends too early") from None
    return distinguished_name(subject.encoded)


def distinguished_name(encoded: bytes) -> str:
    """Return a name in DER in the form of RFC 2253."""
    (name,) = _elements(encoded)
    relative = [
        "+".join(_attribute(each) for each in _elements(one.content))
        for one in _elements(name.content)
    ]
    return ",".join(reversed(relative))


def _attribute(pair: _Element) -> str:
    number, value = _elements(pair.content)
    dotted = _dotted(number.content)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or dotted}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode(errors='replace'))}"


def _escaped(value: str) -> str:
    """Escape special characters, and spaces at both ends."""
    start = len(value) - len(value.lstrip(" "))
    end = max(len(value.rstrip(" ")), start)
    return "".join(
        f"\\{char}"
        if char in _ESCAPED or (char == " " and not start <= at < end)
        else "\\00"
        if char == "\0"
        else char
        for at, char in enumerate(value)
    )


def _elements(data: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        tag, size, start = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[start : start + count], "big")
            start += count
        if start + size > len(data):
            raise ValueError("an element longer than its surroundings")
        yield _Element(tag, data[start : start + size], data[at : start + size])
        at = start + size


def _dotted(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
