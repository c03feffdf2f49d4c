"""A live process: what it wrote, kept from byte 0 whether or not anybody reads;
what it is to read; how it ended. See docs/wire.md, "A live process"."""
import hashlib
import json
import os
import threading
import time

import codec
from failure import Failure, failed
from machine import now
from settings import CAPABILITIES, INPUT_BUFFER, OUTPUT_WINDOW

ERROR_WINDOW, REWIND, BATCH, DRAIN = 64 << 10, 64 << 10, 256 << 10, 10
OPEN, OUT, ERR, OUT_END, ERR_END, WINDOW, EXIT, DETACH, TRUNCATED, PING = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x1F
ERROR = 0x04


class Ring:
    """The newest bytes of a stream, by their offset in all of it."""

    def __init__(self, limit):
        self.limit, self.low, self.kept = limit, 0, bytearray()

    @property
    def end(self):
        return self.low + len(self.kept)

    def write(self, data):
        self.kept += data
        # Not byte by byte: to move what is left costs as much as it is long.
        if len(self.kept) > 2 * self.limit:
            cut = len(self.kept) - self.limit
            del self.kept[:cut]
            self.low += cut

    def at(self, offset, most):
        return bytes(self.kept[offset - self.low : offset - self.low + most])


class Attachment:
    def __init__(self, lease, epoch, cursor, errors):
        self.lease, self.epoch, self.at, self.errors = lease, epoch, cursor, errors
        self.said = set()
        self.detach = None


