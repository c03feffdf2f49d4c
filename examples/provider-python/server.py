"""The wire: HTTP, headers, what is answered. docs/wire.md says what each of them
has to do; journal.py is what has to be remembered."""
import hashlib
import hmac
import http.server
import os
import re
import select
import socket
import socketserver
import stat
import sys
import threading
import time

import codec
import schema
from failure import Failure, conflict, failed, malformed
from provider import Framed
from settings import CAPABILITIES, MEMBERS, WIRE

REVISION = WIRE["revision"]
# endpoint: schema, is it journaled, is it framed, the longest body
JSON, FRAMES = (8 << 20, False), (25 << 20, True)
ENDPOINTS = {
    "capabilities": ("Empty", False, JSON), "provision": ("ProvisionRequest", True, JSON), "write_file": ("FileCall", True, FRAMES),
    "activate": ("InstanceRequest", True, JSON), "execute": ("ExecuteCall", True, FRAMES), "read_file": ("ReadFileRequest", False, JSON),
    "read_files": ("ReadFilesRequest", False, JSON), "list_dir": ("ListRequest", False, JSON),
    "list_project_dir": ("ListRequest", False, JSON), "snapshot": ("SnapshotRequest", True, JSON),
    "clone_snapshot": ("CloneRequest", True, JSON), "release": ("ReleaseRequest", True, JSON), "resume": ("ResumeRequest", True, JSON),
    "destroy": ("InstanceRequest", True, JSON), "destroy_snapshot": ("DestroySnapshotRequest", True, JSON),
    "cleanup": ("CleanupRequest", True, JSON), "begin_active_write": ("BeginActiveWriteRequest", True, JSON),
    "stage_active_write": ("StageCall", True, FRAMES), "dispatch_active_write": ("TransactionRequest", True, JSON),
    "abort_active_write": ("TransactionRequest", True, JSON), "inspect_active_write": ("TransactionRequest", False, JSON),
    "open_process": ("OpenProcessRequest", True, JSON), "process_stream": ("StreamRequest", False, JSON),
    "process_input": ("InputCall", False, (266240, True)), "process_wait": ("WaitRequest", False, JSON),
    "process_signal": ("SignalRequest", True, JSON), "process_destroy": ("ProcessRequest", False, JSON),
    "rollback": ("RollbackRequest", False, JSON), "operation": ("OperationRequest", False, JSON),
}
# What is not served, and where its absence has a word of the contract.
ABSENT = {"list_dir", "list_project_dir", "open_process", "begin_active_write"}
OF_PROCESS = {e for e in ENDPOINTS if e.startswith("process_")}


class Call:
    """One request, after everything about its form was checked."""

    def __init__(self, server, endpoint, lease, request, data, left):
        self.server, self.endpoint, self.lease, self.request, self.data = server, endpoint, lease, request, data
        self.left = left  # says whether the caller has gone, so that nobody waits for the answer
        self.operation = None

    def lease_is(self, lease, epoch):
        for key, is_, said in (("lease_id", lease, self.lease[0]), ("lease_epoch", epoch, self.lease[1])):
            if is_ != said:
                raise malformed(key, "expected that of the headers")

    def admit(self, lease, epoch):
        """Fences the lease of what is asked for, where it is not the caller's."""
        self.server.admit(lease, epoch)

    def own(self, lease):
        """Refuses an instance of another lease."""
        if lease != self.lease[0]:
            raise Failure("WireLeaseFenced", lease_epoch=max(self.epoch_of(lease), 0))

    def epoch_of(self, lease):
        return self.server.journal.epoch(lease)

    def fence(self):
        """Refuses a lease that was overtaken since the call was admitted."""
        if self.epoch_of(self.lease[0]) > self.lease[1]:
            raise Failure("WireLeaseFenced", lease_epoch=self.epoch_of(self.lease[0]))

    def handoff(self, value):
        return {"value": value, "rollback": {"operation_id": self.operation.id}}


