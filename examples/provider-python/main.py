"""Starts the provider: CHECKFU_LISTEN says where, CHECKFU_TOKEN who may call,
CHECKFU_STATE where its instances lie. SIGTERM ends it and all of them."""
import os
import resource
import signal
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import machine  # noqa: E402
from provider import Provider  # noqa: E402
from server import Wire, listen  # noqa: E402
from settings import NAME, ROOTLESS  # noqa: E402

NO_NAMESPACES = 4


def main():
    token, address = os.environ.pop("CHECKFU_TOKEN", ""), os.environ.get("CHECKFU_LISTEN", "")
    if not 32 <= len(token) <= 512 or not address:
        sys.exit("%s: set CHECKFU_LISTEN to unix:PATH or HOST:PORT and CHECKFU_TOKEN to 32 to 512 characters" % NAME)
    state = os.environ.get("CHECKFU_STATE") or tempfile.gettempdir()
    os.makedirs(state, exist_ok=True)
    state = tempfile.mkdtemp(prefix="run-", dir=state)  # what a crash left there is not ours to know
    # A workload with a user of its own has to reach its directories. Where it has
    # that of the provider, nobody else may: its files can be setuid.
    os.chmod(state, 0o700 if ROOTLESS else 0o711)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    why = machine.probe(state)
    if why:
        print("%s: this machine gives no namespaces of their own to commands (%s); nothing runs without them" % (NAME, why), file=sys.stderr)
        os.rmdir(state)
        sys.exit(NO_NAMESPACES)
    provider = Provider(state)
    server = listen(address, Wire(provider, token))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    try:
        server.serve_forever(poll_interval=0.1)
    finally:
        server.server_close()
        provider.close()
        os.rmdir(state)
        if address.startswith("unix:"):
            os.unlink(address[5:])


if __name__ == "__main__":
    main()
