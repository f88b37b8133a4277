"""A file server on the loopback address that does what real ones do: break off, stall, know no ranges."""

import http.server
import random
import threading

CONTENT = random.Random(0).randbytes(300_000)
ETAG = '"first"'


class Server(http.server.ThreadingHTTPServer):
    """Answers requests one by one with `answers`, then as a good server would. `released` lets stalled answers go."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag, self.answers, self.requests = CONTENT, ETAG, [], []
        self.released = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file.bin"

    def handle_error(self, request, client_address):
        """Clients hang up: that is what is tested."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.requests.append(dict(self.headers))
        answer = self.server.answers.pop(0) if self.server.answers else whole
        answer(self)

    def log_message(self, format, *args):
        pass

    def begin(self, status, length, headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def body(self):
        """What is to be sent of the file, its headers written: from the wanted byte, if the file is still that one."""
        content, wanted = self.server.content, self.headers.get("Range", "")
        if wanted and self.headers["If-Range"] == self.server.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            place = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.begin(206, len(content) - start, [("ETag", self.server.etag), ("Content-Range", place)])
            return content[start:]
        self.begin(200, len(content), [("ETag", self.server.etag)] if self.server.etag else [])
        return content


def whole(handler):
    handler.wfile.write(handler.body())


def cut(size):
    """Sends so many bytes of those it announced."""
    return lambda handler: handler.wfile.write(handler.body()[:size])


def slow(handler):
    """Sends a first part, the rest when released."""
    body = handler.body()
    handler.wfile.write(body[:100_000])
    handler.server.released.wait(30)
    handler.wfile.write(body[100_000:])


def endless(handler):
    """Says no length, and sends until the client hangs up."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(CONTENT)


def without_ranges(handler):
    handler.begin(200, len(CONTENT), [("ETag", ETAG)])
    handler.wfile.write(CONTENT)


def not_satisfiable(handler):
    if "Range" in handler.headers:
        handler.begin(416, 0)
    else:
        whole(handler)


def status(code, headers=()):
    return lambda handler: handler.begin(code, 0, headers)