class Wire:
    """What every request of this server shares."""

    def __init__(self, provider, token, journal):
        self.provider, self.token, self.journal = provider, token, journal
        self.boot = "bt_" + os.urandom(16).hex()
        self.digest = codec.digest(codec.canonical(CAPABILITIES))

    def admit(self, lease, epoch):
        if self.journal.admit(lease, epoch):
            self.provider.fence(lease, epoch)

    def member(self, endpoint):
        """The function that serves an endpoint, or the typed refusal."""
        contract = "open_process" if endpoint in OF_PROCESS else endpoint
        if endpoint in ("rollback", "operation"):
            return getattr(self, endpoint)
        if contract in MEMBERS or endpoint in ("snapshot", "clone_snapshot", "resume"):
            return getattr(self.provider, endpoint)
        if endpoint in ABSENT:
            raise conflict("", endpoint + "_unsupported")
        raise Failure("WireMemberUnknown")

    def perform(self, call, operation_id, digest):
        """Serves a call: by the journal, where its endpoint is one that changes
        something. Returns status, framed, body, or a function that sends frames."""
        if not operation_id:
            return self.answer(call)
        self.journal.forget(self.provider.instances)
        operation, fresh = self.journal.begin(operation_id, call.endpoint, digest)
        if fresh:
            call.operation = operation
            operation.answer = self.answer(call)
            operation.since = time.time()
            operation.done.set()
        operation.done.wait()
        if operation.rolled_back:
            raise Failure("WireOperationRolledBack")
        return operation.answer

    def answer(self, call):
        try:
            found = self.member(call.endpoint)(call)
        except Failure as why:
            return refusal(call.endpoint, why)
        except Exception as why:  # a bug of ours, or a host that has no more to give
            print("provider: %s: %r" % (call.endpoint, why), flush=True)
            return refusal(call.endpoint, failed("provider_error", message=repr(why)))
        if callable(found):
            return found
        if isinstance(found, Framed):
            return 200, True, found.body
        return 200, False, codec.canonical(found)

    def rollback(self, call):
        self.journal.rollback(call.request["operation_id"], call.request["member"], self.provider.undo)
        return {"settled": True}

    def operation(self, call):
        raise Failure("WireOperationUnknown")  # nothing here answers 202


