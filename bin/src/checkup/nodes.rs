//! What the nodes of a cluster say about themselves, held against one another.

use serde_json::Value as Json;

use crate::doctor::{Finding, Status};

/// What one address said, and when.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The address.
    pub address: String,
    /// To `{"command":"doctor"}`, or why there is nothing.
    pub said: Result<Json, String>,
    /// How far its wall clock is ahead of this machine's, ms, and by how much that may be wrong.
    pub skew: Option<(i64, u64)>,
    /// Whether the node's door for the other node opens from here; none if it has none.
    pub door: Option<Json>,
}

impl Answer {
    fn member(&self, name: &str) -> &Json {
        self.said.as_ref().map_or(&Json::Null, |said| &said[name])
    }

    /// Where the other node reaches it.
    #[must_use]
    pub fn peer_address(&self) -> Option<&str> {
        self.member("peer_address").as_str()
    }
}

/// How far a node's wall clock is ahead of this machine's, ms, and by how much that may be wrong:
/// it was read at some moment of the `took_ms` before `came_ms`.
#[must_use]
pub fn skew_of(said: &Json, came_ms: u64, took_ms: u64) -> Option<(i64, u64)> {
    let told = i64::try_from(said["at_ms"].as_u64()?).ok()?;
    let middle = came_ms.saturating_sub(took_ms / 2);
    Some((told - i64::try_from(middle).ok()?, took_ms.div_ceil(2)))
}

/// Everything about them.
#[must_use]
pub fn judge(answers: &[Answer]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for answer in answers {
        findings.extend(of_node(answer, answers));
    }
    findings.extend(together(answers).into_iter().map(|finding| finding.of("cluster")));
    findings
}

fn of_node(answer: &Answer, all: &[Answer]) -> Vec<Finding> {
    let address = &answer.address;
    let mut findings = Vec::new();
    match &answer.said {
        Err(reason) => {
            let remedy = "start it (its log says why it is not there), correct --addr, or open the \
                          client port (listen.client) to this machine";
            findings.push(Finding::bad("client port", Status::Fail, reason.clone(), remedy));
        }
        Ok(said) => {
            let node = said["node"].as_str().unwrap_or("?");
            findings.push(Finding::ok("client port", format!("node {node} answers")));
            findings.extend(door(answer));
            findings.extend(reach(answer, all));
            let told = said["findings"].as_array().into_iter().flatten();
            findings.extend(told.filter_map(finding));
        }
    }
    findings.into_iter().map(|finding| finding.of(address)).collect()
}

/// A finding as the node sent it.
fn finding(told: &Json) -> Option<Finding> {
    let (check, value) = (told["check"].as_str()?, told["value"].as_str()?);
    let remedy = told["remedy"].as_str().unwrap_or("see the value");
    Some(match told["status"].as_str()? {
        "ok" => Finding::ok(check, value),
        "warn" => Finding::bad(check, Status::Warn, value, remedy),
        _ => Finding::bad(check, Status::Fail, value, remedy),
    })
}

/// From here. The other node is what matters: this machine may well be kept out.
fn door(answer: &Answer) -> Option<Finding> {
    let door = answer.door.as_ref()?;
    let address = door["address"].as_str().unwrap_or("?");
    if door["open"] == true {
        return Some(Finding::ok("peer port", format!("{address} opens from here")));
    }
    let reason = door["error"].as_str().unwrap_or("closed");
    let remedy = "nothing, if only the other node has to reach it (see its line); else open \
                  listen.peer to this machine";
    let value = format!("{address} does not open from here: {reason}");
    Some(Finding::bad("peer port", Status::Warn, value, remedy))
}

/// From this node to the others.
fn reach(answer: &Answer, all: &[Answer]) -> Vec<Finding> {
    let tried = answer.member("reach").as_array().into_iter().flatten();
    let name = |address: &str| {
        let known = all.iter().find(|other| other.peer_address() == Some(address));
        known.map_or("?", |other| other.address.as_str()).to_owned()
    };
    let judged = tried.map(|tried| {
        let address = tried["address"].as_str().unwrap_or("?");
        let to = name(address);
        if tried["open"] == true {
            let ms = tried["took_us"].as_u64().unwrap_or(0) as f64 / 1e3;
            let value = format!("reaches {address} (peer port of {to}) in {ms:.1} ms");
            return Finding::ok("reaches peer", value);
        }
        let reason = tried["error"].as_str().unwrap_or("closed");
        let value = format!("does not reach {address} (peer port of {to}): {reason}");
        let remedy = format!(
            "open the peer port from this node to {to}: firewall, security group, route; \
             advertise.peer of {to} must name an address that this node can use"
        );
        Finding::bad("reaches peer", Status::Fail, value, remedy)
    });
    judged.collect()
}

