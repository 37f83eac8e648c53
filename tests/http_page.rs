//! The web page's files, and what it shows: both nodes, told by one. `.ci/page` clicks through it.

use std::time::Duration;

use duolog_tests::pair::{Dress, Ground, Pair, PairOptions, Timing};
use duolog_tests::process::{ServerOptions, quiet, scratch, until};
use serde_json::{Value as Json, json};

/// Promised: the page and its files are there without the token, may do nothing but ask their own
/// server, and hold no data; what they ask for needs the token.
/// Provoked: requests without the token for the page, for all that it names, and for the cluster.
/// Broken: a file that is refused, missing or of a kind that browsers reject; no policy; a status
/// without the token.
#[test]
fn the_page_needs_no_token_and_its_data_do() {
    let scratch = scratch();
    let options = ServerOptions::new(scratch.path().join("data"));
    let options = options.flag("listen-http", "127.0.0.1:0");
    let server = options.env("DUOLOG_HTTP_TOKEN", "open-sesame").start();
    let http = server.http();
    let page = http.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = page.text();
    let named: Vec<&str> = text.split("=\"/page/").skip(1).collect();
    assert!(named.len() >= 4, "{text}");
    for name in named.iter().filter_map(|rest| rest.split('"').next()) {
        let file = http.get(&format!("/page/{name}"));
        let kind = file.header("content-type").unwrap_or_default();
        let wanted = match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!((file.status, kind), (200, wanted), "{name}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"), "{name}");
    }
    let policy = page.header("content-security-policy").expect("a policy");
    for part in ["default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(http.get("/page/nothing.js").status, 404);
    assert_eq!(http.get("/v1/cluster").status, 401);
    let told = http.clone().header("Authorization", "Bearer open-sesame").get("/v1/cluster").json();
    let nodes = told["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 1, "{told}");
    assert_eq!(
        (&nodes[0]["this"], &nodes[0]["status"]["role"]),
        (&json!(true), &json!("standalone"))
    );
    assert!(told["at_ms"].as_u64() > Some(0), "{told}");
}

/// What a node tells of itself and of the other one: role, or `silent`.
fn roles(pair: &Pair, number: usize) -> Option<(Vec<String>, Json)> {
    let told = pair.node(number).http().get("/v1/cluster");
    let told = (told.status == 200).then(|| told.json())?;
    let nodes = told["nodes"].as_array()?.iter().map(|node| match node["reachable"] == true {
        true => node["status"]["role"].as_str().unwrap_or("?").to_owned(),
        false => "silent".to_owned(),
    });
    Some((nodes.collect(), told))
}

/// Promised: each node tells of both, also when the other one has gone, for as long as it runs.
/// Provoked: both nodes of a pair asked; the leader killed, the other one asked until it leads.
/// Broken: a node that tells of itself alone, or a dead one that is told to be reachable, or that
/// is forgotten.
#[test]
fn each_node_tells_of_both() {
    let _alone = quiet();
    let ground = Ground::default();
    let url = ground.s3.url();
    let dress = move |_, options: ServerOptions| {
        options.flag("s3-endpoint", &url).flag("listen-http", "127.0.0.1:0")
    };
    let ground = Ground { dress: Dress(Box::new(dress)), ..ground };
    let setup = PairOptions { timing: Timing::Calm, ..PairOptions::default() };
    let mut pair = Pair::unfounded_on(setup, ground).founded();
    let leader = pair.leader();
    let follower = pair.other(leader);
    let sees = |pair: &Pair, number, wanted: [&str; 2]| {
        until(Duration::from_secs(60), &format!("node {number} tells {wanted:?}"), || {
            roles(pair, number).filter(|(roles, _)| roles == &wanted).map(|(_, told)| told)
        })
    };
    let told = sees(&pair, leader, ["leader", "follower"]);
    let other = &told["nodes"][1];
    assert_eq!(other["this"], false, "{other}");
    assert_eq!(other["http"], other["status"]["http"], "{other}");
    assert_ne!(other["status"]["node"], told["nodes"][0]["status"]["node"], "{told}");
    sees(&pair, follower, ["follower", "leader"]);
    pair.kill(leader);
    let told = sees(&pair, follower, ["leader", "silent"]);
    let other = &told["nodes"][1];
    assert!(other["error"].as_str().is_some_and(|error| !error.is_empty()), "{other}");
    assert!(other["address"].is_string() && other["status"].is_null(), "{other}");
}
