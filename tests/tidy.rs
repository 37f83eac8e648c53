//! The house rules as tests. Each rule is a function from sources to complaints; the first test of
//! each pair holds it against the repository, the second shows that it can fail.
//!
//! How a promise is cited: `docs/INVARIANTS.md` lists ids (a letter and a number, like `D1`) in the
//! first column of its table. A comment or a string that contains such an id as a word of its own
//! cites it. Letters that are used there belong to promises everywhere; `S` is never used, because
//! of the store's name. Each id must be cited below the head of a file outside of tests, at the
//! assertion or check that keeps it, and in a test; and every cited id must be listed.

#[path = "tidy/source.rs"]
mod source;

use source::{Source, root, sources, top_folders, words};

/// Longest file, lines.
const FILE_LINES_MAX: usize = 500;
/// Longest function, lines.
const FUNCTION_LINES_MAX: usize = 70;
/// Longest line, characters.
const LINE_WIDTH_MAX: usize = 100;
/// Files that were longer when the rule began, with their length: they may only shrink.
const LONG_FILES: &[(&str, usize)] = &[("engine/src/index/tail.rs", 566)];
/// Functions that were longer when the rule began: file, name, length. They may only shrink.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];
const FOLDERS: [&str; 9] =
    ["benches", "bin", "docs", "engine", "lease", "net", "packaging", "s3client", "tests"];
/// Which of our crates each crate may depend on. `tests` may use all.
const DIRECTION: &[(&str, &[&str])] = &[
    ("lease", &[]),
    ("s3client", &[]),
    ("s3client/dev", &[]),
    ("engine", &["lease"]),
    ("net", &["engine", "lease"]),
    ("benches", &["engine", "net", "lease"]),
    ("bin", &["net", "engine", "lease", "s3client", "s3dev", "benches"]),
];

fn hold(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn complain(rule: fn(&Source) -> Vec<String>) {
    hold(sources().iter().flat_map(rule).collect());
}

fn found(rule: fn(&Source) -> Vec<String>, path: &str, text: &str) -> usize {
    rule(&Source::new(path, text)).len()
}

#[test]
fn top_level_folders_are_exactly_the_nine() {
    assert_eq!(top_folders(), FOLDERS);
}

fn long_files(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let listed = LONG_FILES.iter().find(|(path, _)| *path == source.path);
    let max = listed.map_or(FILE_LINES_MAX, |(_, lines)| *lines);
    if !source.is_rust() || lines <= max {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines, at most {max}: split it by a noun", source.path)]
}

#[test]
fn files_stay_below_500_lines() {
    complain(long_files);
}

#[test]
fn a_long_file_is_found() {
    assert_eq!(found(long_files, "a/src/x.rs", &"\n".repeat(FILE_LINES_MAX)), 0);
    assert_eq!(found(long_files, "a/src/x.rs", &"\n".repeat(FILE_LINES_MAX + 1)), 1);
}

fn wide_lines(source: &Source) -> Vec<String> {
    let lines = source.text.lines().enumerate().filter(|_| source.is_rust());
    let wide = lines.filter(|(_, line)| line.chars().count() > LINE_WIDTH_MAX);
    wide.map(|(index, _)| format!("{}:{}: over 100 columns", source.path, index + 1)).collect()
}

#[test]
fn lines_stay_within_100_columns() {
    complain(wide_lines);
}

#[test]
fn a_wide_line_is_found() {
    assert_eq!(found(wide_lines, "a.rs", &"ä".repeat(100)), 0);
    assert_eq!(found(wide_lines, "a.rs", &"ä".repeat(101)), 1);
}

/// Name and number of lines of each function, by matching braces.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let word_before = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let after = &code[at + 3..];
        let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if word_before || name.is_empty() {
            continue;
        }
        let (mut depth, mut open) = (0_i64, false);
        for (offset, char) in after.char_indices() {
            match char {
                ';' if !open && depth == 0 => break,
                '[' | '(' if !open => depth += 1,
                ']' | ')' if !open => depth -= 1,
                '{' => (depth, open) = (if open { depth + 1 } else { 1 }, true),
                '}' => depth -= 1,
                _ => {}
            }
            if open && depth == 0 {
                functions.push((name, after[..offset].matches('\n').count() + 1));
                break;
            }
        }
    }
    functions
}

fn long_functions(source: &Source) -> Vec<String> {
    let long = functions(&source.code).into_iter().filter(|(name, lines)| {
        let listed =
            LONG_FUNCTIONS.iter().find(|(path, known, _)| *path == source.path && known == name);
        *lines > listed.map_or(FUNCTION_LINES_MAX, |(_, _, lines)| *lines)
    });
    long.map(|(name, lines)| format!("{}: fn {name} has {lines} lines", source.path)).collect()
}

#[test]
fn functions_stay_below_70_lines() {
    complain(long_functions);
}

#[test]
fn a_long_function_is_found() {
    let text = |lines: usize| format!("fn f(a: [u8; 2]) {{\n{}}}\nfn g();\n", "a;\n".repeat(lines));
    assert_eq!(found(long_functions, "a.rs", &text(68)), 0);
    assert_eq!(found(long_functions, "a.rs", &text(69)), 1);
}

