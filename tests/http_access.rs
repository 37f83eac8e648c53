//! Who may ask, and where the port is.

use std::net::TcpListener;

use duolog_tests::process::{ServerOptions, free_port, run, scratch};

fn options(dir: &std::path::Path) -> ServerOptions {
    ServerOptions::new(dir.join("data")).flag("listen-http", "127.0.0.1:0")
}

/// Promised: with a token, everything but the probes asks for it; it is in no log.
/// Provoked: requests without it, with another one and with it.
/// Broken: an answer without the token, a probe that asks for it, the token in the log.
#[test]
fn a_token_opens_everything_and_probes_need_none() {
    let scratch = scratch();
    let server = options(scratch.path()).env("DUOLOG_HTTP_TOKEN", "open-sesame").start();
    let http = server.http();
    let asked = http.get("/nothing");
    assert_eq!(asked.status, 401, "{asked:?}");
    assert_eq!(asked.header("content-type"), Some("application/problem+json"));
    assert!(asked.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
    let wrong = http.clone().header("Authorization", "Bearer open-sesam").get("/nothing");
    assert_eq!(wrong.status, 401, "{wrong:?}");
    let right = http.clone().header("Authorization", "Bearer open-sesame").get("/nothing");
    assert_eq!((right.status, &right.json()["code"]), (404, &"not_found".into()));
    assert_eq!(http.get("/livez").status, 200);
    let log = server.stop().log.join("\n");
    assert!(!log.contains("open-sesame"), "{log}");
}

/// Promised: a page of another host that resolves to this machine does not get through a browser to
/// a node without a token.
/// Provoked: a request for another host's name.
/// Broken: anything but 421; a request for this machine that is refused.
#[test]
fn a_request_for_another_host_is_refused_on_the_loopback() {
    let scratch = scratch();
    let server = options(scratch.path()).flag("advertise-http", "events.example.org:80").start();
    let status = |host| server.http().header("Host", host).get("/nothing").status;
    assert_eq!(status("evil.example.net"), 421);
    for own in ["localhost:7402", "127.0.0.1:7402", "events.example.org"] {
        assert_eq!(status(own), 404, "{own}");
    }
}

/// Promised: an HTTP port in use ends the start with exit code 15, before anything is written, and
/// the message names the setting; without HTTP the port is nobody's.
/// Provoked: a listener on the port; the same start with HTTP off.
/// Broken: a start, another exit code; a server that listens although it should not.
#[test]
fn an_http_port_in_use_is_refused_and_off_is_off() {
    let scratch = scratch();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let options = ServerOptions::new(scratch.path().join("data"));
    let ended = options.clone().flag("listen-http", &address).start_refused();
    assert_eq!(ended.code, Some(15), "{ended:?}");
    let words = ended.words();
    assert!(words.contains("listen.http") && words.contains(&address), "{words}");
    assert!(!scratch.path().join("data").exists(), "nothing was begun");
    let server = options.flag("listen-http", "off").start();
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.process()));
    let names = threads.expect("the process runs").flatten().map(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default().trim().to_owned()
    });
    let names: Vec<String> = names.collect();
    assert!(names.iter().any(|name| name == "side"), "{names:?}");
    assert!(!names.iter().any(|name| name == "http"), "{names:?}");
}

/// Promised: HTTP that is open to other machines without a token is said in the log and by the
/// doctor, with what to do.
/// Provoked: all addresses, without and with a token.
/// Broken: silence, a warning although there is a token.
#[test]
fn an_open_port_without_a_token_is_warned_of() {
    let scratch = scratch();
    let open = ServerOptions::new(scratch.path().join("data")).flag("listen-http", "0.0.0.0:0");
    let server = open.clone().start();
    let warned = server.logged("http_exposed").expect("a warning").to_string();
    assert!(warned.contains("http.token") && warned.contains("WARN"), "{warned}");
    drop(server);
    let server = open.env("DUOLOG_HTTP_TOKEN", "hush").start();
    assert!(server.logged("http_exposed").is_none(), "{:?}", server.log());
    let client = free_port().to_string();
    let doctor = |more: &[&str]| {
        let fixed = ["doctor", "--json", "--shards-count", "1", "--listen-client", &client];
        run(&[&fixed[..], &["--listen-http", "0.0.0.0:0"], more].concat()).output
    };
    assert!(doctor(&[]).contains("HTTP access"), "{}", doctor(&[]));
    assert!(!doctor(&["--http-token", "hush"]).contains("HTTP access"));
}
