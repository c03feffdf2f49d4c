#!/usr/bin/env python3
"""Checks this program's own codec of the wire against the golden vectors.

    python3 check.py [DIRECTORY]
    python3 check.py --judge < LINES

The second form reads texts of JSON as hex, one a line, and says of each whether
strict() takes it: to hold two codecs against each other on texts of your own.

Standard library only. What is between the two lines below is all that a
provider in Python needs to read and write the wire: copy it.
"""
import hashlib
import json
import os
import re
import sys

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


# --- the check -------------------------------------------------------------


def main(root):
    failed = count = 0
    for kind in sorted(os.listdir(os.path.join(root, "scenario"))):
        folder = os.path.join(root, "scenario", kind)
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                scenario = json.load(file)
            count += 1
            try:
                CHECKS[kind](scenario)
            except Exception as why:  # a Refused, a failed assertion, a bug of ours
                failed += 1
                print("%s/%s: %s %s" % (kind, name, type(why).__name__, why))
    print("%d scenarios, %d failed" % (count, failed))
    return 1 if failed or not count else 0


def judge():
    for line in sys.stdin:
        try:
            strict(bytes.fromhex(line))
            print("taken")
        except Refused as why:
            print("refused", why)
    return 0


def raw(scenario, key="hex"):
    return bytes.fromhex(scenario.get(key, ""))


def want(got, expected):
    if got != expected:
        raise AssertionError("got %r, want %r" % (got, expected))


def refuses(read, data):
    try:
        read(data)
    except Refused as refused:
        return str(refused)
    raise AssertionError("was taken")


def message(s):
    value = strict(raw(s))
    want(value, s["decoded"])
    want(canonical(value), raw(s))
    want(digest(raw(s)), s["digest"])


# What strict() cannot see, a schema does: these reasons are about one type.
TYPED = {"unknown_key", "missing_key", "wrong_type", "form", "WirePayloadTooLarge"}


def refused_message(s):
    if s["reason"] not in TYPED or s["name"].startswith(("escape-", "depth-")):
        refuses(strict, raw(s))


def exchange(s):
    for half in (s["request"], s["response"]):
        body = bytes.fromhex(half["body_hex"])
        want(digest(body), half["digest"])
        if "frames" in half:
            taken_apart(half["frames"], body)
        elif "json" in half:
            want(strict(body), half["json"])
            want(canonical(half["json"]), body)
    headers = dict(s["request"]["headers"])
    if "Content-Length" in headers:
        want(int(headers["Content-Length"]), len(s["request"]["body_hex"]) // 2)
    want(s["request"]["path"], "/v1/" + s["endpoint"])


def taken_apart(expected, data):
    found = list(frames(data))
    want([(k, p.hex()) for k, p in found], [(f["type"], f["payload_hex"]) for f in expected])
    for (kind, payload), f in zip(found, expected):
        if "offset" in f:
            want(output(kind, f["offset"], bytes.fromhex(f["bytes_hex"])), frame(kind, payload))
        elif "decoded" in f:
            want(canonical(f["decoded"]), payload)
    want(b"".join(frame(k, p) for k, p in found), data)


def refused_frame(s):
    taken = []

    def read(data):
        for one in frames(data):
            taken.append(one)

    want(refuses(read, raw(s)), s["reason"])
    want(len(taken), len(s.get("frames", [])))


def escapes(s):
    pair = s["escapes"][0]
    escaped = bytes.fromhex(pair["escaped_hex"])
    if s["accept"]:
        want(escape(bytes.fromhex(pair["raw_hex"])).encode(), escaped)
        want(unescape(escaped.decode()).hex(), pair["raw_hex"])
        want(canonical(escaped.decode()), raw(s))
    else:
        refuses(lambda data: unescape(text_of(data)), escaped)


def text_of(data):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("utf-8")


def canonicals(s):
    form = canonical(strict_any(raw(s)))
    want(form.hex(), s["canonical"])
    want(digest(form), s["digest"])


def strict_any(data):
    # These are not messages: a text of theirs may hold a bare U+0000.
    return json.loads(data.decode("utf-8"))


SHAPE = re.compile(r"(19[7-9]\d|[2-9]\d{3})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z", re.ASCII)


def timestamp(s):
    import datetime

    text = s["text"]
    good = SHAPE.fullmatch(text) is not None
    if good:
        try:
            datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
        except ValueError:
            good = False
    want(good, s["accept"])


def crossed(s):
    value = strict(raw(s))
    want(value, s["decoded"])
    if s["accept"]:
        return
    # The field that the Runner names differs, and holds what it says came.
    got = value.get("evidence") or value["value"]
    for step in re.findall(r"[^.\[\]]+", s["refusal"]["field"]):
        got = got[int(step)] if isinstance(got, list) else got[step]
    want(str(got), s["refusal"]["got"])


def stream(s):
    outcome = s["outcome"]
    have = bytearray.fromhex(outcome["prefix_hex"])
    want(len(have), s["cursor"])
    end, first, ends = None, True, set()
    try:
        for kind, payload in frames(raw(s)):
            if first != (kind == 0x10):
                raise Refused("open is the first frame and comes once")
            first = False
            if kind == OUT:
                offset, data = int.from_bytes(payload[:8], "big"), payload[8:]
                if OUT in ends:
                    raise Refused("out after out_end")
                if offset > len(have):
                    raise Refused("a gap")
                have += data[len(have) - offset :]
            elif kind == ERR and ERR in ends:
                raise Refused("err after err_end")
            elif kind in (0x13, 0x14, 0x16):
                name = {0x13: OUT, 0x14: ERR, 0x16: 0x16}[kind]
                if name in ends:
                    raise Refused({OUT: "out_end", ERR: "err_end", 0x16: "exit"}[name] + " twice")
                ends.add(name)
                value = strict(payload)
                if kind == 0x13 and value["offset"] != len(have):
                    raise Refused("out_end at another offset")
                if kind == 0x13 and value["digest"] != digest(bytes(have)):
                    raise Refused("out_end with another digest")
                if kind == 0x16:
                    want(value, outcome.get("exit", value))
                if len(ends) == 3:
                    end = "complete"
            elif kind == 0x17:
                end = strict(payload)["reason"]
            elif kind == 0x18:
                end = "truncated"
            elif kind == 0x04:
                end = "error"
            elif kind in (0x01, 0x02, 0x03):
                raise Refused("a frame that no stream has")
            if end:
                break
        end = end or "dropped"
    except Refused as refused:
        end = "dropped" if str(refused) == "truncated" else "violation"
        want(str(refused), outcome.get("why", str(refused)))
    want(end, outcome["end"])
    want(have.hex(), outcome["output_hex"])


def nothing(_):
    """Data for a reader's own tests: nothing to compute here."""


CHECKS = {
    "message": message,
    "error": message,
    "refused-message": refused_message,
    "refused-request": lambda s: want(strict(raw(s)), s["decoded"]),
    "exchange": exchange,
    "frame": lambda s: taken_apart(s["frames"], raw(s)),
    "refused-frame": refused_frame,
    "escape": escapes,
    "canonical": canonicals,
    "timestamp": timestamp,
    "identity": crossed,
    "snapshot": crossed,
    "clone": crossed,
    "evidence": crossed,
    "stream": stream,
    "header": nothing,
    "disposition": nothing,
}

if __name__ == "__main__":
    if sys.argv[1:] == ["--judge"]:
        sys.exit(judge())
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))))
