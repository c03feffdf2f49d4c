"""Holds this provider's own reading of requests to the golden vectors of the kit:
what is right passes, what is wrong is refused with the tag that a vector names.
Starts nothing. kit/check.py checks the codec alone."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import admit  # noqa: E402
import codec  # noqa: E402
import schema  # noqa: E402
from failure import Failure, malformed  # noqa: E402
from server import ENDPOINTS  # noqa: E402
from settings import DURABLE  # noqa: E402

SCENARIOS = os.path.join(schema.HERE, "kit", "scenario")
REQUESTS = {name for name, _, _ in ENDPOINTS.values()}


def scenarios(kind):
    folder = os.path.join(SCENARIOS, kind)
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            scenario = json.load(file)
        if scenario["schema"] in REQUESTS:
            yield kind + "/" + name, scenario


def refusal(scenario):
    """The tag and the reason with which a request is refused, or None."""
    try:
        try:
            request = codec.strict(bytes.fromhex(scenario.get("hex", "")))
        except codec.Refused as why:
            raise malformed("body", str(why))
        schema.check(scenario["schema"], request)
        rules(scenario["schema"], request)
    except Failure as why:
        return why.tag, why.fields.get("reason") or why.fields.get("requirement")
    return None


def rules(name, request):
    """What the members check of a request alone."""
    if name == "ProvisionRequest":
        admit.admit(request)
    elif name in ("ExecuteCall", "OpenProcessRequest"):
        admit.check_program(request.get("command") or request["process"])
    elif name == "ReadFileRequest":
        admit.check_read(request["path"], request["allowed_root"])
    elif name == "ReadFilesRequest":
        admit.check_batch(request)
    elif name == "CloneRequest":
        admit.check_clone(request)
    elif name == "CleanupRequest":
        admit.check_cutoff(request)


def main():
    count, wrong = 0, []
    for kind in ("message", "refused-message", "refused-request"):
        for name, scenario in scenarios(kind):
            got, want = refusal(scenario), None
            if kind == "refused-message":
                want = ("WireMalformed", None)
            elif kind == "refused-request":
                want = (scenario["tag"], scenario.get("reason"))
            elif scenario["schema"] == "ProvisionRequest" and got and got[0] in ("SandboxLifecycleConflict", "SandboxCapabilityUnavailable"):
                got = None  # right, and of another provider than this one
            if scenario["schema"] == "CloneRequest" and kind == "refused-request" and not DURABLE:
                continue  # nothing of it is looked at where there are no snapshots
            count += 1
            if got != want:
                wrong.append("%s: %s, want %s" % (name, got, want))
    print("\n".join(wrong + ["%d requests, %d wrong" % (count, len(wrong))]))
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
