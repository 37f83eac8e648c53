//! The API over HTTP: what goes in comes out, and every refusal has its status and its numbers.

use std::path::Path;
use std::time::Duration;

use duolog_tests::pair::{Dress, Ground, Pair, PairOptions, Timing};
use duolog_tests::process::{Http, HttpAnswer, Server, ServerOptions, quiet, scratch, until};
use serde_json::{Value as Json, json};

fn start(dir: &Path) -> Server {
    ServerOptions::new(dir.join("data")).flag("listen-http", "127.0.0.1:0").start()
}

fn event(kind: &str, data: Json) -> Json {
    json!({ "events": [{ "type": kind, "data": data }] })
}

/// What a problem says: status, code.
fn problem(answer: &HttpAnswer) -> (u16, String) {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let told = answer.json();
    assert_eq!(told["status"], answer.status, "{told}");
    (answer.status, told["code"].as_str().expect("a code").to_owned())
}

/// Promised: what is appended is read back as it was, whatever bytes it has, and the receipt and
/// the ETag lead to the next append.
/// Provoked: events of all three forms, also with numbers that no float holds; a name that needs
/// escapes; the next append under the ETag of the one before and under that of a read.
/// Broken: another form, other digits, a place that is not that of the receipt, a wrong ETag.
#[test]
fn what_is_appended_is_read_back() {
    let scratch = scratch();
    let server = start(scratch.path());
    let http = server.http();
    let path = "/v1/streams/%7Border-7%7D.items%2Fa%20b/events";
    let id = "6d0e5f2c-7d3b-4f0e-9a55-0c8a1f6b2e11";
    let body = format!(
        r#"{{"events": [
            {{"id": "{id}", "type": "Placed",
              "data": {{"total": 1.50, "n": 12345678901234567890}}}},
            {{"type": "Noted", "data_text": "plain", "metadata_text": " x"}},
            {{"type": "Drawn", "data_base64": "/wA=", "metadata": null}},
            {{"type": "Empty"}}]}}"#
    );
    let answer = http.ask("POST", path, body.as_bytes()).expect("an answer");
    assert_eq!((answer.status, answer.header("etag")), (201, Some("\"3\"")), "{answer:?}");
    let receipt = answer.json();
    assert_eq!(receipt["stream"], "{order-7}.items/a b");
    let span = (&receipt["first_revision"], &receipt["last_revision"], &receipt["copies"]);
    assert_eq!(span, (&json!(0), &json!(3), &json!("this_disk")));
    let place = answer.header("location").expect("where the events are");
    let read = http.get(place);
    assert_eq!((read.status, read.header("etag")), (200, Some("\"3\"")));
    assert!(read.text().contains(r#""data":{"total":1.50,"n":12345678901234567890}"#), "{read:?}");
    let page = read.json();
    let events = page["events"].as_array().expect("events");
    assert_eq!((&events[0]["id"], &events[0]["type"]), (&json!(id), &json!("Placed")));
    assert_eq!(events[0]["lsn"], receipt["first_lsn"]);
    assert_eq!(
        (&events[1]["data_text"], &events[1]["metadata_text"]),
        (&"plain".into(), &" x".into())
    );
    assert_eq!(events[2]["data_base64"], "/wA=");
    assert!(events[2]["metadata"].is_null() && events[2].get("metadata").is_some());
    assert!(events[3].get("data").is_none() && events[3].get("data_text").is_none());
    assert_eq!((&page["next"], &page["last_revision"]), (&Json::Null, &json!(3)));
    let next = http.clone().header("If-Match", "\"3\"").post(path, &event("More", json!([])));
    assert_eq!((next.status, next.header("etag")), (201, Some("\"4\"")), "{next:?}");
    let log = http.get("/v1/shards/0/events?from_lsn=1").json();
    assert_eq!(log["events"].as_array().map(Vec::len), Some(5), "{log}");
    assert_eq!((&log["events"][4]["shard"], &log["events"][4]["revision"]), (&json!(0), &json!(4)));
    let status = http.get("/v1/status").json();
    assert_eq!(
        (&status["role"], &status["http"]),
        (&"standalone".into(), &http.address.to_string().into())
    );
}

/// Promised: pages lead from one to the next in both directions and by type, until there is none.
/// Provoked: pages of two events over a stream of five, and of a log.
/// Broken: an event left out or twice, a link at the end, no link before it.
#[test]
fn pages_lead_to_the_end() {
    let scratch = scratch();
    let server = start(scratch.path());
    let http = server.http();
    for index in 0..5 {
        let kind = if index % 2 == 0 { "Even" } else { "Odd" };
        assert_eq!(http.post("/v1/streams/s/events", &event(kind, json!(index))).status, 201);
    }
    let walk = |first: &str| {
        let (mut next, mut seen) = (Some(first.to_owned()), Vec::new());
        while let Some(path) = next {
            let answer = http.get(&path);
            assert_eq!(answer.status, 200, "{answer:?}");
            let page = answer.json();
            let events = page["events"].as_array().expect("events").iter();
            seen.extend(events.map(|event| event["data"].as_u64().expect("a number")));
            next = page["next"].as_str().map(str::to_owned);
            let link = next.as_ref().map(|next| format!("<{next}>; rel=\"next\""));
            assert_eq!(answer.header("link"), link.as_deref());
        }
        seen
    };
    assert_eq!(walk("/v1/streams/s/events?limit=2"), [0, 1, 2, 3, 4]);
    assert_eq!(walk("/v1/streams/s/events?limit=2&direction=backwards"), [4, 3, 2, 1, 0]);
    assert_eq!(walk("/v1/streams/s/events?limit=2&from=3"), [3, 4]);
    assert_eq!(walk("/v1/streams/s/events?limit=1&type=Odd&consistency=confirmed"), [1, 3]);
    assert_eq!(walk("/v1/streams/s/events?limit=1&type=Even&direction=backwards"), [4, 2, 0]);
    assert_eq!(walk("/v1/shards/0/events?limit=2&from_lsn=2"), [1, 2, 3, 4]);
    let nothing = http.get("/v1/streams/nothing/events?consistency=any");
    assert_eq!((nothing.status, nothing.header("etag")), (200, None));
    assert_eq!(nothing.json()["last_revision"], Json::Null);
}

/// Promised: an append happens under its condition or not at all, and with a key once; refusals
/// name what was expected and what is.
/// Provoked: appends to a stream that is not as expected; one key twice, and once more with another
/// event.
/// Broken: an append that happens although its condition does not hold, or twice; another status.
#[test]
fn conditions_hold_and_keys_work_once() {
    let scratch = scratch();
    let server = start(scratch.path());
    let http = server.http();
    let path = "/v1/streams/s/events";
    let append = |name: &str, value: &str, data: u64| {
        http.clone().header(name, value).post(path, &event("E", json!(data)))
    };
    assert_eq!(append("If-Match", "*", 0).status, 412, "there is no such stream");
    assert_eq!(append("If-None-Match", "*", 0).status, 201);
    let again = append("If-None-Match", "*", 1);
    assert_eq!(problem(&again), (412, "conflict".to_owned()));
    let told = again.json();
    let numbers = (&told["expected_revision"], &told["actual_revision"], &told["stream"]);
    assert_eq!(numbers, (&json!("no_stream"), &json!(0), &json!("s")));
    assert_eq!(problem(&append("If-Match", "\"abc\"", 1)), (412, "impossible".to_owned()));
    let ahead = append("If-Match", "\"7\"", 1).json();
    assert_eq!((&ahead["expected_revision"], &ahead["status"]), (&json!(7), &json!(412)));
    assert_eq!(append("If-Match", "\"0\"", 1).status, 201);
    for key in ["order-7", "6d0e5f2c-7d3b-4f0e-9a55-0c8a1f6b2e11"] {
        let first = append("Idempotency-Key", key, 2);
        let second = append("Idempotency-Key", key, 2);
        assert_eq!((first.status, second.status), (201, 201), "{second:?}");
        let replayed = |answer: &HttpAnswer| answer.json()["replayed"].clone();
        assert_eq!((replayed(&first), replayed(&second)), (json!(false), json!(true)));
        assert_eq!(first.json()["last_revision"], second.json()["last_revision"]);
        assert_eq!(problem(&append("Idempotency-Key", key, 3)), (422, "key_reused".to_owned()));
    }
    assert_eq!(append("Duolog-Fencing-Token", "5", 4).status, 201);
    let fenced = append("Duolog-Fencing-Token", "4", 4);
    assert_eq!(problem(&fenced), (409, "fenced".to_owned()));
    assert_eq!(fenced.json()["highest_token"], 5);
    assert_eq!(http.get(path).header("etag"), Some("\"4\""));
}

/// Promised: a request that is wrong is refused as what it is, with a problem, and does nothing.
/// Provoked: wrong bodies, kinds, parameters, conditions, names; a body over the limit, announced
/// and not.
/// Broken: another status, a server's error, an event in the stream.
#[test]
fn mistakes_are_told() {
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path().join("data")).tiny_segments();
    let server = options.flag("listen-http", "127.0.0.1:0").start();
    let http = server.http();
    let path = "/v1/streams/s/events";
    let post = |body: &str| http.ask("POST", path, body.as_bytes()).expect("an answer");
    for body in [
        "",
        "{}",
        "[]",
        r#"{"events":[]}"#,
        r#"{"events":[{}]}"#,
        r#"{"events":[{"type":""}]}"#,
        r#"{"events":[{"type":"t","data":1,"data_text":"1"}]}"#,
        r#"{"events":[{"type":"t","data_base64":"?"}]}"#,
        r#"{"events":[{"type":"t","id":"x"}]}"#,
        r#"{"events":[{"type":"t","dta":1}]}"#,
        r#"{"events":[{"type":"t","data":01}]}"#,
    ] {
        assert_eq!(problem(&post(body)), (400, "bad_request".to_owned()), "{body}");
    }
    let large = json!({ "events": [{ "type": "t", "data_text": "x".repeat(70 << 10) }] });
    let refused = http.post(path, &large);
    assert_eq!(problem(&refused), (413, "too_large".to_owned()));
    assert_eq!(refused.json()["limit_bytes"], 64 << 10);
    assert_eq!(post(&" ".repeat(4 << 20)).status, 413);
    let chunked = http.clone().header("Transfer-Encoding", "chunked");
    let chunk = format!("400000\r\n{}\r\n0\r\n\r\n", " ".repeat(4 << 20));
    assert_eq!(chunked.ask("POST", path, chunk.as_bytes()).expect("an answer").status, 413);
    let kind = http.clone().header("Content-Type", "text/plain").post(path, &json!({}));
    assert_eq!(problem(&kind), (415, "unsupported_media_type".to_owned()));
    for wrong in [
        "/v1/streams/s/events?from=-1",
        "/v1/streams/s/events?limit=0",
        "/v1/streams/s/events?limit=5000",
        "/v1/streams/s/events?form=1",
        "/v1/streams/s/events?from=1&from=2",
        "/v1/streams/s/events?direction=up",
        "/v1/streams/%ff/events",
        "/v1/shards/x/events",
        "/v1/shards/0/events?from_lsn=0",
    ] {
        assert_eq!(problem(&http.get(wrong)), (400, "bad_request".to_owned()), "{wrong}");
    }
    let name = "n".repeat(256);
    assert_eq!(problem(&http.get(&format!("/v1/streams/{name}/events"))).0, 400);
    assert_eq!(problem(&http.get("/v1/shards/1/events")), (404, "no_shard".to_owned()));
    assert_eq!(http.ask("DELETE", path, b"").expect("an answer").status, 405);
    let log = http.get("/v1/shards/0/events").json();
    assert_eq!(log["events"], json!([]), "nothing was appended");
}

