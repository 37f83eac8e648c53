//! Sources chosen, asked and asked again, against a scripted metadata service on loopback.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each request by `script`, which gets the request's head and may give no answer.
async fn serve(
    script: impl Fn(&str) -> Option<(u16, String)> + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        let mut silent = Vec::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            seen.lock().unwrap().push(head.clone());
            let Some((status, body)) = script(&head) else {
                silent.push(socket);
                continue;
            };
            let answer = format!(
                "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, heads)
}

fn document(id: &str, expiration: &str) -> String {
    format!(
        "{{\"Code\":\"Success\",\"AccessKeyId\":\"{id}\",\"SecretAccessKey\":\"s\",\
         \"Token\":\"t\",\"Expiration\":\"{expiration}\"}}"
    )
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::new(variables.iter().map(|(name, value)| (name.to_string(), value.to_string())))
}

fn container(url: &str) -> Source {
    let url = format!("{url}/role");
    Source::Container { url, token: ContainerToken::None }
}

fn given(id: &str, secret: &str) -> Given {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Given { access_key_id: text(id), secret_access_key: text(secret), ..Given::default() }
}

#[test]
fn settings_beat_the_environment_which_beats_the_platform() {
    let keys = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "S")];
    let choose = |given: &Given, variables: &[(&str, &str)]| {
        Source::choose(given, &environment(variables)).unwrap()
    };
    let Source::Fixed { credentials, .. } = choose(&given("G", "S"), &keys) else { panic!() };
    assert_eq!(credentials.access_key_id(), "G");
    let Source::Fixed { credentials, .. } = choose(&Given::default(), &keys) else { panic!() };
    assert_eq!(credentials.access_key_id(), "E");
    let profile = Given { profile: Some("p".to_owned()), ..Given::default() };
    assert!(matches!(choose(&profile, &keys), Source::Profile { name, .. } if name == "p"));
    let relative = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")];
    let source = choose(&Given::default(), &relative);
    assert!(matches!(source, Source::Container { url, .. } if url == "http://169.254.170.2/x"));
    let source = choose(&Given::default(), &[("HOME", "/nowhere")]);
    assert_eq!(source, Source::Instance { endpoint: "http://169.254.169.254".to_owned() });
}

#[test]
fn half_a_pair_is_an_error_that_names_the_other_half() {
    let refused = Source::choose(&given("G", ""), &environment(&[])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "s3.access_key_id is set but s3.secret_access_key is not: set both or none"
    );
    let half = environment(&[("AWS_SECRET_ACCESS_KEY", "S")]);
    assert!(matches!(
        Source::choose(&Given::default(), &half),
        Err(CredentialsError::Half { missing, .. }) if missing == "AWS_ACCESS_KEY_ID"
    ));
}

#[test]
fn credentials_are_not_fetched_in_the_open_from_another_machine() {
    let choose = |url: &str| {
        let environment = environment(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)]);
        Source::choose(&Given::default(), &environment)
    };
    for url in ["http://10.0.0.1/x", "http://example.org/x", "ftp://h", "x", "http://localhost.x/"]
    {
        assert!(matches!(choose(url), Err(CredentialsError::ContainerUrl { .. })), "{url}");
    }
    for url in [
        "https://example.org/x",
        "http://127.0.0.1:1/x",
        "http://169.254.170.23/v1",
        "http://[::1]/",
    ] {
        assert!(choose(url).is_ok(), "{url}");
    }
}

#[test]
fn secrets_are_never_printed() {
    let credentials = Credentials::fixed("ID", "hush1", Some("hush2")).unwrap();
    let source =
        Source::Container { url: "u".to_owned(), token: ContainerToken::Text("hush3".to_owned()) };
    let printed = format!(
        "{credentials:?} {source:?} {source} {:?} {:?}",
        given("ID", "hush4"),
        Source::Fixed { credentials: credentials.clone(), origin: "x" }
    );
    assert!(printed.contains("ID") && !printed.contains("hush"), "{printed}");
}

#[test]
fn broken_copies_of_keys_are_refused() {
    for (id, secret) in [("", "s"), ("i", ""), ("i ", "s"), ("i", "s\n"), ("i", "\u{e9}")] {
        assert!(matches!(Credentials::fixed(id, secret, None), Err(CredentialsError::Text { .. })));
    }
    assert!(Credentials::fixed("i", "s", Some("")).is_err());
}