class Process:
    """Every method that is called under a lock says so; change is that lock."""

    def __init__(self, instance, process_id, request):
        self.instance, self.id = instance, process_id
        self.change = threading.Condition()
        self.out, self.err, self.sum = Ring(OUTPUT_WINDOW), Ring(ERROR_WINDOW), hashlib.sha256()
        self.out_end = self.err_end = self.exit = None
        self.lost = self.truncated = False
        self.taken = self.written = 0
        self.waiting, self.ended, self.closed = bytearray(), False, None
        self.reader = None
        self.readers = []  # the ids of the newest attachments, the last last
        started = now()
        self.command = instance.start(request, linger=True)
        self.evidence = evidence(instance.value, process_id, started)
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self.pump_out, self.pump_err, self.pump_in, self.reap)]
        for thread in self.threads:
            thread.start()

    # --- the four threads ---

    def pump_out(self):
        while data := os.read(self.command.stdout, 1 << 16):
            with self.change:
                if self.out_end is None:
                    self.sum.update(data)
                    self.out.write(data)
                    if self.reader and self.reader.at < self.out.low:
                        self.truncate()
                    self.change.notify_all()
        self.end_out(False)

    def pump_err(self):
        while data := os.read(self.command.stderr, 1 << 14):
            with self.change:
                if self.err_end is None:
                    self.err.write(data)
                    self.change.notify_all()
        self.end_err()

    def pump_in(self):
        try:
            while True:
                with self.change:
                    while not (self.waiting or self.ended or self.closed):
                        self.change.wait()
                    data = bytes(self.waiting[: 1 << 15])
                    if self.closed or not data:
                        return
                written = os.write(self.command.stdin, data)
                with self.change:
                    del self.waiting[:written]
                    self.written += written
                    self.change.notify_all()
        except OSError:
            with self.change:
                self.stop_input("guest_closed")
        finally:
            os.close(self.command.stdin)
            self.command.stdin = None

    def reap(self):
        how = self.command.report()
        with self.change:
            if how:
                self.exit = how
            elif self.command.dead:
                self.exit = {"signal": "SIGKILL"}  # by us: process 1 went, and all with it
            else:
                self.lost = True
            self.stop_input("exited")
            until = time.monotonic() + DRAIN
            while (self.out_end is None or self.err_end is None) and time.monotonic() < until:
                self.change.wait(until - time.monotonic())
            self.change.notify_all()
        self.end_out(True)
        self.end_err()
        self.command.kill()  # whoever held a stream longer than that
        for thread in self.threads[:3]:
            thread.join()
        self.command.close()

    def end_out(self, forced):
        with self.change:
            if self.out_end is None:
                self.out_end = {"digest": "sha256:" + self.sum.hexdigest(), "forced": forced, "offset": self.out.end}
                self.change.notify_all()

    def end_err(self):
        with self.change:
            if self.err_end is None:
                self.err_end = {"offset": self.err.end}
                self.change.notify_all()

    # --- the calls ---

    def opened(self):
        """Under change."""
        return dict(
            self.window(), process_id=self.id, evidence=self.evidence, low_water=self.out.low, output_window_bytes=OUTPUT_WINDOW
        )

    def window(self):
        """Under change."""
        return {"input_offset": self.taken, "input_credit": self.written + INPUT_BUFFER - self.taken}

    def input(self, offset, data, end):
        """Under change: all of it or nothing. What came before is passed over."""
        if offset > self.taken:
            raise Failure("WireInputGap", **self.window())
        data = data[self.taken - offset :]
        if data and (self.ended or self.closed):
            raise Failure("WireInputClosed", cause=self.closed or "ended", **self.window())
        if len(data) > self.window()["input_credit"]:
            raise Failure("WireInputBufferFull", **self.window())
        if not self.closed:
            self.waiting += data
        self.taken += len(data)
        self.ended = self.ended or end
        self.change.notify_all()
        return self.window()

    def stop_input(self, cause):
        """Under change."""
        self.closed = self.closed or cause
        self.waiting.clear()
        self.change.notify_all()

    def truncate(self):
        """Under change: nobody is ever told less than everything."""
        self.truncated = True
        threading.Thread(target=self.command.kill, daemon=True).start()
        self.change.notify_all()

    def attach(self, lease, epoch, request):
        """Under change. The newest reader wins."""
        cursor = request["cursor"]
        if self.lost:
            raise failed("process_lost")
        if request["attach_id"] in self.readers[:-1]:  # late: it takes the place of nobody
            late = Attachment(lease, epoch, cursor, self.err.low)
            late.detach = {"reason": "superseded", "attach_id": self.readers[-1]}
            return late
        if cursor > self.out.end:
            threading.Thread(target=self.command.kill, daemon=True).start()
            raise Failure("WireCursorAhead", end=self.out.end)
        if cursor < self.out.low:
            self.truncate()
        if self.truncated:
            raise Failure("WireOutputTruncated", low_water=self.out.low)
        if self.reader:
            self.reader.detach = {"reason": "superseded", "attach_id": request["attach_id"]}
        self.readers = [i for i in self.readers if i != request["attach_id"]][-32:] + [request["attach_id"]]
        self.reader = Attachment(lease, epoch, cursor, self.err.low)
        self.change.notify_all()
        return self.reader

    def fence(self, lease, epoch):
        with self.change:
            if self.reader and self.reader.lease == lease and self.reader.epoch < epoch:
                self.reader.detach = {"reason": "fenced", "lease_epoch": epoch}
                self.change.notify_all()

    def follow(self, reader, request, send):
        """Sends frames until the last one."""
        with self.change:
            frames = message(OPEN, self.opened())
            told = sum(self.window().values())
        due = time.monotonic() + request["wait_ms"] / 1000 if request["wait_ms"] else None
        beat = request["heartbeat_ms"] / 1000
        poll_end = message(DETACH, {"reason": "poll_end"})
        silent = time.monotonic()
        while True:
            with self.change:
                more, last, told = self.fill(reader, told)
                late = due is not None and time.monotonic() >= due
                if not (frames or more or last or late) and time.monotonic() - silent < beat:
                    until = min(silent + beat, due or silent + beat)
                    self.change.wait(max(until - time.monotonic(), 0))
                    continue
            if not last and due is not None and (more or late):
                more, last = more + poll_end, True
            send(frames + more or codec.frame(PING, b""))
            silent, frames = time.monotonic(), b""
            if last:
                break
        with self.change:
            if self.reader is reader:
                self.reader = None

    def fill(self, reader, told):
        """Under change: the frames that the reader lacks, whether they are the
        last, and the limit of input that it knows."""
        if reader.detach:
            return message(DETACH, reader.detach), True, told
        if self.lost:
            return message(ERROR, failed("process_lost").body("process_stream")), True, told
        if self.truncated:
            return message(TRUNCATED, {"low_water": self.out.low}), True, told
        frames = b""
        reader.errors = max(reader.errors, self.err.low)
        if part := self.err.at(reader.errors, BATCH):
            frames += codec.output(ERR, reader.errors, part)
            reader.errors += len(part)
        if part := self.out.at(reader.at, BATCH):
            frames += codec.output(OUT, reader.at, part)
            reader.at += len(part)
        limit = self.written + INPUT_BUFFER
        if limit - told >= INPUT_BUFFER // 4 or limit > told and told - self.taken < INPUT_BUFFER // 4:
            frames += message(WINDOW, self.window())
            told = limit
        ends = ((OUT_END, self.out_end if reader.at == self.out.end else None), (ERR_END, self.err_end), (EXIT, self.exit))
        for kind, body in ends:
            if body is not None and kind not in reader.said:
                reader.said.add(kind)
                frames += message(kind, body)
        return frames, len(reader.said) == 3, told

    def wait(self, seconds):
        until = time.monotonic() + seconds
        with self.change:
            while self.exit is None and not self.lost and time.monotonic() < until:
                self.change.wait(until - time.monotonic())
            if self.lost:
                raise failed("process_lost")
            return {"exit": self.exit} if self.exit else {"running": True}

    def destroy(self):
        self.command.kill()


def message(kind, body):
    return codec.frame(kind, codec.canonical(body))


def evidence(instance, process_id, started):
    """Only what this side knows, and did: nothing of it comes from the machine."""
    made = instance["materialization"]
    return json.loads(json.dumps({
        "schema": "checkfu.sandbox-process-evidence.v1", "process_id": process_id, "instance_id": instance["instance_id"],
        "provider": instance["provider"], "provider_revision": made["provider_revision"],
        "materialization_revision": made["materialization_revision"], "root_image": instance["root_image"],
        "image_digest": made["image_digest"], "profile_digest": made["profile_digest"], "platform": instance["platform"],
        "network_mode": instance["profile"]["network_policy"]["mode"], "resource_limits": instance["profile"]["resource_limits"],
        "enforcement": CAPABILITIES["enforcement"], "started_at": started, "observed_at": max(now(), started),
    }))
