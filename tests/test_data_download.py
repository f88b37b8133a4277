"""Downloads against a real server on the loopback address, also one that breaks off, stalls, changes its file."""

import contextlib
import hashlib
import json
import pathlib
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from file_server import CONTENT, ETAG, Server, cut, endless, not_satisfiable, slow, status, without_ranges

from data import download
from data.download import SourceFile
from data.errors import DataError
from data.parallel import silent

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def source(server, content=CONTENT, **changes):
    values = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)} | changes
    return SourceFile("file.bin", (server.url,), **values)


def fetch(wanted, folder, progress=silent):
    path, identity = download.download(wanted, folder, progress)
    assert path == folder / "file.bin"
    return path.read_bytes(), identity


def part(folder):
    return folder / "file.bin.part"


def refused(wanted, folder):
    with pytest.raises(DataError) as caught:
        download.download(wanted, folder, silent)
    assert not (folder / "file.bin").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def only_file(folder):
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")] == ["file.bin"]


def test_a_file_is_fetched_once(server, tmp_path):
    shown = []
    content, identity = fetch(source(server), tmp_path / "new", lambda *call: shown.append(call))
    assert content == CONTENT
    assert identity == (hashlib.sha256(CONTENT).hexdigest(), True, "")
    assert only_file(tmp_path / "new")
    assert ("fetch file.bin", len(CONTENT), len(CONTENT)) in shown
    assert ("hash file.bin", len(CONTENT), len(CONTENT)) in shown
    assert fetch(source(server), tmp_path / "new") == (content, identity)
    assert len(server.requests) == 1
    assert "Range" not in server.requests[0]