#[tokio::test]
async fn an_instance_is_asked_with_a_session_token() {
    let (endpoint, heads) = serve(|head| {
        let line = head.lines().next().unwrap();
        Some((
            200,
            match line {
                "PUT /latest/api/token HTTP/1.1" => "secret-token\n".to_owned(),
                "GET /latest/meta-data/iam/security-credentials/ HTTP/1.1" => {
                    "my role\n".to_owned()
                }
                "GET /latest/meta-data/iam/security-credentials/my%20role HTTP/1.1" => {
                    document("AK", "2040-01-01T00:00:00Z")
                }
                other => panic!("{other}"),
            },
        ))
    })
    .await;
    let credentials = Source::Instance { endpoint }.fetch().await.unwrap();
    assert_eq!((credentials.access_key_id(), credentials.session_token()), ("AK", Some("t")));
    assert_eq!(credentials.expires_ms(), date_ms("2040-01-01T00:00:00Z"));
    let heads = heads.lock().unwrap();
    assert!(heads[0].contains("x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"));
    for head in &heads[1..] {
        assert!(head.contains("x-aws-ec2-metadata-token: secret-token\r\n"), "{head}");
    }
}

fn date_ms(text: &str) -> Option<i64> {
    crate::date::parse_iso(text)
}

/// A container too far from the service gets no answer at all. The wait is bounded, and the
/// message names the hop limit.
#[tokio::test]
async fn a_silent_metadata_service_is_given_up_with_advice() {
    let (endpoint, heads) = serve(|_| None).await;
    let error = Source::Instance { endpoint }.fetch().await.unwrap_err().to_string();
    assert!(error.contains("no answer within 1000 ms"), "{error}");
    assert!(error.contains("hop limit"), "{error}");
    assert_eq!(heads.lock().unwrap().len(), 2, "asked twice, not for ever");
}

#[tokio::test]
async fn a_container_is_asked_with_the_token_of_its_file() {
    let (url, heads) = serve(|_| Some((200, document("AK", "2040-01-01T00:00:00Z")))).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let source = Source::Container { url, token: ContainerToken::File(path.clone()) };
    source.fetch().await.unwrap();
    std::fs::write(&path, "second").unwrap();
    source.fetch().await.unwrap();
    {
        let heads = heads.lock().unwrap();
        assert!(heads[0].contains("authorization: first\r\n"), "{}", heads[0]);
        assert!(heads[1].contains("authorization: second\r\n"), "{}", heads[1]);
    }
    std::fs::write(&path, "a\nb").unwrap();
    assert!(matches!(source.fetch().await, Err(CredentialsError::ContainerToken { .. })));
}

#[tokio::test]
async fn odd_documents_are_errors_and_never_accidents() {
    for (status, body) in [
        (200, String::new()),
        (200, "{\"AccessKeyId\":\"A\"}".to_owned()),
        (200, document("A", "soon")),
        (200, "x".repeat(100_000)),
        (404, "no".to_owned()),
        (500, document("A", "2040-01-01T00:00:00Z")),
    ] {
        let (url, _) = serve(move |_| Some((status, body.clone()))).await;
        assert!(matches!(container(&url).fetch().await, Err(CredentialsError::Fetch { .. })));
    }
    for far in ["9999-12-31T23:59:59Z", "99999-01-01T00:00:00Z"] {
        let (url, _) = serve(move |_| Some((200, document("A", far)))).await;
        let keeper = Keeper::new(container(&url));
        assert!(keeper.credentials(|| 0).await.is_ok(), "{far}");
        assert!(keeper.kept().unwrap().refresh_ms > 0);
    }
}

/// A source that numbers its answers; each is good until `lifetime_s` seconds after 1970 times
/// its number.
async fn rotating(lifetime_s: u64) -> (Keeper, Arc<AtomicI64>) {
    let count = Mutex::new(0);
    let (url, _) = serve(move |_| {
        let mut count = count.lock().unwrap();
        *count += 1;
        let seconds = *count * lifetime_s;
        let (minute, second) = (seconds / 60, seconds % 60);
        let expires = format!("1970-01-01T00:{minute:02}:{second:02}Z");
        Some((200, document(&format!("K{count}"), &expires)))
    })
    .await;
    (Keeper::new(container(&url)), Arc::new(AtomicI64::new(0)))
}

fn clock(now_ms: &Arc<AtomicI64>) -> impl Fn() -> i64 + Send + Sync + 'static {
    let now_ms = Arc::clone(now_ms);
    move || now_ms.load(Ordering::SeqCst)
}

