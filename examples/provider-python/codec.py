"""The codec of the wire, as the author kit has it (kit/check.py)."""
import hashlib
import json
import re

# --- the codec -------------------------------------------------------------

MAX_FRAME = 1 << 20
MAX_INTEGER = (1 << 53) - 1
TYPES = {1, 2, 3, 4, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x1F}
OUT, ERR, PING = 0x11, 0x12, 0x1F


class Refused(Exception):
    """The other side broke the wire; the word says how."""


def canonical(value):
    """The one form of a value: sorted keys, no white space, plain UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def strict(data):
    """Reads JSON as the wire does. Keys and types are the schema's question."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("utf-8")
    if text.startswith("\ufeff"):
        raise Refused("byte order mark")

    def pairs(items):
        found = {}
        for key, value in items:
            if key in found:
                raise Refused("duplicate key")
            found[key] = value
        return found

    def integer(token):
        if token == "-0":
            raise Refused("minus zero")
        if len(token) > 17 or abs(int(token)) > MAX_INTEGER:
            raise Refused("integer out of range")
        return int(token)

    def no(token):
        raise Refused("not an integer")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_int=integer, parse_float=no, parse_constant=no)
    except (ValueError, RecursionError):
        raise Refused("json")
    walk(value, 0)
    return value


def walk(value, depth):
    if value is None:
        raise Refused("null")
    if isinstance(value, str):
        if re.search("[\ud800-\udfff]", value):
            raise Refused("lone surrogate")
        unescape(value)
    elif isinstance(value, (dict, list)):
        if depth == 16:
            raise Refused("too deep")
        for key in value if isinstance(value, dict) else ():
            if re.search("[\ud800-\udfff]", key):
                raise Refused("lone surrogate")
        for inner in value.values() if isinstance(value, dict) else value:
            walk(inner, depth + 1)


def escape(raw):
    """Any bytes but as a text: what is no UTF-8, and NUL, as U+0000 and two digits."""
    text = raw.decode("utf-8", "surrogateescape")
    return re.sub("[\0\udc80-\udcff]", lambda m: "\0%02x" % (ord(m[0]) & 0xFF), text)


def unescape(text):
    """The bytes of a text. One byte string has one form."""
    if re.search("\0(?![0-9a-f]{2})", text):
        raise Refused("escape")
    parts = re.split("\0([0-9a-f]{2})", text)
    raw = b"".join(bytes.fromhex(p) if i % 2 else p.encode("utf-8") for i, p in enumerate(parts))
    if escape(raw) != text:
        raise Refused("escape")
    return raw


def frame(kind, payload):
    return bytes([kind]) + len(payload).to_bytes(4, "big") + payload


def output(kind, offset, data):
    return frame(kind, offset.to_bytes(8, "big") + data)


def frames(data):
    """Yields (type, payload). Refuses by the head, before it takes the payload."""
    at = 0
    while at < len(data):
        kind = data[at]
        if len(data) - at < 5:
            raise Refused("truncated")
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        if kind not in TYPES:
            raise Refused("unknown_type")
        if size > MAX_FRAME:
            raise Refused("too_long")
        if kind == PING and size or kind in (OUT, ERR) and size <= 8:
            raise Refused("payload")
        payload = data[at + 5 : at + 5 + size]
        if len(payload) < size:
            raise Refused("truncated")
        if kind in (OUT, ERR) and int.from_bytes(payload[:8], "big") + size - 8 > MAX_INTEGER:
            raise Refused("payload")
        yield kind, payload
        at += 5 + size


