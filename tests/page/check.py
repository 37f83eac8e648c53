"""Clicks through the web page of real nodes and takes pictures (.ci/page).

Promised: the page shows what the nodes are, also while the lead moves, a node is gone, or nobody
may serve; a stream's events are shown as text, whatever is in them; new ones appear by themselves; a
token is asked for. Broken: words that do not come, an element made from an event, a complaint in
the console, a request to another host, a page wider than the window, more than one poll a
second."""

import os
import shutil
import sys
import tempfile
import threading
import time

from chromium import Chromium, until
from nodes import Alone, Pair, append

SHOTS = os.path.join("target", "page-shots")
WIDTHS = {"narrow": 375, "wide": 1280}
HOSTILE = "<img src=x onerror=\"window.hit=1\">&amp;'{a}/b\u202e"
BREAKOUT = "</pre></li><script>window.hit=2</script><svg onload=window.hit=3>"


def step(text):
    print(f"page: {text}", flush=True)


def shots(page, name):
    """Light and dark, narrow and wide; nothing may stick out."""
    for width_name, width in WIDTHS.items():
        page.size(width)
        for scheme in ("light", "dark"):
            page.scheme(scheme)
            page.picture(os.path.join(SHOTS, f"{name}-{width_name}-{scheme}.png"))
        wide = page.run("document.documentElement.scrollWidth")
        assert wide <= width, f"{name}: {wide} px in a window of {width}"
    page.size(WIDTHS["wide"])
    page.scheme("light")


def clean(page, network=()):
    """No complaint, no request elsewhere, no failed one but to what was away on purpose."""
    assert not page.complaints, page.complaints
    foreign = [url for _, url in page.requests if not url.startswith(page.origin + "/")
               and url != "about:blank"]
    assert not foreign, foreign
    failed = [text for text in page.network_errors if not any(word in text for word in network)]
    assert not failed, failed


class Load:
    """A few appends a second for as long as it is wanted."""

    def __init__(self, http, **how):
        self.stop, self.sent = threading.Event(), 0
        self.thread = threading.Thread(target=self._run, args=(http, how), daemon=True)
        self.thread.start()

    def _run(self, http, how):
        while not self.stop.wait(0.03):
            event = {"type": "Placed", "data": {"number": self.sent}}
            append(http, f"order-{self.sent % 7}", [event], **how)
            self.sent += 1

    def end(self):
        self.stop.set()
        self.thread.join(15)
        assert self.sent > 0


def leader_page(browser, pair, leader):
    page = browser.page(leader)
    page.open()
    page.sees(["Leader", "Follower", "Lease remaining", "the pair is whole"], "body", 60)
    page.sees(["This node", "Leader", "In sync", "yes", " ms"], "#node-cards article:nth-child(1)")
    synced = ["Other node", "Follower", "In sync\nyes"]
    page.sees(synced, "#node-cards article:nth-child(2)")
    page.sees("leads", "#change-table")
    load = Load(leader)
    page.sees(["p50", "s"], "#charts figure:nth-child(2)")
    drawn = "[...document.querySelectorAll('#charts figure:nth-child(2) path')]" \
        ".every((path) => path.getAttribute('d').includes('L'))"
    until("latencies are drawn as lines", lambda: page.run(drawn))
    units = "document.querySelector('#charts figure:nth-child(2) figcaption').innerText"
    until("a latency has a unit", lambda: any(u in page.run(units) for u in ("µs", "ms")))
    rows = "document.querySelectorAll('#shard-table tbody tr').length"
    assert page.run(rows) == 2, page.text("#shard-table")
    time.sleep(3)
    load.end()
    shots(page, "leader")
    step("the leader's page shows both nodes, shards, latencies and changes")
    return page


def polls(page):
    begun = time.monotonic()
    time.sleep(5)
    recent = [at for at, url in page.requests if at >= begun and "/v1/cluster" in url]
    assert 1 <= len(recent) <= 6, f"{len(recent)} polls in 5 s"
    hide = "Object.defineProperty(document, 'hidden', {{value: {0}, configurable: true}});" \
        "document.dispatchEvent(new Event('visibilitychange'))"
    page.run(hide.format("true"))
    time.sleep(1.5)
    begun = time.monotonic()
    time.sleep(3)
    hidden = [url for at, url in page.requests if at >= begun]
    assert not hidden, hidden
    page.run(hide.format("false"))
    until("polls go on", lambda: any(at > begun + 3 for at, _ in page.requests))
    step("it asks once a second, and not while it is hidden")


