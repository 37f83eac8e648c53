//! The commands that the documents show are commands of this program: each is parsed as the program
//! would parse it. What `.ci/docs` can run, it runs.

use std::path::Path;

use clap::Parser;

use crate::cli::Cli;

/// The commands in the shell blocks of a document, words split as a shell does, with their lines.
fn commands(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut shell = false;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            shell = !shell && (kind.starts_with("sh") || kind.starts_with("console"));
        } else if shell {
            let line = line.trim_start().trim_start_matches("$ ");
            let line = line
                .strip_prefix("cargo run --release -- ")
                .map_or_else(|| line.to_owned(), |rest| format!("duolog {rest}"));
            if line.starts_with("duolog ") {
                found.push((number, words(&line)));
            }
        }
    }
    found
}

/// The words of the first command of a line.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut open) = (Vec::new(), String::new(), None, false);
    for character in line.chars() {
        match (quote, character) {
            (Some(end), _) if character == end => quote = None,
            (Some(_), _) => word.push(character),
            (None, '\'' | '"') => (quote, open) = (Some(character), true),
            (None, '#') if word.is_empty() && !open => break,
            (None, '|' | '>' | '&' | ';') => break,
            (None, ' ') => {
                if !word.is_empty() || open {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (None, _) => word.push(character),
        }
    }
    if !word.is_empty() || open {
        words.push(word);
    }
    words
}

/// Every document of the project.
fn documents() -> Vec<std::path::PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = vec![root.join("README.md"), root.join("benches/README.md")];
    let docs = std::fs::read_dir(root.join("docs")).expect("the documents are there");
    let docs = docs.map(|entry| entry.expect("a file").path());
    found.extend(docs.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    found
}

#[test]
fn every_command_that_a_document_shows_is_one() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(&path).expect("a document can be read");
        for (line, words) in commands(&text) {
            count += 1;
            if let Err(error) = Cli::try_parse_from(&words)
                && error.use_stderr()
            {
                let error = error.to_string();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let first = error.lines().next().unwrap_or_default().to_owned();
                wrong.push(format!("{name}:{line}: {words:?}: {first}"));
            }
        }
    }
    assert!(count > 30, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn words_are_split_as_a_shell_splits_them() {
    let line = r#"duolog append a --data '{"b": 1}' --type "" # why | not"#;
    assert_eq!(words(line), ["duolog", "append", "a", "--data", r#"{"b": 1}"#, "--type", ""]);
    assert_eq!(words("duolog export > all.ndjson"), ["duolog", "export"]);
    let text =
        "```sh\nduolog a\ncargo run --release -- b c\n```\nduolog d\n```toml\nduolog e\n```\n";
    let found: Vec<_> = commands(text).into_iter().map(|(_, words)| words.join(" ")).collect();
    assert_eq!(found, ["duolog a", "duolog b c"]);
}
