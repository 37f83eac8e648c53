"""A headless Chromium, spoken to by the DevTools protocol."""

import base64
import json
import os
import subprocess
import threading
import time
import urllib.request

from websockets.sync.client import connect

# Kinds of console output that a page must not give.
BAD = ("error", "warning", "assert")


def until(what, look, seconds=30.0):
    """The first true value of `look`; a failure that names `what` otherwise."""
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        try:
            last = look()
            if last:
                return last
        except (OSError, LookupError, ValueError, StopIteration) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds:.0f} s: {what}; last: {last!r}")


class Chromium:
    """The process. Its pages share nothing with another one's."""

    def __init__(self, folder):
        self.folder = folder
        profile = os.path.join(folder, "profile")
        self.log = open(os.path.join(folder, "chromium.log"), "wb")
        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
             "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb",
             f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        told = os.path.join(profile, "DevToolsActivePort")
        self.port = until("Chromium listens", lambda: self._port(told), 60)

    @staticmethod
    def _port(path):
        with open(path, encoding="utf-8") as file:
            return int(file.readline())

    def page(self, origin):
        """A new page that may ask `origin` alone."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            target = json.load(answer)
        return Page(target["webSocketDebuggerUrl"], origin)

    def close(self):
        """Ends it and what it started, by its process group."""
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()


class Page:
    """One tab. Collects what it asks for and what it complains about."""

    def __init__(self, url, origin):
        self.origin = origin
        self.requests, self.complaints, self.network_errors = [], [], []
        self._socket = connect(url, max_size=None, open_timeout=30)
        self._answers, self._next = {}, 0
        self._told = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _listen(self):
        try:
            for text in self._socket:
                message = json.loads(text)
                with self._told:
                    if "id" in message:
                        self._answers[message["id"]] = message
                        self._told.notify_all()
                    else:
                        self._event(message["method"], message["params"])
        except Exception as error:  # The socket's end is told to whoever waits.
            with self._told:
                self._answers["ended"] = error
                self._told.notify_all()

    def _event(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append((time.monotonic(), params["request"]["url"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            thrown = details.get("exception", {}).get("description")
            self.complaints.append(thrown or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in BAD:
            self.complaints.append(str([arg.get("value") for arg in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            # An answer that is no good, or none: the page has to show it, not to prevent it.
            where = self.network_errors if entry["source"] == "network" else self.complaints
            where.append(f"{entry['text']} {entry.get('url', '')}")

    def call(self, method, **params):
        """Calls and waits for the result."""
        with self._told:
            self._next += 1
            number = self._next
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        with self._told:
            came = self._told.wait_for(
                lambda: number in self._answers or "ended" in self._answers, timeout=60)
            if not came or number not in self._answers:
                raise AssertionError(f"{method}: no answer; {self._answers.get('ended')!r}")
            message = self._answers.pop(number)
        if "error" in message:
            raise AssertionError(f"{method}: {message['error']}")
        return message["result"]

    def run(self, code):
        """The value of an expression in the page."""
        told = self.call("Runtime.evaluate", expression=code, returnByValue=True,
                         awaitPromise=True)
        if "exceptionDetails" in told:
            raise AssertionError(f"{code}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def open(self):
        """Loads the origin's page."""
        self.call("Page.navigate", url=self.origin + "/")

    def text(self, selector="body"):
        """The visible text of the first such element."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def sees(self, words, selector="body", seconds=30.0):
        """Waits until all `words` are there."""
        words = [words] if isinstance(words, str) else words
        found = lambda: all(word in self.text(selector) for word in words)
        try:
            until(f"{words} in {selector}", found, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says: {self.text(selector)[:2000]}") from None

    def click(self, selector):
        """Clicks with the mouse, where the element is."""
        quoted = json.dumps(selector)
        spot = until(f"{selector} can be clicked", lambda: self.run(
            f"(() => {{ const e = document.querySelector({quoted});"
            " if (!e || e.disabled) return null; e.scrollIntoView({block: 'center'});"
            " const b = e.getBoundingClientRect();"
            " return b.width ? {x: b.x + b.width / 2, y: b.y + b.height / 2} : null; })()"))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **spot)

    def key(self, name, code, text=""):
        """Presses and releases a key."""
        which = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}[name]
        shared = {"key": name, "code": code, "windowsVirtualKeyCode": which}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def enter(self):
        """Presses the key that submits."""
        self.key("Enter", "Enter", "\r")

    def write(self, selector, text):
        """Puts the focus there and types instead of what is there."""
        quoted = json.dumps(selector)
        element = f"document.querySelector({quoted})"
        self.run(f"{element}.focus(), {element}.select()")
        self.call("Input.insertText", text=text)

    def size(self, width, height=900):
        """The window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 500)

    def scheme(self, name):
        """What the reader prefers: light or dark."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, path):
        """The whole page as a PNG."""
        box = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}
        told = self.call("Page.captureScreenshot", format="png", clip=clip,
                         captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(told["data"]))

    def close(self):
        """Closes the tab."""
        self.call("Page.close")
        self._socket.close()
