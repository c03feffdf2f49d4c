"""What can be answered instead of an answer."""

STATUS = {
    "SandboxCapabilityUnavailable": 422, "SandboxFileTooLarge": 413, "SandboxInstanceNotFound": 404,
    "SandboxSnapshotNotFound": 404, "SandboxLifecycleConflict": 409, "SandboxOperationFailed": 500,
    "SandboxOutputLimitExceeded": 422, "SandboxSnapshotForbidden": 403, "WireUnauthenticated": 401,
    "WireMalformed": 400, "WireUnsupported": 400, "WireMemberUnknown": 404, "WireOperationUnknown": 404,
    "WireProcessNotFound": 404, "WirePayloadTooLarge": 413, "WireLeaseFenced": 409, "WireOperationMismatch": 422,
    "WireOperationRolledBack": 409, "WireInputBufferFull": 429, "WireInputGap": 409, "WireInputClosed": 409,
    "WireOutputTruncated": 410, "WireCursorAhead": 409, "WireOverloaded": 503,
}


class Failure(Exception):
    """One error of the contract or of the wire. The operation is added by who
    knows it."""

    def __init__(self, tag, message=None, **fields):
        super().__init__(tag, message, fields)
        self.tag, self.fields, self.operation = tag, fields, None
        if message:
            self.fields["message"] = message[:300]

    def during(self, operation):
        self.operation = operation
        return self

    def body(self, operation):
        return {"error": dict(self.fields, _tag=self.tag, operation=self.operation or operation)}

    @property
    def status(self):
        return STATUS[self.tag]


def failed(reason, path=None, message=None):
    return Failure("SandboxOperationFailed", message, reason=reason, **({"path": path} if path is not None else {}))


def invalid(message):
    return failed("invalid_request", message=message)


def unavailable(requirement, expected="", actual=""):
    return Failure("SandboxCapabilityUnavailable", requirement=requirement, expected=expected, actual=actual)


def conflict(expected, actual):
    return Failure("SandboxLifecycleConflict", expected=expected, actual=actual)


def malformed(pointer, message):
    return Failure("WireMalformed", message, pointer=pointer)