/// What they must have in common.
fn together(answers: &[Answer]) -> Vec<Finding> {
    let there: Vec<&Answer> = answers.iter().filter(|answer| answer.said.is_ok()).collect();
    let [one, other] = there.as_slice() else { return Vec::new() };
    let mut findings = vec![same_cluster(one, other)];
    findings.push(versions(one, other));
    let shared = differences(one, other, "settings");
    findings.push(match shared.as_slice() {
        [] => Finding::ok("settings", "those that must be equal are"),
        differences => {
            let remedy = "give both nodes the same values and start them again (shards.count and \
                          log.segment_size_bytes are fixed for the life of the cluster)";
            Finding::bad("settings", Status::Fail, differences.join("; "), remedy)
        }
    });
    let place = differences(one, other, "place");
    if !place.is_empty() {
        let remedy = "give both nodes the same bucket and subfolder: the lease lies there";
        findings.push(Finding::bad("bucket", Status::Fail, place.join("; "), remedy));
    }
    findings.push(clocks(one, other));
    findings
}

fn same_cluster(one: &Answer, other: &Answer) -> Finding {
    if one.member("node") == other.member("node") {
        let value = format!("{} and {} are one node", one.address, other.address);
        return Finding::bad("members", Status::Warn, value, "name both nodes in --addr");
    }
    if one.member("cluster") == other.member("cluster") {
        let cluster = one.member("cluster").as_str().unwrap_or("?");
        return Finding::ok("members", format!("two nodes of cluster {cluster}"));
    }
    let value = format!("clusters {} and {}", one.member("cluster"), other.member("cluster"));
    let remedy = "these nodes do not belong together: correct --addr, or start the younger one \
                  with an empty data directory in the bucket of the other";
    Finding::bad("members", Status::Fail, value, remedy)
}

fn versions(one: &Answer, other: &Answer) -> Finding {
    let version = |answer: &Answer| {
        let part = |name: &str| answer.member(name).as_str().unwrap_or("?").to_owned();
        format!("{} ({})", part("version"), part("commit"))
    };
    let (first, second) = (version(one), version(other));
    if first == second {
        return Finding::ok("version", first);
    }
    let value = format!("{first} at {}, {second} at {}", one.address, other.address);
    let remedy = "install the same program on both, the follower first (`duolog handoff` between)";
    Finding::bad("version", Status::Warn, value, remedy)
}

fn differences(one: &Answer, other: &Answer, of: &str) -> Vec<String> {
    let (first, second) = (one.member(of), other.member(of));
    let names = first.as_object().into_iter().chain(second.as_object()).flatten();
    let mut names: Vec<&String> = names.map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let different = names.into_iter().filter(|name| first[name.as_str()] != second[name.as_str()]);
    let told = different.map(|name| {
        let (a, b) = (&first[name.as_str()], &second[name.as_str()]);
        format!("{name} = {a} at {}, {b} at {}", one.address, other.address)
    });
    told.collect()
}

/// The drift that the nodes are set to bear, ms: the smaller one.
#[must_use]
pub fn drift_ms(answers: &[Answer]) -> Option<u64> {
    let told = answers.iter();
    told.filter_map(|answer| answer.member("settings")["max_clock_drift_ms"].as_u64()).min()
}

fn clocks(one: &Answer, other: &Answer) -> Finding {
    let drift_ms = drift_ms(&[one.clone(), other.clone()]).unwrap_or(0);
    let (Some((first, doubt)), Some((second, more_doubt))) = (one.skew, other.skew) else {
        let remedy = "update the nodes' program";
        return Finding::bad("clocks", Status::Warn, "a node does not tell its clock", remedy);
    };
    let what = format!("{} less {}", other.address, one.address);
    skew("clocks", &what, second - first, doubt + more_doubt, drift_ms)
}

