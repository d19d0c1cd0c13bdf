"""A stand-in for the hub's HTTP API on the loopback, as far as pushing and reading a data set asks for it.

It keeps commits in memory: a name to its files' bytes. Large files come by the LFS batch API. It has no Xet, whose
protocol is published nowhere: to a client that asks for it, it is a hub of somebody's own. What was asked for is kept,
so that tests can say how often bytes were sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "hf_" + "a1b2C3d4" * 4
REPO = r"(?P<repo>[^/]+/[^/]+)"


@dataclass
class Repo:
    """A data set: its commits, oldest first."""

    private: bool
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """The commit of a revision."""
        if revision == "main":
            return self.commits[-1]
        return next((commit for commit in self.commits if commit[0] == revision), None)


@dataclass
class Hub:
    """What the stand-in holds and saw."""

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refuse_commits: bool = False

    def uploads(self) -> int:
        """How often a large file's bytes were sent."""
        return sum(line.startswith("PUT ") for line in self.asked)


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve an empty hub until the block ends."""
    hub = Hub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def do_PUT(self) -> None:
        self._answer(self._body())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        self.hub.asked.append(f"{self.command} {self.path}")
        path = unquote(urlsplit(self.path).path)
        routes = (
            ("POST", r"/api/repos/create", self._create),
            ("GET", r"/api/whoami-v2", self._whoami),
            ("POST", r"/api/validate-yaml", self._validate),
            ("POST", rf"/api/datasets/{REPO}/preupload/(?P<revision>[^/]+)", self._preupload),
            ("POST", rf"/datasets/{REPO}\.git/info/lfs/objects/batch", self._batch),
            ("PUT", r"/lfs/(?P<oid>[0-9a-f]{64})", self._upload),
            ("POST", rf"/api/datasets/{REPO}/commit/(?P<revision>[^/]+)", self._commit),
            ("GET", rf"/api/datasets/{REPO}/tree/(?P<revision>[^/]+)(?:/(?P<folder>.+))?", self._tree),
            ("POST", rf"/api/datasets/{REPO}/paths-info/(?P<revision>[^/]+)", self._paths),
            ("GET", rf"/api/datasets/{REPO}/refs", self._refs),
            ("GET", rf"/api/datasets/{REPO}(?:/revision/(?P<revision>[^/]+))?", self._info),
            ("GET HEAD", rf"/datasets/{REPO}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", self._resolve),
        )
        for methods, pattern, handle in routes:
            match = re.fullmatch(pattern, path)
            if match and self.command in methods.split():
                handle(body, **match.groupdict())
                return
        self._send(404, {"error": f"the stand-in has no {self.command} {path}"})

    def _send(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in (headers or {"Content-Type": "application/json"}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _is_known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repo(self, name: str) -> Repo | None:
        """The data set, as far as the caller may see it; else 401, as the hub answers."""
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not self._is_known()):
            self._send(401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return None
        return repo

    def _commit_of(self, name: str, revision: str | None) -> tuple[Repo, str, dict[str, bytes]] | None:
        repo = self._repo(name)
        if repo is None:
            return None
        commit = repo.at(revision or "main")
        if commit is None:
            self._send(404, {"error": "no such revision"}, {"X-Error-Code": "RevisionNotFound"})
            return None
        return repo, *commit

    def _whoami(self, _: bytes) -> None:
        known = {"type": "user", "name": "somebody", "auth": {"accessToken": {"role": "write"}}, "orgs": []}
        self._send(200 if self._is_known() else 401, known if self._is_known() else {"error": "Invalid token"})

    def _validate(self, body: bytes) -> None:
        """Say what the hub says of a card's head."""
        head = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
        wrong = [] if isinstance(head.get("license"), str) else [{"message": "license: required"}]
        self._send(400 if wrong else 200, {"errors": wrong, "warnings": []})

    def _create(self, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked.get('organization') or 'somebody'}/{asked['name']}"
        if not self._is_known():
            self._send(401, {"error": "Invalid username or password."})
        elif name in self.hub.repos:
            self._send(
                409, {"error": "You already created this dataset repo", "url": f"{self.hub.url}/datasets/{name}"}
            )
        else:
            private = asked.get("private") is True or asked.get("visibility") == "private"
            self.hub.repos[name] = Repo(private, [(_oid(b"first"), {".gitattributes": b""})])
            self._send(200, {"url": f"{self.hub.url}/datasets/{name}", "name": name})

    def _info(self, _: bytes, repo: str, revision: str | None) -> None:
        if found := self._commit_of(repo, revision):
            of, sha, files = found
            siblings = [{"rfilename": name} for name in files]
            facts = {"id": repo, "sha": sha, "private": of.private, "gated": False, "disabled": False, "tags": []}
            self._send(
                200, {**facts, "author": repo.partition("/")[0], "siblings": siblings, "downloads": 0, "likes": 0}
            )

    def _refs(self, _: bytes, repo: str) -> None:
        if found := self._commit_of(repo, None):
            main = {"name": "main", "ref": "refs/heads/main", "targetCommit": found[1]}
            self._send(200, {"branches": [main], "converts": [], "tags": []})

    def _preupload(self, body: bytes, repo: str, revision: str) -> None:
        if self._commit_of(repo, revision):
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".parquet") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            self._send(200, {"files": files})

    def _batch(self, body: bytes, repo: str) -> None:
        if self._repo(repo) is None:
            return
        objects = []
        for wanted in json.loads(body)["objects"]:
            upload = {"upload": {"href": f"{self.hub.url}/lfs/{wanted['oid']}", "header": {}}}
            objects.append(wanted if wanted["oid"] in self.hub.blobs else {**wanted, "actions": upload})
        self._send(200, {"transfer": "basic", "objects": objects}, {"Content-Type": "application/vnd.git-lfs+json"})

    def _upload(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            self._send(400, {"error": "not what its name says"})
            return
        self.hub.blobs[oid] = body
        self._send(200, b"")

    def _commit(self, body: bytes, repo: str, revision: str) -> None:
        found = self._commit_of(repo, revision)
        if found is None:
            return
        if self.hub.refuse_commits:
            self._send(403, {"error": "the hub refuses this commit"})
            return
        of, sha, before = found
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        if header.get("parentCommit", sha) != sha:
            self._send(412, {"error": "A commit has happened since"})
            return
        files = dict(before)
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        of.commits.append((_oid(body + sha.encode()), files))
        of.messages.append(header["summary"])
        url = f"{self.hub.url}/datasets/{repo}/commit/{of.commits[-1][0]}"
        self._send(200, {"success": True, "commitUrl": url, "commitOid": of.commits[-1][0], "hookOutput": ""})

    def _tree(self, _: bytes, repo: str, revision: str, folder: str | None) -> None:
        found = self._commit_of(repo, revision)
        if found is None:
            return
        recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() in {"true", "1"}
        within = f"{folder.rstrip('/')}/" if folder else ""
        inside = {name: content for name, content in found[2].items() if name.startswith(within)}
        if folder and not inside:
            self._send(404, {"error": "no such folder"}, {"X-Error-Code": "EntryNotFound"})
            return
        folders = {within + name[len(within) :].split("/")[0] for name in inside if "/" in name[len(within) :]}
        listed = [_directory(name) for name in sorted(folders)]
        listed += [_file(name, text) for name, text in inside.items() if recursive or "/" not in name[len(within) :]]
        self._send(200, listed)

    def _paths(self, body: bytes, repo: str, revision: str) -> None:
        found = self._commit_of(repo, revision)
        if found is None:
            return
        is_json = "json" in (self.headers.get("Content-Type") or "")
        asked = json.loads(body)["paths"] if is_json else parse_qs(body.decode()).get("paths", [])
        listed = []
        for path in [asked] if isinstance(asked, str) else asked:
            if path in found[2]:
                listed.append(_file(path, found[2][path]))
            elif any(name.startswith(f"{path}/") for name in found[2]):
                listed.append(_directory(path))
        self._send(200, listed)

    def _resolve(self, _: bytes, repo: str, revision: str, file: str) -> None:
        found = self._commit_of(repo, revision)
        if found is None:
            return
        sha, files = found[1:]
        if file not in files:
            self._send(404, {"error": "no such file"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
            return
        content = files[file]
        headers = {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if part is None:
            self._send(200, content, headers)
            return
        first, last = int(part[1]), int(part[2] or len(content) - 1)
        span = content[first : last + 1]
        headers["Content-Range"] = f"bytes {first}-{first + len(span) - 1}/{len(content)}"
        self._send(206, span, headers)


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}


def _directory(name: str) -> dict[str, Any]:
    return {"type": "directory", "path": name, "size": 0, "oid": _oid(name.encode())}
