"""The part of wandb's service that an upload needs, on loopback: what it has stored can be read."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service(ThreadingHTTPServer):
    """history: run id -> the rows it was sent. refuses: the status by which it answers rows instead of taking them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.refuses: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        """Of the questions that an upload asks."""
        project = {"id": "p", "name": "linrec", "entity": {"id": "e", "name": "me"}}
        if "RunResumeStatus" in query:
            return {"model": project | {"bucket": self._bucket(given["name"])}}
        if "UpsertBucket" in query:
            names = {"name": given["name"], "displayName": given["displayName"], "project": project}
            return {"upsertBucket": {"bucket": {"id": given["name"], "config": "{}", **names}, "inserted": True}}
        if "RunHistoryKeys" in query:
            rows = self.history.get(given["name"])
            return {"project": {"run": {"historyKeys": {"lastStep": rows[-1]["_step"]} if rows else None}}}
        if "viewer" in query:
            return {"viewer": {"id": "v", "flags": "{}", "entity": "me", "username": "me", "teams": {"edges": []}}}
        if "query Run(" in query:
            return {"project": {"run": {"projectId": "1", "name": given["name"], "state": "finished"}}}
        if "CreateRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.url}/put/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
        return {}

    def _bucket(self, name: str) -> dict[str, Any] | None:
        if name not in self.history:
            return None
        rows = self.history[name]
        tail, summary = ([rows[-1]], rows[-1]) if rows else ([], {})
        counts = {"historyLineCount": len(rows), "logLineCount": 0, "eventsLineCount": 0}
        texts = {"historyTail": json.dumps([json.dumps(row) for row in tail]), "eventsTail": "[]", "config": "{}"}
        return {
            "id": name,
            "name": name,
            "summaryMetrics": json.dumps(summary),
            "wandbConfig": '{"t": 1}',
            **counts,
            **texts,
        }

    def store(self, run: str, files: dict[str, Any]) -> None:
        """Rows from an offset on, as the service puts a file together from its parts."""
        rows = self.history.setdefault(run, [])
        if sent := files.get("wandb-history.jsonl"):
            rows[sent["offset"] :] = [json.loads(line) for line in sent["content"]]


class _Handler(BaseHTTPRequestHandler):
    server: Service  # type: ignore[assignment]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, answer = 200, {}
        if self.path == "/graphql":
            asked = json.loads(body)
            answer = {"data": self.server.answer(asked["query"], asked.get("variables") or {})}
        elif self.path.endswith("/file_stream"):
            if self.server.refuses is None:
                self.server.store(self.path.split("/")[-2], json.loads(body).get("files", {}))
            status = self.server.refuses or 200
        self._send(status, answer)

    do_PUT = do_POST

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextlib.contextmanager
def service() -> Iterator[Service]:
    """A service that runs meanwhile."""
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