/// Promised: CloudEvents go in one by one and in batches and come out as they were, beside events
/// that are none.
/// Provoked: both forms of structured mode, read as a batch and in the API's own form.
/// Broken: an attribute or data that is not as it was; an event without what every CloudEvent has.
#[test]
fn cloud_events_come_back_as_they_were() {
    let scratch = scratch();
    let server = start(scratch.path());
    let http = server.http();
    let path = "/v1/streams/s/events";
    let cloud = |id: &str, data: Json| {
        json!({
            "specversion": "1.0", "id": id, "source": "/shop", "type": "org.example.placed",
            "subject": "order-7", "time": "2026-07-25T17:20:00Z", "ext": 7, "data": data,
        })
    };
    let post = |kind: &str, body: &Json| http.clone().header("Content-Type", kind).post(path, body);
    let one = cloud("A-1", json!({ "total": 12 }));
    assert_eq!(post("application/cloudevents+json; charset=utf-8", &one).status, 201);
    let batch = json!([cloud("A-2", json!(null)), cloud("A-3", json!("text"))]);
    let receipt = post("application/cloudevents-batch+json", &batch).json();
    assert_eq!((&receipt["first_revision"], &receipt["last_revision"]), (&json!(1), &json!(2)));
    assert_eq!(http.post(path, &event("Plain", json!(1))).status, 201);
    let accept = http.clone().header("Accept", "application/cloudevents-batch+json");
    let read = accept.get(path);
    assert_eq!(read.header("content-type"), Some("application/cloudevents-batch+json"));
    let read = read.json();
    let mut events = read.as_array().expect("a batch").clone();
    for event in &mut events {
        event.as_object_mut().expect("an event").retain(|name, _| !name.starts_with("duolog"));
    }
    assert_eq!(events[..3], [one, batch[0].clone(), batch[1].clone()]);
    assert_eq!((&events[3]["specversion"], &events[3]["type"]), (&"1.0".into(), &"Plain".into()));
    assert_eq!(read[3]["duologrevision"], "3");
    let own = http.get(path).json();
    assert_eq!(own["events"][0]["metadata"]["cloudevents"]["subject"], "order-7");
    let wrong = post("application/cloudevents+json", &json!({ "id": "1" }));
    assert_eq!(problem(&wrong), (400, "bad_request".to_owned()));
}

