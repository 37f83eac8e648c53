//! Filters of system calls as systemd and container run-times put them on a process, made from
//! their own descriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde_json::Value as Json;

/// Where the kernel's headers have the numbers of this processor.
const HEADER: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";

/// Numbers of system calls by name.
#[derive(Clone, Debug)]
pub struct Numbers(BTreeMap<String, i64>);

impl Numbers {
    /// From the kernel's headers; nothing where they are not installed.
    pub fn of_this_machine() -> Option<Self> {
        if std::env::consts::ARCH != "x86_64" {
            return None;
        }
        let text = fs::read_to_string(HEADER).ok()?;
        let numbers = text.lines().filter_map(|line| {
            let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
            Some((name.to_owned(), number.trim().parse().ok()?))
        });
        Some(Self(numbers.collect()))
    }

    /// Of those calls that this processor has.
    fn of<'a>(&'a self, name: &str) -> Option<&'a i64> {
        self.0.get(name)
    }
}

/// What a process may call.
#[derive(Debug)]
pub struct Profile {
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: Errno,
}

impl Profile {
    /// These calls, whatever their arguments.
    pub fn allowing(names: &BTreeSet<String>, numbers: &Numbers, otherwise: Errno) -> Self {
        let rules = names.iter().filter_map(|name| Some((*numbers.of(name)?, Vec::new())));
        Self { rules: rules.collect(), otherwise }
    }

    /// What a profile for containers allows to a process without capabilities.
    pub fn of_container(profile: &Json, numbers: &Numbers) -> Self {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        let mut unconditional = BTreeSet::new();
        for rule in profile["syscalls"].as_array().expect("a list") {
            let names = rule["names"].as_array().expect("a list");
            let names = names.iter().filter_map(|name| numbers.of(name.as_str()?));
            if !holds(rule) {
                continue;
            }
            for number in names {
                let conditions = conditions(rule);
                let known = rules.entry(*number).or_default();
                match conditions.is_empty() {
                    true => drop(unconditional.insert(*number)),
                    false => known.push(SeccompRule::new(conditions).expect("it has conditions")),
                }
            }
        }
        for number in unconditional {
            rules.insert(number, Vec::new());
        }
        let errno = profile["defaultErrnoRet"].as_i64().unwrap_or(1);
        Self { rules, otherwise: Errno::from_raw_os_error(errno as i32) }
    }

    /// Puts the calling thread under it, and everything that it starts.
    pub fn apply(self) -> Result<(), String> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| e.to_string())?;
        let otherwise = SeccompAction::Errno(self.otherwise.raw_os_error().unsigned_abs());
        let filter = SeccompFilter::new(self.rules, otherwise, SeccompAction::Allow, arch);
        let program: Result<BpfProgram, _> = filter.and_then(TryInto::try_into);
        let program = program.map_err(|error| error.to_string())?;
        seccompiler::apply_filter(&program).map_err(|error| error.to_string())
    }
}

/// Whether a rule allows something to this processor and a process without capabilities.
fn holds(rule: &Json) -> bool {
    let list = |side: &str, what: &str| {
        let words = rule[side][what].as_array().cloned().unwrap_or_default();
        words.into_iter().filter_map(|word| Some(word.as_str()?.to_owned())).collect::<Vec<_>>()
    };
    let here = |arches: &[String]| arches.iter().any(|arch| arch == "amd64");
    rule["action"] == "SCMP_ACT_ALLOW"
        && list("includes", "caps").is_empty()
        && (list("includes", "arches").is_empty() || here(&list("includes", "arches")))
        && !here(&list("excludes", "arches"))
}

fn conditions(rule: &Json) -> Vec<SeccompCondition> {
    let arguments = rule["args"].as_array().cloned().unwrap_or_default();
    let condition = |argument: &Json| {
        let number = |name: &str| argument[name].as_u64().unwrap_or(0);
        let (operator, value) = match argument["op"].as_str() {
            Some("SCMP_CMP_EQ") => (SeccompCmpOp::Eq, number("value")),
            Some("SCMP_CMP_NE") => (SeccompCmpOp::Ne, number("value")),
            Some("SCMP_CMP_MASKED_EQ") => {
                (SeccompCmpOp::MaskedEq(number("value")), number("valueTwo"))
            }
            other => panic!("an operator that is not known: {other:?}"),
        };
        let index = u8::try_from(number("index")).expect("there are six arguments");
        SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, value)
            .expect("a condition of six arguments")
    };
    arguments.iter().map(condition).collect()
}
