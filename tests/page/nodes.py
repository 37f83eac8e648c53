"""Real nodes: the pair of `duolog dev`, and one alone."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from chromium import until


def ask(url, body=None, token=None):
    """Status and document of an answer."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def append(http, stream, events, token=None):
    """Appends, over HTTP."""
    path = urllib.parse.quote(stream, safe="")
    status, told = ask(f"{http}/v1/streams/{path}/events", {"events": events}, token)
    assert status == 201, (status, told)


class Pair:
    """`duolog dev`: two nodes and the store, which is the process itself."""

    def __init__(self, program, folder):
        self.log = open(os.path.join(folder, "dev.log"), "wb")
        # Short leases: a failover and a fence take seconds.
        timing = {"DUOLOG_S3_LEASE_DURATION_MS": "5000"}
        self.process = subprocess.Popen(
            [program, "dev", "--json", "--shards", "2", "--dir", os.path.join(folder, "pair")],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log,
            env={**os.environ, **timing})
        started = json.loads(self.process.stdout.readline())
        self.pids = {f"http://{node['http']}": node["pid"] for node in started["nodes"]}

    def roles(self):
        """What each node is, by its HTTP address; nothing for one that does not answer."""
        roles = {}
        for http in self.pids:
            try:
                status, told = ask(f"{http}/v1/status")
            except OSError:
                continue
            if status == 200:
                roles[http] = told["role"]
        return roles

    def await_roles(self, *wanted, seconds=60):
        """Waits until the nodes are these, and returns their addresses in that order."""
        def look():
            roles = self.roles()
            found = [next((http for http, is_ in roles.items() if is_ == role), None)
                     for role in wanted]
            return found if all(found) else None
        return until(f"nodes are {wanted}", look, seconds)

    def kill(self, http):
        """Ends a node at once."""
        os.kill(self.pids[http], signal.SIGKILL)

    def store(self, on):
        """Takes the store away, or gives it back."""
        os.kill(self.process.pid, signal.SIGCONT if on else signal.SIGSTOP)

    def close(self):
        """Stops everything."""
        self.store(True)
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            for pid in self.pids.values():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.log.close()


class Alone:
    """A standalone node that asks for a token."""

    TOKEN = "open-sesame"

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.http = "127.0.0.1:0"
        self.start()

    def start(self):
        """Starts it, the second time where it was before."""
        path = os.path.join(self.folder, "alone.log")
        with open(path, "wb") as log:
            address = self.http.removeprefix("http://")
            self.process = subprocess.Popen(
                [self.program, "serve", "--standalone", "--listen-client", "127.0.0.1:0",
                 "--listen-http", address, "--shards-count", "1",
                 "--data-dir", os.path.join(self.folder, "alone")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "DUOLOG_HTTP_TOKEN": self.TOKEN})
        self.http = until("the node says where its HTTP is", lambda: self._told(path))
        until("the node serves", lambda: ask(f"{self.http}/v1/status", token=self.TOKEN)[0] == 200)

    @staticmethod
    def _told(path):
        with open(path, encoding="utf-8") as log:
            lines = [json.loads(line) for line in log]
        return next(f"http://{line['address']}" for line in lines if line.get("event") == "http")

    def kill(self):
        """Ends it at once."""
        self.process.kill()
        self.process.wait()

    close = kill
