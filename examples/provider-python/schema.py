"""Holds a request to its schema of the author kit. Two kinds of refusal come of
it: what is no such message is WireMalformed, what is one and breaks a rule of
the contract is an adapter error (docs/wire.md, "Endpoints")."""
import json
import os
import re

from failure import invalid, malformed, unavailable

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "kit", "schema", "bundle.json"), encoding="utf-8") as file:
    DEFINITIONS = json.load(file)["$defs"]

# A value of these is the wire's own, and so is what is wrong with it.
WIRE_TYPES = {"OperationID", "ProcessID", "AttachID", "Digest", "Timestamp", "Endpoint", "ControlSignal"}
WIRE_KEYS = {"lease_epoch", "offset", "cursor", "wait_ms", "heartbeat_ms"}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


class Broken(Exception):
    def __init__(self, pointer, expected, form):
        super().__init__(pointer, expected)
        self.pointer, self.expected, self.form = pointer, expected, form


def check(name, value):
    """Raises the Failure with which a provider answers."""
    try:
        hold({"$ref": "#/$defs/" + name}, value, "", False)
    except Broken as broken:
        message = "%s: expected %s" % (broken.pointer, broken.expected)
        if broken.form:
            raise malformed(broken.pointer, message)
        if re.match(r"(request\.)?mounts\b", broken.pointer):
            raise unavailable("mounts", message)
        raise invalid(message)


def fits(schema, value):
    try:
        hold(schema, value, "", False)
        return True
    except Broken:
        return False


def search(pattern, text):
    # Python's $ also matches before a line feed at the end.
    return re.search(re.sub(r"(?<!\\)\$", r"\\Z", pattern), text, re.ASCII)


def hold(schema, value, at, form):
    """form says that whatever is wrong is wrong with the message."""

    def want(ok, expected, always=False):
        if not ok:
            raise Broken(at, expected, form or always)

    if schema is False:
        want(False, "nothing")
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        hold(DEFINITIONS[name], value, at, form or name in WIRE_TYPES)
    if "type" in schema:
        kind = TYPES[schema["type"]]
        want(isinstance(value, kind) and isinstance(value, bool) == (kind is bool), schema["type"], always=True)
    for key in ("enum", "const"):
        if key in schema:
            want(value in (schema[key] if key == "enum" else [schema[key]]), json.dumps(schema[key]))
    for one in schema.get("allOf", ()):
        hold(one, value, at, form)
    for key, many in (("anyOf", True), ("oneOf", False)):
        if key in schema:
            count = sum(fits(one, value) for one in schema[key])
            want(count == 1 or many and count > 1, key)
    if "not" in schema:
        want(not fits(schema["not"], value), "another form")
    if isinstance(value, str):
        want(search(schema.get("pattern", ""), value), "the form " + schema.get("pattern", ""))
        want(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)), "another length")
    elif isinstance(value, int):
        want(schema.get("minimum", value) <= value <= schema.get("maximum", value), "another number")
    elif isinstance(value, list):
        want(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)), "another number of items")
        for i, item in enumerate(value):
            if "items" in schema:
                hold(schema["items"], item, "%s[%d]" % (at, i), form)
        if schema.get("uniqueItems"):
            want(len({json.dumps(v, sort_keys=True) for v in value}) == len(value), "no duplicate")
    elif isinstance(value, dict):
        hold_object(schema, value, at, form, want)


def hold_object(schema, value, at, form, want):
    properties = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            raise Broken(join(at, key), "to be there", True)
    want(len(value) <= schema.get("maxProperties", len(value)), "fewer entries")
    for key, inner in value.items():
        if "propertyNames" in schema:
            hold(schema["propertyNames"], key, at, form)
        if key in properties:
            hold(properties[key], inner, join(at, key), form or key in WIRE_KEYS)
        elif schema.get("additionalProperties") is False:
            raise Broken(join(at, key), "no such key", True)
        elif isinstance(schema.get("additionalProperties"), dict):
            hold(schema["additionalProperties"], inner, at, form)  # a name of the environment, its value never
        if key in schema.get("dependentSchemas", {}):
            hold(schema["dependentSchemas"][key], value, at, form)


def join(at, key):
    return at + "." + key if at else key
