"""What comes back from servers that are broken, slow, huge or no Prometheus at all."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs

import pytest

from store.errors import BadAnswerError, StoreError, UnreachableError
from store.prometheus import PromStore

EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


class Handler(BaseHTTPRequestHandler):
    """Answers by the first part of the path; remembers the last request."""

    seen: ClassVar[dict[str, str]] = {}

    def do_POST(self) -> None:
        """Misbehave as asked."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        how = self.path.split("/")[1]
        self.seen.clear()
        self.seen.update({key: value[0] for key, value in parse_qs(body.decode()).items()})
        self.seen["authorization"] = self.headers.get("Authorization", "")
        status = int(how) if how.isdigit() else 200
        answer = {"html": b"<html>login</html>", "json": b'{"data": [1]}', "odd": b"[]"}.get(how)
        if how == "error":
            answer = b'{"status":"error","error":"boom\\u001b[2J"}'
        if how == "shape":
            answer = b'{"data":{"result":[{"metric":{},"value":[1]}]}}'
        self.send_response(status)
        if how in ("huge", "drip"):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._stream(how)
            return
        if how == "hang":
            time.sleep(2)
        answer = answer or EMPTY
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _stream(self, how: str) -> None:
        piece = b"x" * (2**16 if how == "huge" else 1)
        try:
            for _ in range(200):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                if how == "drip":
                    time.sleep(0.02)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Keeps quiet about clients that hung up on it."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that misbehaves."""
    httpd = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
    thread.start()
    yield f"127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()
    thread.join(5)


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("html", BadAnswerError, "not the query API's"),
        ("json", BadAnswerError, "not the query API's"),
        ("error", BadAnswerError, "answers with an error: boom\\x1b[2J"),
        ("odd", BadAnswerError, "not the query API's"),
        ("shape", BadAnswerError, "not the query API's"),
        ("huge", BadAnswerError, "more than 1 MiB"),
        ("drip", UnreachableError, "within 0.5 s"),
        ("hang", UnreachableError, "within 0.5 s"),
        ("503", UnreachableError, "cannot answer now (503)"),
        ("429", UnreachableError, "cannot answer now (429)"),
        ("401", BadAnswerError, "bearer_token_file"),
        ("404", BadAnswerError, "base address"),
    ],
)
def test_misbehaviour_is_one_line(server: str, how: str, kind: type, words: str) -> None:
    """Each misbehaviour ends in time, with its own error of one line and no second try."""
    store = PromStore(f"http://u:hush@{server}/{how}", timeout=0.5, max_answer=2**20)
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        store.instant("up", 0)
    assert time.monotonic() - began < 3
    message = str(caught.value)
    assert words in message
    assert server in message
    assert "hush" not in message
    assert "\n" not in message
    store.close()


def test_an_empty_answer_of_the_wrong_kind_is_none(server: str) -> None:
    """That there are no series is believed only from an answer to what was asked."""
    store = PromStore(f"http://{server}/ok")
    with pytest.raises(BadAnswerError, match="resultType 'vector'"):
        store.range("up", 0, 600, 60)
    store.close()


def test_the_token_is_read_for_each_request(server: str, tmp_path) -> None:
    """A rotated token is used at once; queries go as a form, partial answers are refused."""
    file = tmp_path / "token"
    store = PromStore(f"http://{server}/ok", bearer_token_file=file)
    for token in ("first", "second"):
        file.write_text(token + "\n")
        assert store.instant("up", 12.5) == []
        assert Handler.seen["authorization"] == f"Bearer {token}"
    assert Handler.seen["query"] == "up"
    assert Handler.seen["time"] == "12.500"
    assert Handler.seen["partial_response"] == "false"
    file.unlink()
    with pytest.raises(StoreError, match="bearer token file"):
        store.instant("up", 0)
    store.close()
    store = PromStore(f"http://me:p%40ss@{server}/ok")
    store.instant("up", 0)
    assert Handler.seen["authorization"] == "Basic bWU6cEBzcw=="  # me:p@ss
    store.close()