def refusal(endpoint, why):
    return why.status, False, codec.canonical(why.body(endpoint))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # TCP_NODELAY
    timeout = 120  # of one read or write: a peer that stands still costs a thread that long
    wbufsize = 1 << 16

    def setup(self):
        if self.request.family == socket.AF_UNIX:
            self.disable_nagle_algorithm = False
        super().setup()

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.serve()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_GET

    def serve(self):
        wire, endpoint = self.server.wire, self.path[4:]
        try:
            length = self.admitted(wire)
            if not self.path.startswith("/v1/") or endpoint not in ENDPOINTS:
                endpoint = ""
                raise Failure("WireMemberUnknown")
            answer = self.call(wire, endpoint, length)
        except Failure as why:
            self.close_connection = True  # its body may still be on the way
            answer = refusal(endpoint, why)
        except codec.Refused as why:
            self.close_connection = True
            answer = refusal(endpoint, malformed("body", str(why)))
        if not callable(answer):
            return self.reply(*answer)
        self.head(200, True, None)
        self.close_connection = True  # its end is the end of the connection

        def send(frames):
            self.wfile.write(frames)
            self.wfile.flush()

        try:
            answer(send)
        except OSError:
            pass  # the reader went; it comes again at its cursor

    def one(self, name, pattern, needed, allowed=True):
        """The only value of a header, or None."""
        values = self.headers.get_all(name, [])
        if not values and not (needed and allowed):
            return None
        if len(values) != 1 or not allowed or not re.fullmatch(pattern, values[0], re.ASCII):
            raise malformed(name.lower(), "expected it once, in its form, where it belongs")
        return values[0]

    def admitted(self, wire):
        """Who calls, and in which revision: before anything else is said."""
        tokens = self.headers.get_all("Authorization", [])
        given = tokens[0] if len(tokens) == 1 else ""
        if not hmac.compare_digest(given.encode("latin-1", "replace"), b"Bearer " + wire.token.encode()):
            raise Failure("WireUnauthenticated")
        if self.headers.get_all("Checkfu-Wire", []) != [REVISION]:
            raise Failure("WireUnsupported", supported=[REVISION])

    def call(self, wire, endpoint, _):
        name, journaled, (most, framed) = ENDPOINTS[endpoint]
        leased = endpoint != "capabilities"
        lease = self.one("Checkfu-Lease-Id", r"[!#-&(-\[\]-~]{1,255}", leased, leased)
        epoch = self.one("Checkfu-Lease-Epoch", r"0|[1-9][0-9]{0,15}", leased, leased)
        operation = self.one("Checkfu-Operation-Id", r"op_[0-9a-f]{32}", journaled, journaled)
        for header, high in (("Checkfu-Deadline-Ms", 604800000), ("Checkfu-Wait-Ms", 30000)):
            value = self.one(header, r"0|[1-9][0-9]{0,9}", False)
            if value and (int(value) > high or header == "Checkfu-Deadline-Ms" and value == "0"):
                raise malformed(header.lower(), "expected at most %d" % high)
        if epoch and int(epoch) > codec.MAX_INTEGER:
            raise malformed("checkfu-lease-epoch", "expected at most 2^53-1")
        bodiless = self.command == "GET" and endpoint == "capabilities"
        if self.command != "POST" and not bodiless:
            raise malformed("method", "expected POST")
        if not bodiless:
            media = "application/vnd.checkfu.frames" if framed else "application/json"
            self.one("Content-Type", re.escape(media), True)
            self.one("Content-Encoding", "identity", False)
        body = b"" if bodiless else self.body(most)
        lease = (lease, int(epoch or 0))
        if leased:
            wire.admit(*lease)
        call = Call(wire, endpoint, lease, {}, b"", self.left)
        if framed:
            call.request, call.data = split(body)
        elif not bodiless:
            call.request = codec.strict(body)
        if framed and endpoint == "write_file" and isinstance(call.request, dict):
            self.too_large(call.request)
        schema.check(name, call.request)
        if framed:
            check_data(endpoint, call)
        return wire.perform(call, operation, hashlib.sha256(body).digest())

    def left(self):
        """Whether the caller closed the connection: it sends nothing before it has
        its answer."""
        ready = select.poll()
        ready.register(self.connection, select.POLLIN)
        try:
            return bool(ready.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def too_large(self, request):
        size, path = request.get("size"), request.get("path")
        if type(size) is int and type(path) is str and size > 16 << 20:
            raise Failure("SandboxFileTooLarge", path=path, maximum_bytes=16 << 20)

    def body(self, most):
        if "Transfer-Encoding" in self.headers:
            raise malformed("content-length", "expected the length of the body")
        length = int(self.one("Content-Length", r"[0-9]{1,12}", True))
        if length > most:
            raise Failure("WirePayloadTooLarge", maximum_bytes=most)
        body = self.rfile.read(length)
        if len(body) < length:
            raise malformed("body", "expected as many bytes as were announced")
        return body

    def head(self, status, framed, length):
        self.send_response_only(status)
        headers = {
            "Checkfu-Wire": REVISION, "Checkfu-Capabilities-Digest": self.server.wire.digest, "Checkfu-Boot-Id": self.server.wire.boot,
            "Content-Type": "application/vnd.checkfu.frames" if framed else "application/json",
        }
        if framed:
            headers.update({"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no", "Incremental": "?1"})
        if length is not None:
            headers["Content-Length"] = str(length)
        if self.close_connection or length is None:
            headers["Connection"] = "close"
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def reply(self, status, framed, body):
        self.head(status, framed, len(body))
        self.wfile.write(body)
        self.wfile.flush()


def split(body):
    """A framed request: its call, and the data behind it."""
    call, data, behind = b"", b"", False
    parts = []
    for kind, payload in codec.frames(body):
        if kind == 1 and not behind:
            call += payload
        elif kind == 2 and call:
            behind = True
            parts.append(payload)
        else:
            raise malformed("body", "expected call frames, then data")
    if len(call) > 8 << 20:
        raise Failure("WirePayloadTooLarge", maximum_bytes=8 << 20)
    return codec.strict(call), data.join(parts)


def check_data(endpoint, call):
    if endpoint == "write_file":
        if len(call.data) != call.request["size"]:
            raise malformed("size", "expected as many bytes of data")
        if codec.digest(call.data) != call.request["digest"]:
            raise malformed("digest", "expected the digest of the data")
    elif len(call.data) > (262144 if endpoint == "process_input" else 16 << 20):
        raise Failure("WirePayloadTooLarge", maximum_bytes=262144 if endpoint == "process_input" else 16 << 20)


class Threaded(socketserver.ThreadingMixIn):
    daemon_threads = True
    request_queue_size = 128
    wire = None

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # that is a peer that went
            super().handle_error(request, client_address)


class UnixServer(Threaded, socketserver.UnixStreamServer):
    pass


class TCPServer(Threaded, socketserver.TCPServer):
    allow_reuse_address = True


def listen(address, wire):
    """unix:PATH, or HOST:PORT of this machine."""
    if address.startswith("unix:"):
        clear(address[5:])
        server = UnixServer(address[5:], Handler)
        os.chmod(address[5:], 0o600)
    else:
        host, port = address.rsplit(":", 1)
        server = TCPServer((host, int(port)), Handler)
    server.wire = wire
    return server


def clear(path):
    """Takes away the socket of a provider that was killed."""
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(path)
        except ConnectionRefusedError:
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
        except OSError:
            pass  # there is none, or bind says what is wrong
