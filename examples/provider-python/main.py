"""Starts the provider: CHECKFU_LISTEN says where, CHECKFU_TOKEN who may call,
CHECKFU_STATE where its instances lie, and its snapshots and its journal where it
has any. SIGTERM ends it and all instances."""
import os
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import machine  # noqa: E402
from journal import Journal  # noqa: E402
from provider import Provider  # noqa: E402
from server import Wire, listen  # noqa: E402
from settings import DURABLE, NAME, ROOTLESS  # noqa: E402

NO_NAMESPACES = 4


def main():
    token, address = os.environ.pop("CHECKFU_TOKEN", ""), os.environ.get("CHECKFU_LISTEN", "")
    if not 32 <= len(token) <= 512 or not address:
        sys.exit("%s: set CHECKFU_LISTEN to unix:PATH or HOST:PORT and CHECKFU_TOKEN to 32 to 512 characters" % NAME)
    given = os.environ.get("CHECKFU_STATE")
    home = given or tempfile.mkdtemp(prefix=NAME + "-")
    os.makedirs(home, exist_ok=True)
    state = tempfile.mkdtemp(prefix="run-", dir=home)
    # A workload with a user of its own has to reach its directories. Where it has
    # that of the provider, nobody else may: its files can be setuid.
    for directory in [state] + [home] * (not given):
        os.chmod(directory, 0o700 if ROOTLESS else 0o711)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    why = machine.probe(state)
    if why:
        print("%s: this machine gives no namespaces of their own to commands (%s); nothing runs without them" % (NAME, why), file=sys.stderr)
        leave(state, given, home)
        sys.exit(NO_NAMESPACES)
    try:
        journal = Journal(os.path.join(home, "journal") if DURABLE else ":memory:")
    except (sqlite3.Error, ValueError, KeyError) as why:
        leave(state, given, home)
        sys.exit("%s: the journal of %s is held by another provider, or damaged: %r" % (NAME, home, why))
    provider = Provider(state, os.path.join(home, "snapshots"), journal)
    if DURABLE:
        for name in os.listdir(home):  # of providers that were killed: the journal says that none lives
            if name.startswith("run-") and name != os.path.basename(state):
                shutil.rmtree(os.path.join(home, name), ignore_errors=True)
        provider.tidy()
    server = listen(address, Wire(provider, token, journal))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    try:
        server.serve_forever(poll_interval=0.1)
    finally:
        server.server_close()
        provider.close()
        journal.close()
        if DURABLE:
            provider.tidy()
        leave(state, given, home)
        if address.startswith("unix:"):
            os.unlink(address[5:])


def leave(state, given, home):
    """What a crash left beside it is not ours to know; a home of our own goes too."""
    os.rmdir(state)
    if not given:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