def test_a_file_that_was_there_is_looked_at(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(b"other")
    with pytest.raises(DataError, match=r"file\.bin has sha256 d9298a10\w+ instead of \w+; delete it"):
        download.download(source(server), tmp_path, silent)
    assert (tmp_path / "file.bin").read_bytes() == b"other"
    assert not server.requests


def test_hashes_that_were_published_or_not(server, tmp_path):
    sha256, md5 = hashlib.sha256(CONTENT).hexdigest(), hashlib.md5(CONTENT).hexdigest()
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    assert download.identify(source(server, sha256="", md5=md5), path, silent) == (sha256, True, "")
    assert download.identify(source(server, sha256=""), path, silent) == (sha256, None, "")
    assert download.identify(source(server, sha256=sha256, md5="0"), path, silent) == (sha256, True, "")
    wrong = download.identify(source(server, sha256="", md5="0"), path, silent)
    assert wrong == (sha256, False, f"md5 {md5} instead of 0")


# Interruptions.


def test_a_body_cut_short_is_resumed_at_once(server, tmp_path):
    server.answers = [cut(120_000), cut(70_000)]
    assert fetch(source(server), tmp_path)[0] == CONTENT
    assert [request.get("Range") for request in server.requests] == [None, "bytes=120000-", "bytes=190000-"]
    assert server.requests[1]["If-Range"] == ETAG
    assert only_file(tmp_path)


def test_a_body_cut_short_again_and_again_is_kept_for_the_next_time(server, tmp_path):
    server.answers = [cut(1_000)] * download.ATTEMPTS
    message = refused(source(server), tmp_path)
    assert "broke off 3 times (3,000 of 300,000 bytes); 3,000 bytes are kept" in message
    assert part(tmp_path).read_bytes() == CONTENT[:3_000]
    assert json.loads((tmp_path / "file.bin.part.json").read_text())["validator"] == ETAG
    assert fetch(source(server), tmp_path)[0] == CONTENT
    assert server.requests[-1]["Range"] == "bytes=3000-"


def test_what_was_complete_is_not_asked_for_again(server, tmp_path):
    server.answers = [cut(1_000)] * download.ATTEMPTS
    refused(source(server), tmp_path)
    part(tmp_path).write_bytes(CONTENT)  # as if it was killed before its hash was known
    assert fetch(source(server), tmp_path)[0] == CONTENT
    assert len(server.requests) == download.ATTEMPTS


@pytest.mark.parametrize("change", ["etag", "no etag", "no ranges", "not satisfiable", "another part", "damaged notes"])
def test_starts_over_when_what_came_is_of_no_use(server, tmp_path, change):
    server.answers = [cut(1_000)] * download.ATTEMPTS
    if change == "no etag":
        server.etag = ""
    message = refused(source(server), tmp_path)
    server.requests.clear()
    if change == "etag":
        server.content, server.etag = CONTENT[::-1], '"second"'
    elif change == "no etag":
        assert "(1,000 of 300,000 bytes); this server cannot go on within a file" in message
    elif change == "no ranges":
        server.answers = [without_ranges]
    elif change == "not satisfiable":
        server.answers = [not_satisfiable] * download.ATTEMPTS
    elif change == "another part":
        server.answers = [status(206, [("Content-Range", "bytes 0-9/10"), ("ETag", ETAG)])]
    else:
        (tmp_path / "file.bin.part.json").write_text(json.dumps({"url": server.url, "validator": 5}))
    assert fetch(source(server, server.content), tmp_path)[0] == server.content
    assert only_file(tmp_path)
    conditional = change in {"etag", "no ranges", "not satisfiable", "another part"}
    assert ("Range" in server.requests[0]) == conditional
    assert len(server.requests) == (2 if change in {"not satisfiable", "another part"} else 1)


def test_a_server_that_takes_no_condition_does_not_mix_two_files(server, tmp_path):
    server.answers = [cut(1_000)] * download.ATTEMPTS
    refused(source(server), tmp_path)
    changed = CONTENT[::-1]

    def rest_of_another_file(handler):
        place = f"bytes 3000-{len(changed) - 1}/{len(changed)}"
        handler.begin(206, len(changed) - 3000, [("ETag", '"second"'), ("Content-Range", place)])
        handler.wfile.write(changed[3000:])

    server.content, server.etag, server.answers = changed, '"second"', [rest_of_another_file]
    assert fetch(source(server, changed), tmp_path)[0] == changed


def test_a_weak_tag_is_no_condition():
    assert download._validator({"ETag": 'W/"1"', "Last-Modified": "then"}) == "then"
    assert download._validator({"ETag": '"1"', "Last-Modified": "then"}) == '"1"'
    assert download._validator({}) == ""


def test_a_server_that_stalls(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "READ_SECONDS", 0.2)
    server.answers = [slow]
    began = time.monotonic()
    message = refused(source(server), tmp_path)
    assert time.monotonic() - began < download.CONNECT_SECONDS
    assert f"{server.url} sent nothing for 0.2 s; 100,000 bytes are kept in {part(tmp_path)}" in message
    assert fetch(source(server), tmp_path)[0] == CONTENT
    assert server.requests[-1]["Range"] == "bytes=100000-"


def start(wanted, folder, before=""):
    """Fetches in another process."""
    code = f"""
import pathlib, resource, sys
from data.download import SourceFile, download
from data.errors import DataError
{before}
try:
    download({wanted!r}, pathlib.Path({str(folder)!r}), lambda *call: print(*call, flush=True))
except DataError as error:
    sys.exit(str(error))
"""
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_one_of_two_processes_fetches_and_if_it_is_killed_the_other_goes_on(server, tmp_path):
    server.answers = [slow]
    first = start(source(server), tmp_path)
    wait_for(lambda: part(tmp_path).exists() and part(tmp_path).stat().st_size >= 100_000)
    second = start(source(server), tmp_path)
    assert second.stdout is not None
    assert second.stdout.readline() == "wait for another process that fetches file.bin 0 1\n"
    assert len(server.requests) == 1
    first.kill()
    first.communicate()
    _, err = second.communicate(timeout=20)
    assert (second.returncode, err) == (0, "")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [request.get("Range") for request in server.requests] == [None, "bytes=100000-"]


def test_a_full_disk(server, tmp_path):
    full = f"resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, {resource.RLIM_INFINITY}))"
    _, err = (process := start(source(server), tmp_path, full)).communicate(timeout=20)
    assert process.returncode == 1
    assert err == f"cannot write {tmp_path / 'file.bin'}: File too large\n"
    assert part(tmp_path).read_bytes() == CONTENT[:50_000]
    assert fetch(source(server), tmp_path)[0] == CONTENT
    assert server.requests[-1]["Range"] == "bytes=50000-"


def test_a_place_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert "cannot write" in refused(source(server), tmp_path / "file" / "downloads")


# Refusals.


def test_a_wrong_hash_removes_the_file(server, tmp_path):
    expected, found = hashlib.sha256(b"").hexdigest(), hashlib.sha256(CONTENT).hexdigest()
    message = refused(source(server, sha256=expected), tmp_path)
    assert message == f"{server.url} gave a file with sha256 {found} instead of {expected}; it was removed"
    assert not part(tmp_path).exists()
    assert not (tmp_path / "file.bin.part.json").exists()


@pytest.mark.parametrize("answer", [endless, cut(100_000)], ids=["endless", "of another length"])
def test_no_more_is_taken_than_was_published(server, tmp_path, answer):
    server.answers = [answer] * download.ATTEMPTS
    shown = []
    with pytest.raises(DataError) as caught:
        download.download(source(server, bytes=250_000), tmp_path, lambda *call: shown.append(call))
    assert str(caught.value) == f"{server.url} gives more than the 250,000 bytes of file.bin: nothing of it is kept"
    assert max((done for _, done, _ in shown), default=0) <= 250_000
    assert [path.name for path in tmp_path.iterdir()] == [".file.bin.lock"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (404, "Not Found"), (503, "Service Unavailable")])
