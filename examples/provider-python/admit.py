"""What a schema cannot see: the rules of the contract for one request, and what
this provider's envelope admits. Before any effect."""
import codec
from failure import Failure, conflict, invalid, unavailable
from machine import RESERVED, now, within
from settings import CAPABILITIES, IMAGE

TARGET = {k: CAPABILITIES[k] for k in ("provider", "provider_revision", "materialization_revision", "placement")}


def clean(name, path):
    raw = codec.unescape(path)
    if len(raw) > 4096 or b"\0" in raw or any(len(p) > 255 for p in raw.split(b"/")):
        raise invalid(name + ": expected at most 4096 bytes without NUL, each component at most 255")


def check_read(path, root):
    clean("path", path)
    clean("allowed_root", root)
    if not within(path, root) or path == root:
        raise invalid("path: expected a path below allowed_root")


def check_batch(request):
    for member in request["files"]:
        check_read(member["path"], request["allowed_root"])
    if sum(m["maximum_bytes"] for m in request["files"]) != request["aggregate_maximum_bytes"]:
        raise invalid("aggregate_maximum_bytes: expected the sum of the members")


def check_cutoff(request):
    if request["orphaned_before"] > request["now"]:
        raise invalid("orphaned_before: expected no later than now")


def check_program(program):
    for name, text, most in (
        [("executable", program["executable"], 4096), ("working_directory", program["working_directory"], 4096)]
        + [("arguments", a, 65536) for a in program["arguments"]]
        + [("environment", v, 131072) for v in program["environment"].values()]
    ):
        raw = codec.unescape(text)
        if len(raw) > most or b"\0" in raw:
            raise invalid("%s: expected at most %d bytes without NUL" % (name, most))


def admit(request):
    """Holds a request to the envelope, in the order of selection."""
    profile, c, paths = request["profile"], CAPABILITIES, []
    for m in request["mounts"]:
        path = m["mount_path"]
        try:
            clean("mount_path", path)
        except Failure:
            raise unavailable("mounts", path, "a shorter path")
        if path in paths or any(within(path, r) or within(r, path) for r in RESERVED):
            raise unavailable("mounts", path, "no path twice, and no overlap with what is reserved")
        paths.append(path)
    keys = [(p["manager"], p["name"], p.get("version", "")) for p in profile["packages"]]
    if keys != sorted(set(keys)):
        raise invalid("profile.packages: expected ascending order")
    if request["target"] != TARGET:
        raise conflict(" ".join(TARGET.values()), " ".join(request["target"].get(k, "") for k in TARGET))
    limits = profile["resource_limits"]
    outside = [k for k, v in limits.items() if not c["minimum_resources"][k] <= v <= c["maximum_resources"][k]]
    for requirement, lacks, wanted in (
        ("tier", profile["tier"] not in c["tiers"], profile["tier"]),
        ("platform", request["platform"] not in c["platforms"], request["platform"]["architecture"]),
        ("base_image", profile["base_image"] != IMAGE or request["root_image"] != IMAGE, profile["base_image"]),
        ("packages", bool(keys), keys[0][0] if keys else ""),
        ("network_policy", profile["network_policy"]["mode"] != "none", profile["network_policy"]["mode"]),
        ("retention", profile["retention_mode"] not in c["retention_modes"], profile["retention_mode"]),
        ("resources", bool(outside), ", ".join(outside)),
        ("mounts", len(paths) > c["max_mounts"], "%d mounts" % len(paths)),
    ):
        if lacks:
            raise unavailable(requirement, wanted, "")
    in_time(request["expires_at"])


def in_time(deadline):
    if now() >= deadline:
        raise conflict("before expires_at " + deadline, "expired")


def check_clone(request):
    source = request["snapshot"]
    check_snapshot("snapshot", source)
    if request["target_session_id"] == source["session_id"]:
        raise invalid("target_session_id: expected another Session than the source's")


def check_snapshot(name, reference):
    if reference["created_at"] >= reference["expires_at"]:
        raise invalid(name + ".created_at: expected a time before expires_at")
