//! Names of streams and types.

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_net::client::{Client, Error, Event};
use duolog_net::wire::ErrorCode;
use duolog_tests::process::{
    Server, ServerOptions, Wire, block_on, one_event, raw_append, run, scratch,
};

fn connect(server: &Server) -> Wire {
    Wire::connect(server.address()).expect("the server takes clients")
}

fn names() -> Vec<String> {
    let longest = "é".repeat(127) + "x";
    let shorter = longest.replacen('é', "", 1);
    #[rustfmt::skip]
    let short = [
        "/", "\\", "#", "@", "%", "%2F", "..", "~", " ", "\t", "\n", "\r\n", "a\0b", "\0",
        "\"", "'", "`", "🦀", "\u{202e}שלום", "$all", "$", "*", "a", "A", "-", "--json", "{",
        "}", "{}", "{}a", "a{b}c", "{b}", "b", "null", "é", "e\u{301}",
    ];
    short.map(str::to_owned).into_iter().chain([longest, shorter]).collect()
}

/// Promised: every name of 1 to 255 bytes of UTF-8 is a stream of its own, the same through every
/// interface and after a restart; nothing in a name has a hidden meaning but `{}` for its shard.
/// Provoked: names with slashes, blanks, quotes, control characters, zero bytes, emoji, of one and
/// of 255 bytes, on three shards.
/// Broken: a refusal; two names that share a stream; a name that one interface cannot reach.
#[test]
fn awkward_names_are_ordinary_names_everywhere() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).shards(3).start();
    let names = names();
    let mut wire = connect(&server);
    for name in &names {
        let mut append = AppendBuilder::new();
        append.stream(name, Expect::NoStream).expect("the name fits");
        append.event(1, "named", b"", name.as_bytes()).expect("the event fits");
        assert_eq!(wire.append(&append).receipt().first_revision(), 0, "{name:?}");
    }
    let server = server.kill().start();
    let mut wire = connect(&server);
    let address = server.address().to_string();
    let client = block_on(async {
        let client = Client::connect(&address).await.expect("the server takes clients");
        for name in &names {
            let read = client.read(name).next().await.expect("the read is answered");
            assert_eq!(read.expect("it has an event").data, name.as_bytes(), "{name:?}");
        }
        client
    });
    drop(client);
    for name in &names {
        let events = wire.stream(name);
        assert_eq!(events.len(), 1, "{name:?}");
        assert_eq!((&events[0].stream, &*events[0].data), (name, name.as_bytes()));
        if !name.contains('\0') {
            let ran = run(&["read", "--addr", &address, "--json", "--", name]);
            assert_eq!(ran.code, Some(0), "{name:?}: {ran:?}");
            assert_eq!(ran.json()["stream"], **name, "{ran:?}");
        }
    }
    let logged: usize = (0..3).map(|shard| wire.log(shard, 1).len()).sum();
    assert_eq!(logged, names.len());
}

/// Promised: names and types are 1 to 255 bytes of UTF-8; anything else is refused, nothing of it
/// is appended, and the connection goes on.
/// Provoked: names and types of 0 bytes and not in UTF-8 byte by byte; names of 256 bytes through
/// the client library and the command line.
/// Broken: an event in the log; another code.
#[test]
fn names_and_types_that_do_not_fit_are_refused() {
    let scratch = scratch();
    let server = ServerOptions::new(scratch.path()).start();
    let mut wire = connect(&server);
    let cases: [(&[u8], &[u8]); 6] = [
        (b"", b"t"),
        (b"\xff", b"t"),
        (b"ab\xc3", b"t"),
        (b"a", b""),
        (b"a", b"\xff\xfe"),
        (b"\xed\xa0\x80", b"t"),
    ];
    for (name, kind) in cases {
        let refused = wire.append_bytes(&raw_append(name, &[(kind, b"", b"x")])).refused();
        assert_eq!(refused.code, ErrorCode::BadRequest, "{name:?} {kind:?}: {refused:?}");
    }
    let long = "x".repeat(256);
    let address = server.address().to_string();
    block_on(async {
        let client = Client::connect(&address).await.expect("the server takes clients");
        for (name, kind) in [(&*long, "t"), ("", "t"), ("a", &*long), ("a", "")] {
            let sent = client.append(name).event(Event::new(kind, "x")).send().await;
            assert!(matches!(sent, Err(Error::BadRequest { .. })), "{name:?} {kind:?}: {sent:?}");
        }
        let read = client.read(&*long).page().await;
        assert!(matches!(read, Err(Error::BadRequest { .. })), "{read:?}");
    });
    for name in [&*long, ""] {
        let arguments = ["append", name, "--type", "t", "--data", "x", "--addr", &address];
        let ran = run(&arguments);
        assert!(matches!(ran.code, Some(2 | 4)), "{ran:?}");
        assert!(ran.errors.contains("1 to 255 bytes"), "{ran:?}");
    }
    assert_eq!(wire.log(0, 1), []);
    let longest = "x".repeat(255);
    let receipt = wire.append(&one_event(&longest, &longest, b"", b"")).receipt();
    assert_eq!(receipt.first_revision(), 0);
}
