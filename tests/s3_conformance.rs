//! The conformance suite must find every store unsafe that is, and say why, and no other.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[path = "s3/embedded.rs"]
mod embedded;
#[path = "s3/words.rs"]
mod words;

use duolog_s3client::conformance::{self, Outcome, Plan, Report, Verdict};
use duolog_s3client::etag::IfMatchForm;
use duolog_s3client::{Client, Settings};
use duolog_s3dev::{Answer, ETagRewrite, Fault, Lie, Rule, Server};

/// Smaller than in earnest; the store is on this machine.
fn plan() -> Plan {
    let slow = std::time::Duration::from_millis(100);
    Plan { subfolder: "sub folder+1/".to_owned(), writers: 32, rounds: 2, keys: 20, slow }
}

async fn run(server: &Server) -> Report {
    conformance::run(&[embedded::client(server)], &plan()).await.unwrap()
}

fn failed(report: &Report) -> Vec<&str> {
    report.failed().map(|check| check.name.as_str()).collect()
}

/// The embedded store is exact. Every check passes, nothing is left behind, and the verdict is
/// kept beside the lease and found again.
#[tokio::test]
async fn an_honest_store_is_safe_and_left_clean() {
    let server = embedded::server();
    let client = embedded::client(&server);
    let report = run(&server).await;
    println!("{}", report.table());
    assert_eq!(failed(&report), Vec::<&str>::new(), "{}", report.table());
    assert_eq!(report.verdict, Verdict::Safe);
    assert_eq!(report.form, Some(IfMatchForm::AsGiven));
    assert!(report.checks.iter().filter(|check| check.outcome == Outcome::Pass).count() >= 12);
    let left = client.list(duolog_s3client::request::ListQuery::default()).await.unwrap();
    assert_eq!(left, []);
    assert_eq!(Report::kept(&client, "sub folder+1/").await.unwrap(), None);
    report.keep(&client, "sub folder+1/").await.unwrap();
    let kept = Report::kept(&client, "sub folder+1/").await.unwrap();
    assert_eq!(kept.as_ref(), Some(&report));
    assert!(report.covers(&client));
}

/// Every lie is a store that somebody has met; each must be found by the check made for it.
#[tokio::test]
async fn every_lie_is_found_and_named() {
    let table: [(Lie, &[&str]); 11] = [
        (Lie::IgnoreConditions, &["create only if absent", "refuse a stale If-Match"]),
        (Lie::IgnoreIfMatch, &["refuse a stale If-Match", "replace race"]),
        (Lie::IgnoreIfNoneMatch, &["create only if absent", "create race"]),
        (Lie::InvertIfNoneMatch, &["create only if absent"]),
        (Lie::CreateOnIfMatch, &["refuse If-Match on a missing key"]),
        (Lie::JudgeBeforeBody, &["create with a slow body", "replace with a slow body"]),
        (Lie::GapMs(50), &["create race", "replace race"]),
        (Lie::NotImplemented, &["create only if absent", "replace if unchanged"]),
        (Lie::ListLateMs(2_000), &["list after write"]),
        (Lie::ListCut, &["paging"]),
        (Lie::KeepDeleted, &["delete"]),
    ];
    for (lie, expected) in table {
        let server = embedded::server();
        server.faults().lie(lie);
        let report = run(&server).await;
        let failed = failed(&report);
        assert!(expected.iter().all(|name| failed.contains(name)), "{lie:?}: {failed:?}");
        assert_eq!(report.verdict, Verdict::Unsafe, "{lie:?}");
        let sentence = report.sentence();
        assert!(sentence.starts_with("unsafe for leases, because of "), "{sentence}");
        assert!(!report.covers(&embedded::client(&server)));
    }
}

/// A store that compares a quoted If-Match with its unquoted ETag always refuses. The unquoted
/// form works, is found and pinned in the client, and the store is safe with it.
#[tokio::test]
async fn the_form_of_if_match_is_found_and_pinned() {
    let server = embedded::server();
    server.faults().lie(Lie::QuotedNeverMatches);
    let client = embedded::client(&server);
    let report = conformance::run(std::slice::from_ref(&client), &plan()).await.unwrap();
    assert_eq!(report.form, Some(IfMatchForm::Unquoted), "{}", report.table());
    assert_eq!(client.form(), IfMatchForm::Unquoted);
    assert_eq!(report.verdict, Verdict::Safe, "{}", report.table());
}

