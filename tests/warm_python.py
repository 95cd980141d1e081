"""An interpreter that has loaded torch already: its processes are forked from one that waits.

To load torch, and what torch loads when it first profiles, takes seconds, and the processes that
tests start are many. ``make`` writes an executable that takes ``-c CODE`` as python does; it hands
its arguments, environment and files to the process that waits, and ends as what is forked there.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

_SIZE = struct.Struct("!Q")
_MOST_FILES = 16
_CLIENT = """#!{python} -IS
import json, os, signal, socket, struct, sys
def is_open(file):
    try:
        return bool(os.fstat(file))
    except OSError:
        return False
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
code = sys.argv[sys.argv.index("-c") + 1 :]
files = [int(file) for file in os.listdir("/proc/self/fd")]
files = sorted(file for file in files if file != server.fileno() and is_open(file))
asked = json.dumps([files, code, os.getcwd(), dict(os.environ)]).encode()
# What is forked may run before the handler is there: until then a SIGTERM waits.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
socket.send_fds(server, [struct.pack("!Q", len(asked))], files)
server.sendall(asked)
signal.signal(signal.SIGTERM, lambda *_: server.sendall(b"T"))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
for file in files:  # they end when what was forked closes them
    os.close(file)
ended = int(server.recv(16) or b"1")
if ended < 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), -ended)
os._exit(ended)
"""


def make(folder: Path, owner: int, *, compiler: bool = False) -> Path:
    """Write the executable ``python``, and start what waits for it as long as a process lives: no
    child of this one, whose tests look at its children.

    Args:
        compiler: write the executable ``compiling``, too, which has loaded torch's compiler.
    """
    names = ["python", *["compiling"] * compiler]
    addresses = [str(folder / f"{name}.socket") for name in names]
    subprocess.run(
        [sys.executable, __file__, str(owner), *addresses],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        check=True,
    )
    for name, address in zip(names, addresses, strict=True):
        while not os.path.exists(address):
            time.sleep(0.05)
        client = folder / name
        client.write_text(_CLIENT.format(python=sys.executable, address=address))
        client.chmod(client.stat().st_mode | stat.S_IXUSR)
    return client


def load() -> None:
    """Load what takes long: nothing of ours nor what environments of tests have otherwise, and no
    plugin, which pytest loads its own way, but those that are its own."""
    import numpy.typing
    import torch
    from _pytest import config

    for name in config.default_plugins:
        importlib.import_module(f"_pytest.{name}")
    importlib.import_module("execnet.gateway_base")
    assert numpy.typing
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.ones(1)
    gc.collect()
    gc.freeze()


def load_compiler() -> None:
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._inductor.compile_fx")
    gc.collect()
    gc.freeze()


def serve(address: str, owner: int) -> None:
    """Fork for each that connects, until the owner is gone. What was forked for one that is gone,
    killed or not, is ended."""
    waiting = selectors.DefaultSelector()
    running: set[int] = set()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address + ".new")
        listener.listen()
        waiting.register(listener, selectors.EVENT_READ)
        os.rename(address + ".new", address)
        while _is_alive(owner):
            for key, _ in waiting.select(timeout=1):
                if key.fileobj is listener:
                    running.add(_fork(listener, waiting))
                elif not isinstance(key.fileobj, socket.socket):
                    running.discard(_tell_the_end(waiting, key))
                elif key.data in running:
                    _hand_on(waiting, key.fileobj, key.data)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _fork(listener: socket.socket, waiting: selectors.BaseSelector) -> int:
    client, _ = listener.accept()
    size, files, _, _ = socket.recv_fds(client, _SIZE.size, _MOST_FILES)
    asked = b""
    while len(asked) < _SIZE.unpack(size)[0]:
        asked += client.recv(1 << 16)
    child = os.fork()
    if not child:
        waiting.close()
        listener.close()
        client.close()
        _become(files, *json.loads(asked))
    for file in files:
        os.close(file)
    waiting.register(client, selectors.EVENT_READ, child)
    waiting.register(os.pidfd_open(child), selectors.EVENT_READ, (child, client))
    return child


def _hand_on(waiting: selectors.BaseSelector, client: socket.socket, child: int) -> None:
    """Of who asked, that it was asked to end, or that it is gone."""
    if client.recv(1):
        os.kill(child, signal.SIGTERM)
    else:
        waiting.unregister(client)
        os.kill(child, signal.SIGKILL)


def _tell_the_end(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> int:
    child: int
    child, client = key.data
    waiting.unregister(key.fileobj)
    with contextlib.suppress(KeyError):
        waiting.unregister(client)
    os.close(key.fd)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError), client:
        client.sendall(str(code).encode())
    return child


def _become(
    files: list[int], numbers: list[int], argv: list[str], folder: str, env: dict[str, str]
) -> NoReturn:
    """Run the code as a new process would."""
    beyond = max(numbers) + 1
    apart = [fcntl.fcntl(file, fcntl.F_DUPFD, beyond) for file in files]
    for file in files:
        os.close(file)
    for number, file in zip(numbers, apart, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None  # where TMPDIR says, which may be another by now
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, 1, encoding="utf-8", closefd=False)
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    code, *rest = argv
    sys.argv = ["-c", *rest]
    added = [*filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:0] = ["", *added]
    ended: Any = 0
    try:
        if any(os.path.exists(os.path.join(one, "sitecustomize.py")) for one in added):
            sys.modules.pop("sitecustomize", None)
            import sitecustomize  # noqa: F401
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        ended = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        ended = 1
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(ended if isinstance(ended, int) else int(ended is not None))


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of the tests
    if not os.fork():
        of, address, *compiling = sys.argv[1:]
        load()
        if compiling and os.fork():
            load_compiler()
            address = compiling[0]
        serve(address, int(of))
        os._exit(0)  # what was forked has no part in what torch ends
