//! The text of the repository as the house rules see it: files, and of Rust files the code without
//! its comments and strings, and the comments and strings without the code.

use std::fs;
use std::path::{Path, PathBuf};

/// One text file.
pub struct Source {
    /// Path from the root, with `/`.
    pub path: String,
    /// As it is.
    pub text: String,
    /// Rust only: comments, strings and characters replaced by spaces.
    pub code: String,
    /// Rust only: comments and strings; everything else replaced by spaces. The head of a file
    /// (`//!`) is left out: it announces, it does not keep.
    pub prose: String,
}

impl Source {
    /// Takes a file apart.
    pub fn new(path: &str, text: &str) -> Self {
        let (code, prose) =
            if path.ends_with(".rs") { split(text) } else { (String::new(), String::new()) };
        Self { path: path.to_owned(), text: text.to_owned(), code, prose }
    }

    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether one of its folders is called `name`.
    pub fn is_under(&self, name: &str) -> bool {
        let folders = self.path.rsplit_once('/').map_or("", |(folders, _)| folders);
        folders.split('/').any(|folder| folder == name)
    }

    /// Number of the first line (1-based) that belongs to tests; beyond the end if none does.
    pub fn tests_from(&self) -> usize {
        if self.path.starts_with("tests/")
            || self.is_under("tests")
            || self.path.ends_with("tests.rs")
        {
            return 1;
        }
        let is_start = |line: &str| line.trim() == "#[cfg(test)]";
        self.code.lines().position(is_start).map_or(usize::MAX, |index| index + 1)
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of it").to_owned()
}

/// Names in the root that git ignores.
fn ignored() -> Vec<String> {
    let text = fs::read_to_string(root().join(".gitignore")).expect(".gitignore is there");
    text.lines().filter_map(|line| line.strip_prefix('/')).map(str::to_owned).collect()
}

/// Folders at the top, without hidden and ignored ones, sorted.
pub fn top_folders() -> Vec<String> {
    let ignored = ignored();
    let mut names: Vec<String> = fs::read_dir(root())
        .expect("the root is readable")
        .filter_map(|entry| entry.ok().filter(|entry| entry.path().is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.') && !ignored.contains(name))
        .collect();
    names.sort();
    names
}

/// Every text file of the repository.
pub fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    for folder in top_folders() {
        walk(&root().join(folder), &mut files);
    }
    for name in [".ci/run", "Cargo.toml", "README.md", "clippy.toml", "rustfmt.toml"] {
        files.push(root().join(name));
    }
    files.sort();
    let read = |file: &PathBuf| {
        // What is not UTF-8 (golden files, seeds) has no words to look at.
        let text = fs::read_to_string(file).ok()?;
        let path = file.strip_prefix(root()).ok()?.to_str()?.replace('\\', "/");
        Some(Source::new(&path, &text))
    };
    files.iter().filter_map(read).collect()
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("folders are readable").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            walk(&path, files);
        } else {
            files.push(path);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Head,
    Prose,
}

/// Splits Rust text into code and prose of the same shape: each character goes to one of them, a
/// space takes its place in the other, line feeds go to both.
fn split(text: &str) -> (String, String) {
    let mut code = String::with_capacity(text.len());
    let mut prose = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (kind, length) = token(rest, code.ends_with(|c: char| c.is_alphanumeric() || c == '_'));
        let (piece, after) = rest.split_at(length);
        for char in piece.chars() {
            let blank = if char == '\n' { '\n' } else { ' ' };
            code.push(if kind == Kind::Code { char } else { blank });
            prose.push(if kind == Kind::Prose { char } else { blank });
        }
        rest = after;
    }
    (code, prose)
}

/// Kind and length of what `text` starts with. `in_word`: the character before belongs to a name.
fn token(text: &str, in_word: bool) -> (Kind, usize) {
    let first = text.chars().next().map_or(1, char::len_utf8);
    if text.starts_with("//!") {
        return (Kind::Head, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("//") {
        return (Kind::Prose, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Prose, block_comment(text));
    }
    if text.starts_with('"') {
        return (Kind::Prose, quoted(text, '"'));
    }
    if !in_word && text.starts_with(['r', 'b']) {
        let prefix = text.len() - text.trim_start_matches(['r', 'b']).len();
        let after = &text[prefix..];
        let hashes = after.len() - after.trim_start_matches('#').len();
        if prefix <= 2 && text[..prefix].contains('r') && after[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = prefix + hashes + 1;
            let length = text[body..].find(&end).map_or(text.len(), |at| body + at + end.len());
            return (Kind::Prose, length);
        }
    }
    if let Some(after) = text.strip_prefix('\'') {
        let mut chars = after.chars();
        let (one, two) = (chars.next(), chars.next());
        // 'a' is a character, 'a a lifetime.
        if one == Some('\\') || two == Some('\'') {
            return (Kind::Prose, quoted(text, '\''));
        }
    }
    (Kind::Code, first)
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + char.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let here = &text[at..];
        if here.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The names and keywords of `code`, with their line numbers.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(index, line)| {
        let parts = line.split(|char: char| !char.is_alphanumeric() && char != '_');
        parts.filter(|word| !word.is_empty()).map(move |word| (index + 1, word))
    })
}
