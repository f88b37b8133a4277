"""Fetching published files: with a checksum, and on from where an interrupted fetch stopped.

What has come of NAME lies in NAME.part, beside it NAME.part.json with its address, its length and its validator (ETag
or Last-Modified). The next fetch asks for the rest on condition that the file is still that one (`If-Range`, RFC 9110,
14.2 and 13.1.5), and starts over when the server has another one, or takes no conditions. NAME is there only when
its hash was found right. Only https, unless a hash says what must come; never from https to anything else.
"""

import hashlib
import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from data import strict_json
from data.errors import DataError, first_line
from data.lock import locked
from data.parallel import Progress

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
ATTEMPTS = 3
CHUNK = 1 << 20


@dataclass(frozen=True)
class SourceFile:
    """A file that someone has published.

    name: of the file. urls: where it can be fetched, the best address first.
    sha256, md5: what was published; "" if it was not. md5 is used only where there is no sha256.
    bytes: its size, more of which is never taken; 0 if unknown.
    root: the top folder of an archive, and the name of an unpacked copy of it; "" if there is none.
    aliases: other file names, or patterns such as "aclImdb*.tar.gz", under which a copy may lie.
    """

    name: str
    urls: tuple[str, ...]
    sha256: str = ""
    md5: str = ""
    bytes: int = 0
    root: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """Name, size and hash: what a user needs to know to find it elsewhere."""
        size = f"{self.bytes:,} bytes" if self.bytes else ""
        hashes = f"sha256 {self.sha256}" if self.sha256 else f"md5 {self.md5}" if self.md5 else "no published hash"
        return f"{self.name} ({', '.join(filter(None, [size, hashes]))})"


class Identity(NamedTuple):
    """What a file is. official: whether it has the published hash, None where none was published. difference: the hash
    that was found and the published one, where they differ."""

    sha256: str
    official: bool | None
    difference: str


def identify(source: SourceFile, path: Path, progress: Progress) -> Identity:
    """Compares a file with the published hash. Raises DataError if it cannot be read."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    hashes = [sha256, md5] if source.md5 and not source.sha256 else [sha256]
    try:
        size, done = path.stat().st_size, 0
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                for each in hashes:
                    each.update(chunk)
                done += len(chunk)
                progress(f"hash {source.name}", done, size)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    published = source.sha256 or source.md5
    if not published:
        return Identity(sha256.hexdigest(), None, "")
    found = hashes[-1]
    if found.hexdigest() == published:
        return Identity(sha256.hexdigest(), True, "")
    return Identity(sha256.hexdigest(), False, f"{found.name} {found.hexdigest()} instead of {published}")


def download(source: SourceFile, folder: Path, progress: Progress) -> tuple[Path, Identity]:
    """Fetches a file into `folder`, unless it is there; of several processes one does, the others wait for it.

    Returns its path and what it is: the official file, or one without a published hash. Raises DataError, one line: no
    address answers, each was asked; the connection ends or stalls; the hash is wrong, also of a file that was there;
    more comes than was published; the disk is full. What has come is kept for the next time, except if it is wrong.
    """
    target = folder / source.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f".{source.name}.lock", f"wait for another process that fetches {source.name}", progress):
            if not target.exists():
                return target, _download(source, target, progress)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}") from error
    identity = identify(source, target, progress)
    if identity.official is False:
        raise DataError(f"{target} has {identity.difference}; delete it, the same command fetches it again")
    return target, identity


def _download(source: SourceFile, target: Path, progress: Progress) -> Identity:
    part, refusals = _Part(target), []
    # The address of what has come already goes first: another one would start over.
    for url in sorted(source.urls, key=lambda url: url != part.load().url):
        try:
            _require_safe(source, url)
            _fetch(source, url, part, progress)
        except _NoAnswer as refusal:
            refusals.append(f"{url}: {refusal}")
        else:
            identity = identify(source, part.path, progress)
            if identity.official is False:
                part.remove()
                raise DataError(f"{url} gave a file with {identity.difference}; it was removed")
            part.finish()
            return identity
    raise DataError(
        f"cannot download {source.description} from {'; '.join(refusals)}; "
        "if you have it, name the folder it is in by --data_source=FOLDER"
    )


class _NoAnswer(Exception):
    """An address gave nothing; what has come is as it was."""


class _Cut(Exception):
    """A file ended too early."""


# What has come so far.


class _State(NamedTuple):
    """What is known of NAME.part. validator: "" if the server gave none, then it cannot be resumed. bytes: of the whole
    file, None if the server did not say."""

    url: str = ""
    validator: str = ""
    bytes: int | None = None


class _Part:
    """NAME.part and NAME.part.json."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path = target.with_name(f"{target.name}.part")
        self._notes = target.with_name(f"{target.name}.part.json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def load(self) -> _State:
        """Nothing known if the notes are missing or damaged."""
        try:
            state = _State(**strict_json.parse(self._notes.read_bytes()))
        except (OSError, ValueError, TypeError):
            return _State()
        good = isinstance(state.url, str) and isinstance(state.bytes, int | None)
        # It goes into the header of a request.
        good &= isinstance(state.validator, str) and state.validator.isascii() and state.validator.isprintable()
        return state if good else _State()

    def begin(self, state: _State) -> None:
        """Empty, and with new notes: in this order, so that old content never goes with new notes."""
        self.path.write_bytes(b"")
        self._notes.write_text(json.dumps(state._asdict()) + "\n", encoding="utf-8")

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)

    def finish(self) -> None:
        self.path.replace(self._target)
        self._notes.unlink(missing_ok=True)