def browse(page, leader):
    """A hostile stream of 60 events, by the keyboard; then paging, the log, and live."""
    events = [{"type": HOSTILE, "data": {"n": 12345678901234567890, "text": BREAKOUT}},
              {"type": "Noted", "data_text": BREAKOUT, "metadata_text": BREAKOUT},
              {"type": "Drawn", "data_base64": "/wA="}, {"type": "Empty"}]
    append(leader, HOSTILE, events * 15)
    page.write("#stream", HOSTILE)
    page.enter()
    page.sees(["60 events", "#59 to #35", BREAKOUT, "12345678901234567"], "section:last-of-type")
    assert page.run("document.getElementById('browse-state').textContent").count(HOSTILE) == 1
    page.click("#next")
    page.sees("#34 to #10", "#browse-state")
    page.click("#next")
    page.sees("#9 to #0", "#browse-state")
    assert page.run("document.getElementById('next').disabled")
    page.click("#first")
    page.sees("#59 to #35", "#browse-state")
    page.run("document.getElementById('direction').value = 'forwards'")
    page.click("#browse-form button")
    page.sees("#0 to #24", "#browse-state")
    made = "document.querySelectorAll('#events img, #events script, #events svg').length"
    assert page.run(made) == 0 and page.run("window.hit") is None, "an event became an element"
    step("a hostile stream is text, forwards and backwards")
    page.click("#live")
    page.sees("live", "#browse-state")
    append(leader, HOSTILE, [{"type": "Fresh", "data": {"hello": "from elsewhere"}}])
    page.sees(["#60", "Fresh", '"hello": "from elsewhere"'], "#events li.fresh")
    page.sees("1 new event", "#browse-state")
    shots(page, "stream")
    page.click("#live")
    page.sees("no longer live", "#browse-state")
    page.write("#stream", "nothing here")
    page.enter()
    page.sees("has no events", "#browse-state")
    page.click("#log-form button")
    page.sees("newest events of shard 0", "#browse-state")
    page.click("#events li button.link")
    page.sees("here #", "#browse-state")
    step("live shows a new event; a shard's log leads to its streams")


def follower_page(browser, follower):
    page = browser.page(follower)
    page.open()
    page.sees(["This node", "Follower"], "#node-cards article:nth-child(1)", 60)
    page.sees(["Other node", "Leader"], "#node-cards article:nth-child(2)")
    page.write("#stream", HOSTILE)
    page.enter()
    page.sees("61 events", "#browse-state")
    shots(page, "follower")
    step("the follower's page shows the leader, and reads")
    return page


def failover(page, pair, leader):
    pair.kill(leader)
    page.sees(["This node", "Leader"], "#node-cards article:nth-child(1)", 60)
    page.sees(["Unreachable", "does not answer"], "#node-cards article:nth-child(2)")
    page.sees("S3", "#node-cards article:nth-child(1)")
    page.sees("challenges", "#change-table")
    pause = "[...document.querySelectorAll('#change-table tr.lead td:last-child')][0]?.innerText"
    until("the pause is shown", lambda: (page.run(pause) or "").endswith(("ms", " s")))
    shots(page, "failover")
    step(f"a killed leader is shown, with the reason and a pause of {page.run(pause)}")


def fenced(page, pair):
    """Store and other node away: nobody may serve."""
    pair.store(False)
    page.sees("Fenced", "#node-cards article:nth-child(1)", 90)
    page.sees("No node takes appends", "#summary")
    shots(page, "fenced")
    pair.store(True)
    page.sees("Leader", "#node-cards article:nth-child(1)", 90)
    step("a fenced node is shown, and that it leads again")


def standalone(browser, alone):
    page = browser.page(alone.http)
    page.open()
    page.sees("asks for its token", "dialog[open]")
    page.write("#token", "wrong")
    page.enter()
    page.sees("not the node's token", "dialog[open]")
    shots(page, "token")
    page.write("#token", alone.TOKEN)
    page.enter()
    page.sees(["Standalone", "Nothing has been appended yet"], "main")
    stores = "[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]"
    kept = page.run(stores)
    assert alone.TOKEN in kept[0] and kept[1:] == ["{}", ""], kept
    shots(page, "empty")
    load = Load(alone.http, token=alone.TOKEN)
    page.write("#stream", "order-3")
    page.enter()
    page.sees("order-3", "#browse-state")
    time.sleep(4)
    page.enter()
    page.sees("here #", "#browse-state")
    load.end()
    shots(page, "standalone")
    step("a standalone node asks for its token and is shown")
    alone.kill()
    page.sees(["does not answer", "old"], "#banner")
    old = page.text("#banner")
    until("the age grows", lambda: page.text("#banner") != old)
    shots(page, "unreachable")
    alone.start()
    until("the banner goes", lambda: page.run("document.getElementById('banner').hidden"))
    step("a node that is gone is said to be, and for how long")
    clean(page, ["401", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE",
                 "503"])


def main():
    program = os.path.abspath(sys.argv[1])
    shutil.rmtree(SHOTS, ignore_errors=True)
    os.makedirs(SHOTS)
    begun = time.monotonic()
    # Below target: the nodes want a file system with direct I/O.
    folder = tempfile.mkdtemp(prefix="page-", dir="target")
    opened = []
    try:
        pair = Pair(program, folder)
        opened.append(pair)
        alone = Alone(program, folder)
        opened.append(alone)
        browser = Chromium(folder)
        opened.append(browser)
        leader, follower = pair.await_roles("leader", "follower")
        page = leader_page(browser, pair, leader)
        polls(page)
        browse(page, leader)
        clean(page)
        page.close()
        page = follower_page(browser, follower)
        failover(page, pair, leader)
        fenced(page, pair)
        clean(page)
        page.close()
        standalone(browser, alone)
    finally:
        for one in reversed(opened):
            one.close()
        shutil.rmtree(folder, ignore_errors=True)
    step(f"all is shown; pictures in {SHOTS}; {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