fn empty_names(source: &Source) -> Vec<String> {
    const BANNED: [&str; 9] =
        ["util", "utils", "common", "helper", "helpers", "manager", "misc", "part1", "part2"];
    let parts = source.path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let mut named: Vec<&str> = parts.collect();
    let code: Vec<&str> = words(&source.code).map(|(_, word)| word).collect();
    named.extend(code.windows(2).filter(|pair| pair[0] == "mod").map(|pair| pair[1]));
    let banned = named.into_iter().filter(|name| BANNED.contains(name));
    banned.map(|name| format!("{}: {name} is no noun of this design", source.path)).collect()
}

#[test]
fn modules_are_named_by_nouns_of_the_design() {
    complain(empty_names);
}

#[test]
fn an_empty_name_is_found() {
    assert_eq!(found(empty_names, "net/src/utils.rs", ""), 1);
    assert_eq!(found(empty_names, "net/src/helpers/x.rs", ""), 1);
    assert_eq!(found(empty_names, "net/src/x.rs", "mod common { }"), 1);
    assert_eq!(found(empty_names, "net/src/x.rs", "// mod common\nlet common = 1;"), 0);
}

fn runtime_names(source: &Source) -> Vec<String> {
    if source.is_under("uring") {
        return Vec::new();
    }
    let named = words(&source.code).filter(|(_, word)| matches!(*word, "glommio" | "io_uring"));
    let (path, place) = (&source.path, "outside a folder called uring");
    named.map(|(line, word)| format!("{path}:{line}: {word} is named {place}")).collect()
}

#[test]
fn the_runtime_is_named_only_under_uring() {
    complain(runtime_names);
}

#[test]
fn a_stray_use_of_the_runtime_is_found() {
    let text = "use glommio::Task; // glommio\nlet a = \"io_uring\";\n";
    assert_eq!(found(runtime_names, "engine/src/x.rs", text), 1);
    assert_eq!(found(runtime_names, "engine/src/disk/uring/x.rs", text), 0);
    assert_eq!(found(runtime_names, "engine/src/uring.rs", text), 1);
}

fn unsafe_code(source: &Source) -> Vec<String> {
    // A test that counts allocations implements a trait whose methods are unsafe.
    let counts_allocations =
        source.is_under("tests") && words(&source.code).any(|(_, word)| word == "GlobalAlloc");
    if source.is_under("uring") || counts_allocations {
        return Vec::new();
    }
    let uses = words(&source.code).filter(|(_, word)| *word == "unsafe");
    uses.map(|(line, _)| format!("{}:{line}: unsafe outside uring", source.path)).collect()
}

#[test]
fn unsafe_code_lives_only_under_uring() {
    complain(unsafe_code);
}

#[test]
fn stray_unsafe_code_is_found() {
    let text = "// unsafe\nlet r = r#\"unsafe\"#; let c = '\"'; unsafe { f::<'_>('a') }";
    assert_eq!(found(unsafe_code, "net/src/x.rs", text), 1);
    assert_eq!(found(unsafe_code, "net/src/uring/x.rs", text), 0);
    let counter = "unsafe impl GlobalAlloc for C {}";
    assert_eq!(found(unsafe_code, "engine/tests/x.rs", counter), 0);
    assert_eq!(found(unsafe_code, "engine/src/x.rs", counter), 1);
}

/// Marks of unfinished work, and absolute paths that exist on one machine only.
fn leftovers(source: &Source) -> Vec<String> {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let paths = [concat!("/", "root/"), concat!("/", "home/"), concat!("/", "work/")];
    let mut complaints = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let place = format!("{}:{}", source.path, index + 1);
        if marks.iter().any(|mark| words(line).any(|(_, word)| word == *mark)) {
            complaints.push(format!("{place}: unfinished work belongs into an issue"));
        }
        if paths.iter().any(|path| starts_a_path(line, path)) {
            complaints.push(format!("{place}: a path of one machine"));
        }
    }
    complaints
}

/// Whether `path` stands in `line` as the beginning of a path, not in the middle of one.
fn starts_a_path(line: &str, path: &str) -> bool {
    let middle = |c: char| c.is_alphanumeric() || "._-/{}*:".contains(c);
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(middle))
}

#[test]
fn nothing_unfinished_and_no_path_of_one_machine() {
    complain(leftovers);
}

#[test]
fn a_leftover_is_found() {
    assert_eq!(found(leftovers, "docs/x.md", concat!("a TO", "DO: b")), 1);
    assert_eq!(found(leftovers, "docs/x.md", concat!("see /", "home/me/x")), 1);
    assert_eq!(found(leftovers, "docs/x.md", "crates/root/src and docs/work/x"), 0);
}

/// Lines of the dependency sections of a Cargo.toml: name, and whether a comment explains it.
/// A comment covers the lines below it up to the next empty one; our own crates need none.
fn dependencies(text: &str) -> Vec<(String, bool)> {
    let (mut inside, mut explained, mut found) = (false, false, Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            (inside, explained) = (line.trim_end_matches(']').ends_with("dependencies"), false);
        } else if line.starts_with('#') || line.is_empty() {
            explained = line.starts_with('#');
        } else if inside && let Some(end) = line.find(['.', ' ', '=']) {
            found.push((line[..end].to_owned(), explained));
        }
    }
    found
}