# One address.


def _require_safe(source: SourceFile, url: str) -> None:
    scheme = urlsplit(url).scheme
    if not (scheme == "https" or (scheme == "http" and (source.sha256 or source.md5))):
        raise _NoAnswer("not https, and no hash says what must come")


def _fetch(source: SourceFile, url: str, part: _Part, progress: Progress) -> None:
    """Raises _NoAnswer; DataError if it breaks off."""
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            return _go_on(source, url, part, progress)
        except _Cut as cut:
            reason = str(cut)
    raise DataError(f"{url} broke off {ATTEMPTS} times ({reason}); {_kept(part)}")


def _kept(part: _Part) -> str:
    if not part.load().validator:
        return "this server cannot go on within a file, the same command starts over"
    return f"{part.size():,} bytes are kept in {part.path}, the same command goes on from there"


def _go_on(source: SourceFile, url: str, part: _Part, progress: Progress) -> None:
    """Asks for what is missing, or for all if that is not possible. Raises _Cut, _NoAnswer, DataError."""
    state, done = part.load(), part.size()
    if state.url != url or not state.validator:
        state, done = _State(url), 0
    if done and done == state.bytes:
        return
    conditions = {"Range": f"bytes={done}-", "If-Range": state.validator} if done else {}
    try:
        answer = _open(url, conditions)
    except _NotSatisfiable:
        part.remove()
        raise _Cut("there was less to come than had come") from None
    with answer:
        total = _length(answer, done)
        _refuse_longer(source, url, part, total or 0)
        if done and answer.status == http.HTTPStatus.PARTIAL_CONTENT:
            if not answer.headers.get("Content-Range", "").startswith(f"bytes {done}-") or (
                _validator(answer.headers) not in ("", state.validator)
            ):
                part.remove()
                raise _Cut("another part came than was asked for")
        else:
            done = 0
            part.begin(_State(url, _validator(answer.headers), total))
        expected = source.bytes if total is None else total
        with part.path.open("ab") as file:
            for chunk in _chunks(answer, url, part):
                done += len(chunk)
                _refuse_longer(source, url, part, done)
                file.write(chunk)
                if expected:
                    progress(f"fetch {source.name}", done, expected)
    if done < expected:
        raise _Cut(f"{done:,} of {expected:,} bytes")


def _refuse_longer(source: SourceFile, url: str, part: _Part, size: int) -> None:
    """A file that is longer than the published one is another one, however much of it is still to come."""
    if source.bytes and size > source.bytes:
        part.remove()
        raise DataError(f"{url} gives more than the {source.bytes:,} bytes of {source.name}: nothing of it is kept")


def _chunks(answer: http.client.HTTPResponse, url: str, part: _Part) -> Iterator[bytes]:
    """The body. A connection that ends too early may look like the end of the file: lengths have to be compared."""
    while True:
        try:
            chunk = answer.read1(CHUNK)
        except TimeoutError as error:
            raise DataError(f"{url} sent nothing for {READ_SECONDS:g} s; {_kept(part)}") from error
        except (OSError, http.client.HTTPException) as error:
            raise _Cut(first_line(error)) from error
        if not chunk:
            return
        yield chunk


def _length(answer: http.client.HTTPResponse, done: int) -> int | None:
    """Bytes of the whole file, if the server says so."""
    length = answer.headers.get("Content-Length", "")
    if not re.fullmatch("[0-9]{1,18}", length):
        return None
    return int(length) + (done if answer.status == http.HTTPStatus.PARTIAL_CONTENT else 0)


def _validator(headers: Any) -> str:
    """A strong ETag, or the date; "" without either."""
    etag = headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")


# HTTP.


class _NotSatisfiable(Exception):
    """HTTP 416."""


def _open(url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    """Raises _NoAnswer, _NotSatisfiable."""
    request = urllib.request.Request(url, headers={"User-Agent": "linrec", **headers})
    try:
        return urllib.request.build_opener(_Http, _Https, Redirect).open(request, timeout=CONNECT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _NotSatisfiable from error
        raise _NoAnswer(first_line(error)) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise _NoAnswer(getattr(reason, "strerror", None) or first_line(reason)) from error


class Redirect(urllib.request.HTTPRedirectHandler):
    """Follows from anything to https, and from http to http."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """See the base class. Raises URLError for any other step."""
        if urlsplit(newurl).scheme != "https" and (req.type, urlsplit(newurl).scheme) != ("http", "http"):
            fp.close()
            raise urllib.error.URLError(f"leads from {req.type} to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _HttpConnection(http.client.HTTPConnection):
    """Waits shortly for a connection, longer for data."""

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _HttpsConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpConnection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpsConnection, req, context=ssl.create_default_context())
