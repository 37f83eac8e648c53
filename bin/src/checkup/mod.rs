//! `duolog doctor --addr A,B`: the visit to a cluster. Asks the nodes what they are like, lets each
//! knock at the other's door, and looks at the bucket.

mod bucket;
mod nodes;

use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

pub use bucket::Probe;
use nodes::Answer;

use crate::client::question::ask;
use crate::doctor::{Finding, Status};
use crate::serve::clock::Clock;
use crate::serve::visit::knock;
use crate::settings::Settings;

/// How long a node may take: it knocks for up to two seconds at each door.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Visits the nodes at these addresses, and the bucket if the settings name one.
pub async fn examine(addresses: &[String], settings: &Settings, probe: Probe) -> Vec<Finding> {
    // First who they are, then with one another's doors.
    let first = ask_all(addresses, &vec![Vec::new(); addresses.len()]).await;
    let doors: Vec<Option<String>> =
        first.iter().map(|answer| answer.peer_address().map(str::to_owned)).collect();
    let reach: Vec<Vec<String>> = (0..addresses.len())
        .map(|own| {
            let others = doors.iter().enumerate().filter(|(node, _)| *node != own);
            others.filter_map(|(_, door)| door.clone()).collect()
        })
        .collect();
    let mut answers = ask_all(addresses, &reach).await;
    for ((answer, before), door) in answers.iter_mut().zip(first).zip(&doors) {
        // Without knocking it was quicker, and proves more about the clock.
        answer.skew = before.skew.or(answer.skew);
        if let Some(door) = door.clone() {
            let knocked = tokio::task::spawn_blocking(move || knock(&door)).await;
            answer.door = knocked.ok();
        }
    }
    let mut findings = nodes::judge(&answers);
    let found = bucket_findings(&answers, settings, probe).await;
    findings.extend(found.into_iter().map(|finding| finding.of("bucket")));
    findings
}

async fn bucket_findings(answers: &[Answer], settings: &Settings, probe: Probe) -> Vec<Finding> {
    if settings.s3.bucket.is_none() {
        let pair = answers.iter().any(|answer| answer.peer_address().is_some());
        let remedy = "give the nodes' settings: --config FILE, or --s3-bucket NAME and the others";
        let value = "not looked at: no settings for it were given";
        return if pair {
            vec![Finding::bad("settings", Status::Warn, value, remedy)]
        } else {
            Vec::new()
        };
    }
    let stored = answers.iter().filter_map(|answer| {
        let said = answer.said.as_ref().ok()?;
        Some((answer.address.clone(), said["store"].clone()))
    });
    let stored: Vec<(String, Json)> = stored.collect();
    let now = Clock.now();
    let name = format!("{}-{}", now.wall.0, std::process::id());
    bucket::examine(&settings.s3, &name, nodes::drift_ms(answers), &stored, probe).await
}

/// All addresses at one time, in the order given.
async fn ask_all(addresses: &[String], reach: &[Vec<String>]) -> Vec<Answer> {
    let mut asked = JoinSet::new();
    for (index, (address, reach)) in addresses.iter().zip(reach).enumerate() {
        let request = json!({ "command": "doctor", "reach": reach }).to_string();
        let address = address.clone();
        asked.spawn(async move {
            let began = Clock.mono();
            let said = ask(&address, &request, ANSWER_MAX).await;
            let now = Clock.now();
            let took_ms = now.mono.0.saturating_sub(began.0).div_ceil(1000);
            let told = said.as_ref().ok();
            let skew = told.and_then(|said| nodes::skew_of(said, now.wall.0, took_ms));
            (index, Answer { address, said, skew, door: None })
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