fn unexplained_dependencies(source: &Source) -> Vec<String> {
    if !source.path.ends_with("Cargo.toml") {
        return Vec::new();
    }
    let silent = dependencies(&source.text)
        .into_iter()
        .filter(|(name, explained)| !explained && !name.starts_with("duolog-"));
    silent.map(|(name, _)| format!("{}: {name} has no line saying why", source.path)).collect()
}

#[test]
fn every_dependency_has_a_line_saying_why() {
    complain(unexplained_dependencies);
}

#[test]
fn a_silent_dependency_is_found() {
    let text =
        "[dependencies]\nduolog-net = 1\nclap = 1\n# For x.\ntoml = 1\nserde = 1\n\nuuid = 1";
    assert_eq!(found(unexplained_dependencies, "bin/Cargo.toml", text), 2);
}

fn wrong_direction(source: &Source) -> Vec<String> {
    let folder = source.path.strip_suffix("/Cargo.toml").unwrap_or("");
    let Some((_, allowed)) = DIRECTION.iter().find(|(name, _)| *name == folder) else {
        return Vec::new();
    };
    let ours = dependencies(&source.text);
    let ours = ours.iter().filter_map(|(name, _)| name.strip_prefix("duolog-"));
    let wrong = ours.filter(|name| !allowed.contains(name));
    wrong.map(|name| format!("{folder} must not know {name}")).collect()
}

#[test]
fn dependencies_run_one_way() {
    complain(wrong_direction);
    let seen = sources().iter().filter(|source| source.path.ends_with("/Cargo.toml")).count();
    assert!(seen >= DIRECTION.len(), "only {seen} crates were looked at");
}

#[test]
fn a_dependency_against_the_direction_is_found() {
    let text = "[dependencies]\nduolog-net.workspace = true\n";
    assert_eq!(found(wrong_direction, "engine/Cargo.toml", text), 1);
    assert_eq!(found(wrong_direction, "bin/Cargo.toml", text), 0);
}

/// Ids in the first column of the table of promises.
fn promises(table: &str) -> Vec<String> {
    let cell = |line: &str| Some(line.strip_prefix("| ")?.split(" |").next()?.trim().to_owned());
    table.lines().filter_map(cell).filter(|id| is_id(id, None)).collect()
}

/// A letter and one or two digits; with `families`, only those letters.
fn is_id(word: &str, families: Option<&[char]>) -> bool {
    let mut chars = word.chars();
    let letter = chars.next().filter(char::is_ascii_uppercase);
    let digits = chars.as_str();
    letter.is_some_and(|letter| families.is_none_or(|known| known.contains(&letter)))
        && (1..=2).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn uncited(table: &str, sources: &[Source]) -> Vec<String> {
    let promises = promises(table);
    let families: Vec<char> = promises.iter().filter_map(|id| id.chars().next()).collect();
    let (mut kept, mut tested, mut complaints) = (Vec::new(), Vec::new(), Vec::new());
    if families.contains(&'S') {
        complaints.push("the letter S is taken by the store's name".to_owned());
    }
    for source in sources.iter().filter(|source| !source.path.starts_with("tests/tidy")) {
        let tests_from = source.tests_from();
        let cited = words(&source.prose).filter(|(_, word)| is_id(word, Some(&families)));
        for (line, id) in cited {
            if !promises.iter().any(|promise| promise == id) {
                complaints.push(format!("{}:{line}: {id} is no promise", source.path));
            }
            let place = if line >= tests_from { &mut tested } else { &mut kept };
            place.push(id.to_owned());
        }
    }
    for id in &promises {
        if !kept.contains(id) {
            complaints.push(format!("{id} is cited by no check outside of tests"));
        }
        if !tested.contains(id) {
            complaints.push(format!("{id} is cited by no test"));
        }
    }
    complaints
}

#[test]
fn every_promise_is_kept_and_tested_somewhere() {
    let table = std::fs::read_to_string(root().join("docs/INVARIANTS.md"));
    hold(uncited(&table.unwrap_or_default(), &sources()));
}

#[test]
fn an_uncited_or_unknown_promise_is_found() {
    let table = "| id | promise |\n|---|---|\n| D1 | a |\n| D2 | b |\n";
    let sources = [
        Source::new("engine/src/x.rs", "//! Keeps D2.\nassert!(a, \"D1: S3 and D9\");\n"),
        Source::new("tests/y.rs", "/// D1 and D2, not E5.\nfn f() {}\n"),
    ];
    assert_eq!(
        uncited(table, &sources),
        ["engine/src/x.rs:2: D9 is no promise", "D2 is cited by no check outside of tests"]
    );
    let untested =
        [Source::new("engine/src/x.rs", "// D1, D2\n#[cfg(test)]\nmod t { /* D1 */ }\n")];
    assert_eq!(uncited(table, &untested), ["D2 is cited by no test"]);
}
