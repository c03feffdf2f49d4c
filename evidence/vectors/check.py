#!/usr/bin/env python3
"""A second verifier of receipts, which checks itself against the golden vectors.

    python3 check.py [DIRECTORY]

Standard library only. It shares no line with the one in Go; what is between the
two lines below is all that somebody needs to verify a receipt: copy it. It takes
no care about timing, because a verifier holds no secret.
"""
import hashlib
import json
import os
import re
import sys

# --- the verifier ----------------------------------------------------------

DOMAIN = "checkfu.sandbox-egress-conformance.v1"
SET = "checkfu.sandbox-egress-conformance-attesters.v1"
FACTS = ["exact_destination_match", "connect_time_public_address", "redirect_recheck",
         "authority_separation", "default_deny"]
CASES = ["%s%02d" % (letter, n + 1) for letter, last in
         (("E", 53), ("P", 90), ("R", 13), ("D", 38), ("A", 17)) for n in range(last)]
CONFIGURATIONS = ["guard_only", "kernel_only", "both"]
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


class Refused(Exception):
    """The word is the reason of the scenario."""


def root(square):
    """The square root modulo P, or None."""
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return None if (x * x - square) % P else x


def point(data):
    """Reads a point as (X, Y, Z, T) with x = X/Z, y = Y/Z, T = XY/Z; or None."""
    number = int.from_bytes(data, "little")
    y, sign = number & (2**255 - 1), number >> 255
    if y >= P:
        return None
    x = root((y * y - 1) * pow(D * y * y + 1, -1, P) % P)
    if x is None or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * D * p[3] * q[3] % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n, p):
    total = (0, 1, 1, 0)
    while n:
        if n & 1:
            total = add(total, p)
        p, n = add(p, p), n >> 1
    return total


def encoded(p):
    z = pow(p[2], -1, P)
    x, y = p[0] * z % P, p[1] * z % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def signed(key, message, signature):
    """Ed25519, RFC 8032, 5.1.7, without the cofactor."""
    a, s = point(key), int.from_bytes(signature[32:], "little")
    if a is None or s >= ORDER:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    minus = (P - a[0]) % P, a[1], 1, (P - a[3]) % P
    return encoded(add(times(s, BASE), times(h, minus))) == signature[:32]


def strict(text, shape, is_canonical=True):
    """Reads JSON of a closed shape: {key: shape}, [shape], (word, default), str, int."""
    def pairs(items):
        if len({key for key, _ in items}) != len(items):
            raise Refused("malformed")
        return dict(items)

    def no(_):
        raise Refused("malformed")
    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_float=no, parse_constant=no)
    except ValueError:
        raise Refused("malformed")
    fits(value, shape)
    if is_canonical and json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False) != text:
        raise Refused("not_canonical")
    return value


def fits(value, shape):
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise Refused("malformed")
        need = {key.rstrip("?"): key.endswith("?") for key in shape}
        if set(value) - set(need) or any(not optional and key not in value for key, optional in need.items()):
            raise Refused("malformed")
        for key, inner in shape.items():
            if key.rstrip("?") in value:
                fits(value[key.rstrip("?")], inner)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise Refused("malformed")
        for element in value:
            fits(element, shape[0])
    elif type(value) is not shape:
        raise Refused("malformed")


def form(pattern, text):
    return re.fullmatch(pattern, text, re.ASCII) is not None


IDENTITY = r"[!#-&(-\[\]-~]{1,255}"
SLUG = r"[a-z0-9][a-z0-9._-]{0,63}"
RECEIPT = {
    "schema": str, "facts": [str], "provider": str, "provider_revision": str, "materialization_revision": str,
    "topology": str, "topology_digest": str, "guard_digest": str, "guard_config_digest": str, "ruleset_digest": str,
    "ech": str, "cases": [{"id": str, "guard_only": str, "kernel_only": str, "both": str, "reason?": str}],
    "mutants": [{"name": str, "configuration": str, "killed_by": str}],
    "run_id": str, "lease_id": str, "lease_epoch": int, "started_at": str, "issued_at": str, "expires_at": str,
}
SIGNATURE = {"algorithm": str, "domain": str, "key": str, "signature": str}
ATTESTERS = {"schema": str, "attesters": [{"name": str, "key": str}]}


def must(ok, reason):
    if not ok:
        raise Refused(reason)


def public_key(text):
    """32 bytes in lower-case hex, one encoding, not of low order."""
    must(form(r"[0-9a-f]{64}", text), "key")
    key = bytes.fromhex(text)
    y = int.from_bytes(key, "little") & (2**255 - 1)
    must(y < P, "key")
    # Eight times a point of low order is the neutral element. Of x = 0 both
    # signs are refused, so the sign does not matter.
    p = point(y.to_bytes(32, "little"))
    must(p is None or encoded(times(8, p)) != b"\x01" + bytes(31), "key")
    return key