/// A distance between two clocks against the drift that is borne.
#[must_use]
pub fn skew(check: &str, what: &str, skew_ms: i64, doubt_ms: u64, drift_ms: u64) -> Finding {
    let value = format!(
        "{what}: {skew_ms} ms (give or take {doubt_ms} ms), max_clock_drift_ms is {drift_ms}"
    );
    let certain_ms = skew_ms.unsigned_abs().saturating_sub(doubt_ms);
    let remedy = "synchronise the clocks: chronyc tracking (or timedatectl) on both machines; \
                  allow NTP (UDP 123) out";
    if certain_ms > drift_ms {
        Finding::bad(check, Status::Fail, value, remedy)
    } else if certain_ms.saturating_mul(2) > drift_ms {
        Finding::bad(check, Status::Warn, value, remedy)
    } else {
        Finding::ok(check, value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(address: &str, node: &str) -> Answer {
        let said = json!({
            "node": node, "cluster": "c", "version": "1", "commit": "x",
            "peer_address": format!("{address}1"),
            "settings": {"shards.count": 2, "max_clock_drift_ms": 500},
            "place": {"s3.bucket": "events"},
            "findings": [{"check": "memlock", "status": "ok", "value": "64 MiB", "remedy": null}],
            "reach": [{"address": "other", "open": true, "error": null, "took_us": 300}],
        });
        Answer { address: address.to_owned(), said: Ok(said), skew: Some((0, 1)), door: None }
    }

    fn set(answer: &mut Answer, change: impl FnOnce(&mut Json)) {
        change(answer.said.as_mut().unwrap());
    }

    fn found<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.check == check).unwrap()
    }

    #[test]
    fn two_healthy_nodes_have_nothing_to_complain_of() {
        let findings = judge(&[answer("a", "n1"), answer("b", "n2")]);
        assert!(findings.iter().all(|finding| finding.status == Status::Ok), "{findings:#?}");
        assert_eq!(findings.iter().filter(|finding| finding.check == "memlock").count(), 2);
        assert!(found(&findings, "members").value.contains("two nodes of cluster c"));
    }

    #[test]
    fn each_difference_is_told_with_its_remedy() {
        type Change = (&'static str, fn(&mut Json), Status);
        let changes: [Change; 5] = [
            ("settings", |said| said["settings"]["shards.count"] = json!(3), Status::Fail),
            ("bucket", |said| said["place"]["s3.bucket"] = json!("other"), Status::Fail),
            ("version", |said| said["version"] = json!("2"), Status::Warn),
            ("members", |said| said["cluster"] = json!("d"), Status::Fail),
            ("members", |said| said["node"] = json!("n1"), Status::Warn),
        ];
        for (check, change, status) in changes {
            let (one, mut other) = (answer("a", "n1"), answer("b", "n2"));
            set(&mut other, change);
            let findings = judge(&[one, other]);
            let finding = found(&findings, check);
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.remedy.is_some() && finding.subject == "cluster", "{finding:?}");
            let bad = findings.iter().filter(|finding| finding.status != Status::Ok).count();
            assert_eq!(bad, 1, "{findings:#?}");
        }
    }

    #[test]
    fn a_port_that_is_closed_is_told_by_whom() {
        let (mut one, mut other) = (answer("a", "n1"), answer("b", "n2"));
        set(&mut one, |said| {
            said["reach"] = json!([{"address": "b1", "open": false, "error": "timed out"}]);
        });
        other.door = Some(json!({"address": "b1", "open": false, "error": "timed out"}));
        let findings = judge(&[one, other]);
        let blocked = found(&findings, "reaches peer");
        assert_eq!((blocked.status, blocked.subject.as_str()), (Status::Fail, "a"));
        assert!(blocked.value.contains("b1 (peer port of b): timed out"), "{blocked:?}");
        let door = found(&findings, "peer port");
        assert_eq!((door.status, door.subject.as_str()), (Status::Warn, "b"));
        let gone = Answer { said: Err("refused".to_owned()), ..answer("a", "n1") };
        let findings = judge(&[gone, answer("b", "n2")]);
        assert_eq!(found(&findings, "client port").status, Status::Fail);
    }

    #[test]
    fn a_slow_answer_proves_less_about_a_clock() {
        assert_eq!(skew_of(&json!({"at_ms": 1_000_700_u64}), 1_000_010, 20), Some((700, 10)));
        let late = Answer { skew: Some((700, 10)), ..answer("b", "n2") };
        let findings = judge(&[answer("a", "n1"), late]);
        assert_eq!(found(&findings, "clocks").status, Status::Fail);
        assert_eq!(skew("x", "w", 900, 500, 500).status, Status::Warn);
        assert_eq!(skew("x", "w", -1100, 500, 500).status, Status::Fail);
        assert_eq!(skew("x", "w", 700, 500, 500).status, Status::Ok);
    }
}
