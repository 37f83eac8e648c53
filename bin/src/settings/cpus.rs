//! Lists of CPUs as people write them: `"2-9"`, `"0,2,4"`, or one entry per shard.

use std::fmt;

/// Which CPUs the shards may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuPlan {
    /// One set for all: shard `i` is pinned to its `i`-th CPU.
    Pool(Vec<usize>),
    /// One entry per shard; an entry of several CPUs lets the kernel move the shard among them.
    PerShard(Vec<Vec<usize>>),
}

impl CpuPlan {
    /// How many shards the plan was made for.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        match self {
            Self::Pool(cpus) => cpus.len(),
            Self::PerShard(entries) => entries.len(),
        }
    }

    /// Every CPU named.
    pub fn cpus(&self) -> Vec<usize> {
        match self {
            Self::Pool(cpus) => cpus.clone(),
            Self::PerShard(entries) => entries.concat(),
        }
    }

    /// What shard number `shard` is pinned to.
    #[must_use]
    pub fn shard(&self, shard: usize) -> Option<Vec<usize>> {
        match self {
            Self::Pool(cpus) => cpus.get(shard).map(|cpu| vec![*cpu]),
            Self::PerShard(entries) => entries.get(shard).cloned(),
        }
    }
}

impl fmt::Display for CpuPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(cpus) => f.write_str(&write_list(cpus)),
            Self::PerShard(entries) => {
                let entries: Vec<String> =
                    entries.iter().map(|cpus| format!("\"{}\"", write_list(cpus))).collect();
                write!(f, "[{}]", entries.join(", "))
            }
        }
    }
}

/// Reads `"2-9"`, `"0,2,4"` or a mixture; ascending ranges, no CPU twice. The error says what a
/// list looks like.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_cpu(first)?, parse_cpu(last)?);
        if first > last {
            return Err(format!("the range {part} runs backwards"));
        }
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(format!("CPU {cpu} is named twice"));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// The kernel's own upper bound for a CPU number in an affinity mask (`CPU_SETSIZE`).
const CPU_MAX: usize = 1023;

fn parse_cpu(text: &str) -> Result<usize, String> {
    let cpu = text.trim().parse::<usize>().ok().filter(|cpu| *cpu <= CPU_MAX);
    cpu.ok_or_else(|| "allowed is a list of CPUs like \"2-9\" or \"0,2,4\"".to_owned())
}

/// The shortest way to write a list: runs become ranges.
#[must_use]
pub fn write_list(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let write = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(write).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_people_write_them() {
        assert_eq!(parse_list("2-5"), Ok(vec![2, 3, 4, 5]));
        assert_eq!(parse_list("0,2, 4"), Ok(vec![0, 2, 4]));
        assert_eq!(parse_list("0-1,6"), Ok(vec![0, 1, 6]));
        assert_eq!(parse_list("7"), Ok(vec![7]));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "allowed is"),
            ("a", "allowed is"),
            ("1,,2", "allowed is"),
            ("3-1", "backwards"),
            ("0-2,1", "named twice"),
            ("0-99999999999", "allowed is"),
            ("1024", "allowed is"),
        ] {
            let error = parse_list(text).unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    #[test]
    fn written_lists_read_back() {
        for text in ["0", "0-3", "0-3,8", "1,3,5-7"] {
            assert_eq!(write_list(&parse_list(text).unwrap()), text);
        }
    }

    #[test]
    fn a_pool_gives_one_cpu_to_each_shard_and_a_list_its_entry() {
        let pool = CpuPlan::Pool(vec![4, 6]);
        assert_eq!(pool.shard(1), Some(vec![6]));
        assert_eq!(pool.shard(2), None);
        let list = CpuPlan::PerShard(vec![vec![2, 3], vec![5]]);
        assert_eq!(list.shard(0), Some(vec![2, 3]));
        assert_eq!(list.to_string(), r#"["2-3", "5"]"#);
    }
}