def attesters(text):
    found = strict(text, ATTESTERS, is_canonical=False)
    must(found["schema"] == SET, "field")
    names, keys = [a["name"] for a in found["attesters"]], [a["key"] for a in found["attesters"]]
    must(len(names) <= 64, "field")
    for i, a in enumerate(found["attesters"]):
        must(form(SLUG, a["name"]) and (i == 0 or names[i - 1] < a["name"]), "field")
        public_key(a["key"])
        must(a["key"] not in keys[:i], "field")
    return {a["key"]: a["name"] for a in found["attesters"]}


def moment(text):
    """The number of the day and the rest of it, or a refusal."""
    must(form(r"\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z", text), "field")
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    must(1970 <= year and 1 <= month <= 12 and 1 <= day <= days[month - 1], "field")
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 + sum(days[:month - 1]) + day, text[11:]


def whole(r):
    """The rules of a receipt, in their order."""
    must(r["schema"] == DOMAIN, "domain")
    must(r["facts"] == FACTS, "facts")
    must(form(r"[a-z0-9][a-z0-9._-]{0,254}", r["provider"]), "field")
    for key in ("provider_revision", "materialization_revision", "run_id", "lease_id"):
        must(form(IDENTITY, r[key]), "field")
    must(r["topology"] in ("socket_file", "inside_listener", "veth") and r["ech"] in ("deny", "lax"), "field")
    for key in ("topology_digest", "guard_digest", "guard_config_digest", "ruleset_digest"):
        must(form(r"sha256:[0-9a-f]{64}", r[key]), "field")
    must(0 <= r["lease_epoch"] < 2**53, "field")
    must([c["id"] for c in r["cases"]] == CASES, "case")
    for c in r["cases"]:
        outcomes = {c[k] for k in CONFIGURATIONS}
        must(outcomes <= {"pass", "skip"} and ("pass" in outcomes or c["id"] == "E52"), "case")
        must(("skip" in outcomes) == bool(c.get("reason")) and form(r"[ -~]{0,200}", c.get("reason", "")), "case")
    passed = {(c["id"], k) for c in r["cases"] for k in CONFIGURATIONS if c[k] == "pass"}
    order = [(m["name"], m["configuration"]) for m in r["mutants"]]
    must(order == sorted(set(order)) and len(order) <= 256 and len({n for n, _ in order}) >= 8, "mutant")
    for m in r["mutants"]:
        must(form(SLUG, m["name"]) and (m["killed_by"], m["configuration"]) in passed, "mutant")
    issued, expires = moment(r["issued_at"]), moment(r["expires_at"])
    must(moment(r["started_at"]) <= issued < expires <= (issued[0] + 90, issued[1]), "time")


def verify(receipt, signature, listed, now, revision=None):
    """Returns the name of the attester. All but revision are texts; listed is attesters(…)."""
    must(len(receipt.encode()) <= 256 << 10 and len(signature.encode()) <= 1024, "too_large")
    s = strict(signature, SIGNATURE)
    must(s["algorithm"] == "ed25519", "algorithm")
    must(s["domain"] == DOMAIN, "domain")
    key = public_key(s["key"])
    must(s["key"] in listed, "unlisted_key")
    must(form(r"[0-9a-f]{128}", s["signature"]), "signature")
    must(signed(key, DOMAIN.encode() + b"\0" + receipt.encode(), bytes.fromhex(s["signature"])), "signature")
    r = strict(receipt, RECEIPT)
    whole(r)
    must(r["issued_at"] <= now, "future")
    must(now < r["expires_at"], "expired")
    for field, want in (revision or {}).items():
        must(r[field] == want, "other_revision")
    return listed[s["key"]]


# --- end of the verifier ---------------------------------------------------


def check(s):
    try:
        listed = attesters(s["attesters"])
        if s["kind"] == "receipt":
            verify(s["receipt"], s["signature"], listed, s["now"], s.get("for"))
    except Refused as refused:
        return str(refused)
    return None


def main():
    here = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    passed = failed = 0
    for kind in ("attesters", "receipt"):
        folder = os.path.join(here, "scenario", kind)
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
                s = json.load(file)
            got = check(s)
            if got == s.get("reason") and (got is None) == s["accept"]:
                passed += 1
            else:
                failed += 1
                print("%s/%s: %s, want %s" % (kind, name, got or "accepted", s.get("reason", "accepted")))
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(failed > 0 or passed == 0)


if __name__ == "__main__":
    main()