/// A proxy takes the quotes off the ETags in answers, and the store wants them in conditions.
#[tokio::test]
async fn unquoted_etags_in_answers_are_sent_back_as_the_store_wants_them() {
    let server = embedded::server();
    server.faults().order(Rule::always(Fault::RewriteETag(ETagRewrite::Unquoted)));
    server.faults().lie(Lie::UnquotedNeverMatches);
    let client = embedded::client(&server);
    let report = conformance::run(std::slice::from_ref(&client), &plan()).await.unwrap();
    assert_eq!(report.form, Some(IfMatchForm::Quoted), "{}", report.table());
    assert_eq!(client.form(), IfMatchForm::Quoted);
    assert_eq!(report.verdict, Verdict::Safe, "{}", report.table());
}

/// A proxy that makes ETags weak makes compare-and-swap impossible; the report says it in words.
#[tokio::test]
async fn weak_etags_are_reported_and_never_sent_back() {
    let server = embedded::server();
    server.faults().order(Rule::always(Fault::RewriteETag(ETagRewrite::Weak)));
    let report = run(&server).await;
    assert_eq!(report.verdict, Verdict::Unsafe);
    assert!(report.sentence().contains("weak ETag"), "{}", report.sentence());
    let seen = server.faults().take_seen();
    assert!(seen.iter().all(|request| request.header("if-match").is_none()));
}

/// Two addresses that each serialise alone are two stores: the races through both find it.
#[tokio::test]
async fn two_endpoints_that_serialise_apart_are_unsafe_together() {
    let (one, two) = (embedded::server(), embedded::server());
    let clients = [embedded::client(&one), embedded::client(&two)];
    for client in &clients {
        let report = conformance::run(std::slice::from_ref(client), &plan()).await.unwrap();
        assert_eq!(report.verdict, Verdict::Safe);
    }
    let report = conformance::run(&clients, &plan()).await.unwrap();
    let failed = failed(&report);
    assert!(failed.contains(&"create race") && failed.contains(&"read after write"), "{failed:?}");
}

/// Losers that get 409 or 500 instead of 412 leave the outcome open; reading settles it, and an
/// otherwise right store stays safe.
#[tokio::test]
async fn losers_that_are_told_nothing_do_not_make_a_store_unsafe() {
    let server = embedded::server();
    for status in [409, 500] {
        let answer = Answer::error(status, "ConditionalRequestConflict");
        let rule = Rule::once("PUT", Fault::Answer(answer)).on("race").times(10).after(5);
        server.faults().order(rule);
    }
    let report = run(&server).await;
    assert_eq!(failed(&report), Vec::<&str>::new(), "{}", report.table());
}

/// A bucket that cannot be used is an error with the reason, not a list of failed checks.
#[tokio::test]
async fn a_bucket_that_cannot_be_used_is_an_error_and_no_verdict() {
    let server = embedded::server();
    let denied = || Fault::Answer(Answer::error(403, "AccessDenied"));
    server.faults().order(Rule::once("PUT", denied()));
    let error = conformance::run(&[embedded::client(&server)], &plan()).await.unwrap_err();
    assert!(error.to_string().contains("must allow s3:PutObject"), "{error}");
    let secret = "wrong-secret";
    let path = duolog_s3client::bucket::Addressing::Path;
    let settings: Settings = embedded::settings_with(&server.url(), secret, path);
    let client = Client::new(settings).unwrap();
    assert!(conformance::run(&[client], &plan()).await.is_err());
}

/// A node's second start in a bucket believes the report of the first: one request, and the form
/// of If-Match is pinned. A report that cannot be read, or an unsafe store, is no such report.
#[tokio::test]
async fn a_report_that_was_kept_saves_the_next_start_the_suite() {
    const KEPT: &str = "sub/cluster/probe/verdict.json";
    let server = embedded::server();
    let plan = Plan { subfolder: "sub/".to_owned(), ..plan() };
    server.faults().lie(Lie::IgnoreIfMatch);
    let report = conformance::ensure(&embedded::client(&server), &plan).await.unwrap();
    assert_eq!(report.verdict, Verdict::Unsafe);
    assert!(server.object("duolog", KEPT).is_none(), "what is unsafe today may be mended tomorrow");
    server.faults().lie(Lie::QuotedNeverMatches);
    let first = conformance::ensure(&embedded::client(&server), &plan).await.unwrap();
    assert_eq!(first.verdict, Verdict::Safe);
    server.faults().take_seen();
    let again = embedded::client(&server);
    assert_eq!(conformance::ensure(&again, &plan).await.unwrap(), first);
    assert_eq!((again.form(), server.faults().take_seen().len()), (IfMatchForm::Unquoted, 1));
    again.put(&words::key(KEPT), words::text("{}")).await.unwrap();
    let mended = conformance::ensure(&embedded::client(&server), &plan).await.unwrap();
    assert_eq!(mended.checks.len(), first.checks.len());
    assert_ne!(mended.at_ms, first.at_ms, "it ran");
}