def test_an_address_that_refuses(server, tmp_path, code, reason):
    server.answers = [status(code)]
    wanted = source(server)
    assert refused(wanted, tmp_path) == (
        f"cannot download file.bin (300,000 bytes, sha256 {wanted.sha256}) from {server.url}: "
        f"HTTP Error {code}: {reason}; if you have it, name the folder it is in by --data_source=FOLDER"
    )
    assert len(server.requests) == 1


def test_no_network_ends_at_once_and_keeps_what_came(server, tmp_path):
    server.answers = [cut(1_000)] * download.ATTEMPTS
    refused(source(server), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}/file.bin"
    wanted = SourceFile("file.bin", (gone, gone.replace("127.0.0.1", "name.invalid")), "0", bytes=7)
    began = time.monotonic()
    message = refused(wanted, tmp_path)
    assert time.monotonic() - began < 2
    assert (
        f"cannot download file.bin (7 bytes, sha256 0) from {gone}: Connection refused; http://name.invalid" in message
    )
    assert "--data_source=FOLDER" in message
    assert part(tmp_path).stat().st_size == 3_000


def test_a_server_that_accepts_and_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "READ_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/file.bin"
        assert f"{url}: timed out" in refused(SourceFile("file.bin", (url,), "0"), tmp_path)


def test_the_next_address_is_asked_and_the_one_that_answered_goes_first_later(server, tmp_path):
    missing = server.url.replace("file.bin", "missing.bin")
    server.answers = [status(404)] + [cut(1_000)] * download.ATTEMPTS
    wanted = SourceFile("file.bin", (missing, server.url), hashlib.sha256(CONTENT).hexdigest())
    refused(wanted, tmp_path)
    assert fetch(wanted, tmp_path)[0] == CONTENT
    assert len(server.requests) == 1 + download.ATTEMPTS + 1
    assert server.requests[-1]["Range"] == "bytes=3000-"


def test_without_a_hash_only_https(server, tmp_path):
    assert "not https, and no hash says what must come" in refused(source(server, sha256=""), tmp_path)
    assert "not https" in refused(SourceFile("file.bin", ("file:///etc/hostname",), "0"), tmp_path)
    assert not server.requests
    assert fetch(source(server, sha256="", md5=hashlib.md5(CONTENT).hexdigest()), tmp_path)[0] == CONTENT


def test_redirects_are_followed(server, tmp_path):
    server.answers = [cut(1_000)] * download.ATTEMPTS
    refused(source(server), tmp_path)
    server.answers = [status(302, [("Location", "/elsewhere.bin")])]
    assert fetch(source(server), tmp_path)[0] == CONTENT
    assert server.requests[-1]["Range"] == "bytes=3000-"
    (tmp_path / "file.bin").unlink()
    server.answers = [status(302, [("Location", server.url)])] * 20
    assert "redirect" in refused(source(server), tmp_path)
    server.answers = [status(302, [("Location", "ftp://127.0.0.1/file.bin")])]
    assert "leads from http to ftp://127.0.0.1/file.bin" in refused(source(server), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("https", "https", True),
        ("http", "https", True),
        ("http", "http", True),
        ("https", "http", False),
        ("https", "ftp", False),
        ("https", "file", False),
    ],
)
def test_redirects_never_leave_https(old, new, allowed):
    request = urllib.request.Request(f"{old}://a.example/file", headers={"Range": "bytes=1-"})
    expected = contextlib.nullcontext() if allowed else pytest.raises(urllib.error.URLError, match="leads from")
    with open("/dev/null", "rb") as body, expected:
        redirected = download.Redirect().redirect_request(request, body, 302, "", {}, f"{new}://b.example/file")
        assert redirected.full_url == f"{new}://b.example/file"
        assert redirected.get_header("Range") == "bytes=1-"


def test_https_waits_shortly_for_a_connection_and_knows_certificates(tmp_path, server):
    https = server.url.replace("http:", "https:")  # where no TLS is spoken
    message = refused(SourceFile("file.bin", (https,)), tmp_path)
    assert f"cannot download file.bin (no published hash) from {https}: " in message
    assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED
