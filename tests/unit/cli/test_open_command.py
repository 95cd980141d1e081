"""``kernelprof open``: one trace, on loopback, for one page to read once."""

from __future__ import annotations

import contextlib
import http.client
import shlex
import socket
import sys
import threading
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_kernelprof.cli import trace_commands as command
from pytest_kernelprof.cli.loopback import HOST, READER, OneFile, plain_name
from pytest_kernelprof.cli.main import main

TRACES = Path(__file__).parents[2] / "traces"
MLP = TRACES / "mlp.json.gz"


def open_mlp(timeout_s: float, port: int) -> int:
    """The command on a port, without a browser."""
    chosen = Namespace(trace=str(MLP), timeout=timeout_s, max_size=10**9, no_browser=True)
    return command.open_in_perfetto(chosen, port)


def served(file: Path = MLP) -> OneFile:
    """A server on a free port."""
    return OneFile(file, port=0)


def ask(
    server: OneFile, method: str = "GET", path: str = "", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.host, timeout=10)
    connection.request(method, path or server.path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_the_page_reads_the_file_once_and_the_server_ends() -> None:
    with served() as server:
        status, headers, body = ask(server, Origin=READER)
        assert server.read.wait(10)
    with pytest.raises(ConnectionRefusedError):
        ask(server, Origin=READER)
    assert (status, body) == (200, MLP.read_bytes())
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert "Content-Encoding" not in headers  # the page unpacks it
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_what_is_asked_before_it_is_read_does_not_end_it() -> None:
    with served() as server:
        status, headers, body = ask(server, "HEAD", Origin=READER)
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) == MLP.stat().st_size
        preflight = {"Access-Control-Request-Private-Network": "true", "Origin": READER}
        status, headers, _ = ask(server, "OPTIONS", **preflight)
        assert status == 204
        assert headers["Access-Control-Allow-Private-Network"] == "true"
        assert headers["Access-Control-Allow-Origin"] == READER
        assert not server.read.is_set()


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {}),
        ("GET", "/mlp.json.gz", {}),
        ("GET", "/../mlp.json.gz", {}),
        ("POST", "/status", {"Origin": READER}),  # Perfetto looks whether its own server is here
        ("POST", "", {}),
        ("DELETE", "", {}),
        ("BREW", "", {}),
        ("GET", "", {"Host": "evil.example:9001"}),
        ("GET", "", {"Host": "localhost"}),
        ("GET", "", {"Origin": "https://evil.example"}),
        ("OPTIONS", "", {"Origin": "https://evil.example"}),
        ("GET", "", {"Origin": "null"}),
    ],
)
def test_all_else_is_not_there(method: str, path: str, headers: dict[str, str]) -> None:
    with served() as server:
        status, answered, body = ask(server, method, path, **headers)
        assert (status, body) == (404, b"")
        assert "Access-Control-Allow-Origin" not in answered
        assert not server.read.is_set()


@pytest.mark.parametrize(
    "bytes_sent",
    [b"\r\n\r\n", b"\x00\xff" * 50_000 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" * 300],
    ids=["nothing", "noise", "no path", "headers"],
)
def test_what_is_no_request_harms_nothing(
    bytes_sent: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as server:
        with (
            socket.create_connection(server.server_address[:2]) as plain,  # type: ignore[arg-type]
            contextlib.suppress(OSError),  # it may have closed the connection by now
        ):
            plain.sendall(bytes_sent)
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(4096):
                pass
        assert ask(server)[0] == 200
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_half_way_has_not_read_it(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b" " * 30_000_000)
    with served(large) as server:
        with socket.create_connection(server.server_address[:2]) as plain:  # type: ignore[arg-type]
            plain.sendall(f"GET {server.path} HTTP/1.0\r\nHost: {server.host}\r\n\r\n".encode())
            plain.recv(1000)
        assert not server.read.wait(0.3)
        assert len(ask(server)[2]) == 30_000_000


def test_an_open_connection_without_a_request_keeps_nobody_from_reading() -> None:
    with served() as server, socket.create_connection(server.server_address[:2]):  # type: ignore[arg-type]
        assert ask(server)[0] == 200
        assert server.read.wait(10)


def test_nobody_on_the_machine_guesses_the_address() -> None:
    with served() as one, served() as other:
        assert one.path != other.path
        assert one.path.endswith("/mlp.json.gz")  # Perfetto's title
        assert one.link == f"https://ui.perfetto.dev/#!/?url=http://{one.host}{one.path}"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("run 1&x=2#y?.json.gz", "run_1_x_2_y_.json.gz"),
        ("\x1b[2J\r\nSet-Cookie: a.json", "_2J_Set-Cookie_a.json"),
        ("\u202egnp.日本\udcff.json", "_gnp._.json"),
        ("a" * 300 + ".json", "a" * 95 + ".json"),
        ("%2e%2e%2f.json", "_2e_2e_2f.json"),
    ],
)
def test_a_files_name_does_nothing_to_an_address(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_nobody_reads_it_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert open_mlp(0.1, port=0) == 1
    out = capsys.readouterr().out
    assert "https://ui.perfetto.dev/#!/?url=http://127.0.0.1:" in out
    assert "kernelprof show" in out
    assert "nothing has read it" in out


def test_ctrl_c_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    event = SimpleNamespace(wait=interrupted)
    threads = SimpleNamespace(Event=lambda: event, Thread=threading.Thread)
    monkeypatch.setattr("pytest_kernelprof.cli.loopback.threading", threads)
    assert open_mlp(300.0, port=0) == 1
    assert "nothing has read it" in capsys.readouterr().out


def test_a_port_that_is_taken_is_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_kernelprof.errors import TraceError

    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(TraceError, match=rf"port {port} of .* is not available \(.*drag"):
            open_mlp(300.0, port=port)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run.json"], "not a Chrome trace"),
        (["missing.json"], "No such file"),
        (["."], "cannot be read"),
        ([str(MLP), "--timeout=soon"], "--timeout: 'soon' is not a duration"),
        ([str(MLP), "--max-size=1 KB"], "it holds"),
    ],
)
def test_what_cannot_be_opened_is_said_before_anything_is_served(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text('{"tests": []}')
    assert main(["open", *arguments]) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert told.out == ""


def test_the_command_has_the_browser_read_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On the one port that Perfetto's policy allows, with a browser that is a script."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, command.PORT))
        except OSError:
            pytest.skip("port 9001 is taken on this machine")
    browser = tmp_path / "browser.py"
    browser.write_text(
        "import sys, urllib.request as u\n"
        "page, _, url = sys.argv[1].partition('#!/?url=')\n"
        "request = u.Request(url, headers={'Origin': page.rstrip('/')})\n"
        "open('read.json.gz', 'wb').write(u.urlopen(request).read())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROWSER", shlex.join([sys.executable, str(browser)]) + " %s")
    monkeypatch.setattr("webbrowser._tryorder", None)
    assert main(["open", str(MLP)]) == 0
    assert (tmp_path / "read.json.gz").read_bytes() == MLP.read_bytes()
    assert "it was read" in capsys.readouterr().out