/// Credentials of 60 seconds, used for ten minutes: good ones at every moment.
#[tokio::test]
async fn a_caller_never_gets_expired_credentials_over_many_rotations() {
    let (keeper, now_ms) = rotating(60).await;
    let mut ids = std::collections::BTreeSet::new();
    for second in 0..600 {
        now_ms.store(second * 1000, Ordering::SeqCst);
        let credentials = keeper.credentials(clock(&now_ms)).await.unwrap();
        assert!(credentials.expires_ms().unwrap() > second * 1000, "second {second}");
        ids.insert(credentials.access_key_id().to_owned());
        tokio::task::yield_now().await;
    }
    assert!(ids.len() >= 10, "{ids:?}");
}

#[tokio::test]
async fn a_refresh_that_is_due_does_not_hold_up_the_caller() {
    let (keeper, now_ms) = rotating(60).await;
    keeper.credentials(clock(&now_ms)).await.unwrap();
    now_ms.store(50_000, Ordering::SeqCst);
    let old = keeper.credentials(clock(&now_ms)).await.unwrap();
    assert_eq!(old.access_key_id(), "K1", "the caller gets what is at hand");
    for _ in 0..1000 {
        let now = keeper.credentials(clock(&now_ms)).await.unwrap();
        if now.access_key_id() != "K1" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the refresh never came");
}

#[tokio::test]
async fn credentials_that_are_over_on_arrival_are_an_error() {
    let (keeper, now_ms) = rotating(60).await;
    now_ms.store(3_600_000, Ordering::SeqCst);
    let error = keeper.credentials(clock(&now_ms)).await.unwrap_err();
    assert!(matches!(error, CredentialsError::Expired { ago_ms: 3_540_000, .. }), "{error}");
}

#[tokio::test]
async fn a_failed_refresh_leaves_the_old_credentials_in_use() {
    let asked = Mutex::new(0);
    let (url, heads) = serve(move |_| {
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        match *asked {
            1 => Some((200, document("K1", "1970-01-01T00:01:00Z"))),
            _ => Some((500, String::new())),
        }
    })
    .await;
    let (keeper, now_ms) = (Keeper::new(container(&url)), Arc::new(AtomicI64::new(0)));
    keeper.credentials(clock(&now_ms)).await.unwrap();
    now_ms.store(50_000, Ordering::SeqCst);
    while heads.lock().unwrap().len() < 3 {
        let credentials = keeper.credentials(clock(&now_ms)).await.unwrap();
        assert_eq!(credentials.access_key_id(), "K1");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    now_ms.store(60_000, Ordering::SeqCst);
    assert!(keeper.credentials(clock(&now_ms)).await.is_err(), "expired ones are not served");
}

#[tokio::test]
async fn what_the_store_calls_expired_is_replaced_once_for_all_callers() {
    let (keeper, now_ms) = rotating(600).await;
    let old = keeper.credentials(clock(&now_ms)).await.unwrap();
    let (one, two) =
        tokio::join!(keeper.replace(&old, clock(&now_ms)), keeper.replace(&old, clock(&now_ms)));
    assert_eq!(one.unwrap().access_key_id(), "K2");
    assert_eq!(two.unwrap().access_key_id(), "K2");
}

/// A source that has nothing good changes nothing; another one counts from the moment it is named,
/// although the credentials in use would be good for longer.
#[tokio::test]
async fn another_source_takes_over_at_once_or_not_at_all() {
    let (keeper, now_ms) = rotating(600).await;
    keeper.credentials(clock(&now_ms)).await.unwrap();
    let (silent, _) = serve(|_| Some((500, String::new()))).await;
    let refused = keeper.change_source(container(&silent), clock(&now_ms)).await;
    assert!(matches!(refused, Err(CredentialsError::Fetch { .. })), "{refused:?}");
    let kept = keeper.credentials(clock(&now_ms)).await.unwrap();
    assert_eq!(kept.access_key_id(), "K1");
    let fixed = Source::choose(&given("FIXED", "secret"), &environment(&[])).unwrap();
    assert!(keeper.change_source(fixed.clone(), clock(&now_ms)).await.unwrap());
    let kept = keeper.credentials(clock(&now_ms)).await.unwrap();
    assert_eq!(kept.access_key_id(), "FIXED");
    assert_eq!(keeper.source().to_string(), fixed.to_string());
    assert!(!keeper.change_source(fixed, clock(&now_ms)).await.unwrap(), "the same ones");
}