fn pair_with_http() -> Pair {
    let ground = Ground::default();
    let url = ground.s3.url();
    let dress = move |_, options: ServerOptions| {
        options.flag("s3-endpoint", &url).flag("listen-http", "127.0.0.1:0")
    };
    let ground = Ground { dress: Dress(Box::new(dress)), ..ground };
    Pair::unfounded_on(PairOptions { timing: Timing::Calm, ..PairOptions::default() }, ground)
}

/// Promised: a follower sends writes and fresh reads to the leader's HTTP, and serves what may be
/// stale itself; after a handover it is the other way round.
/// Provoked: the same requests at both nodes, before and after a handover; the redirect followed.
/// Broken: an append at a follower, a redirect that leads nowhere or past the leader.
#[test]
fn a_follower_leads_to_the_leader() {
    let _alone = quiet();
    let pair = pair_with_http().founded();
    let path = "/v1/streams/s%2F1/events";
    let follow = |leader: usize, follower: usize, data: u64| {
        let (from, to) = (pair.node(follower).http(), pair.node(leader).http());
        let answer = from.post(path, &event("E", json!(data)));
        assert_eq!(problem(&answer), (307, "not_leader".to_owned()), "{answer:?}");
        let location = format!("http://{}{path}", to.address);
        assert_eq!(answer.header("location"), Some(&*location));
        let followed = to.post(path, &event("E", json!(data)));
        assert_eq!(followed.status, 201, "{followed:?}");
        assert_eq!(followed.json()["copies"], "this_disk_and_peer");
        let query = format!("{path}?limit=9");
        let fresh = from.get(&query);
        assert_eq!(fresh.header("location"), Some(&*format!("http://{}{query}", to.address)));
        until(Duration::from_secs(20), "the follower has it", || {
            let stale = from.get(&format!("{path}?consistency=any"));
            assert_eq!(stale.status, 200, "{stale:?}");
            let events = stale.json()["events"].as_array().map(Vec::len);
            (events == Some(data as usize + 1)).then_some(())
        });
    };
    follow(0, 1, 0);
    pair.hand_over(0);
    pair.until_leads(1);
    let ready = |http: &Http| http.get("/readyz").status == 200;
    until(Duration::from_secs(30), "both are ready", || {
        (ready(&pair.node(0).http()) && ready(&pair.node(1).http())).then_some(())
    });
    follow(1, 0, 1);
}

/// Promised: where no node leads, an append is refused at once or after the time for a call, with
/// the time to ask again, and nothing is said to be unknown that was not begun.
/// Provoked: a follower whose leader is killed while the bucket is away.
/// Broken: another status, no Retry-After.
#[test]
fn without_a_leader_there_is_a_time_to_ask_again() {
    let _alone = quiet();
    let mut pair = pair_with_http().founded();
    pair.s3.faults().outage(true);
    pair.kill(0);
    let http = pair.node(1).http();
    let refused = until(Duration::from_secs(60), "the leader is missed", || {
        let answer = http.post("/v1/streams/s/events", &event("E", json!(1)));
        (answer.status != 307).then_some(answer)
    });
    assert_eq!(problem(&refused), (503, "not_leader".to_owned()));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    pair.s3.faults().outage(false);
}
