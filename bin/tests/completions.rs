//! Shells complete the program's commands and flags by what it prints for them.

use std::io::{self, Write};
use std::process::{Command, Output};

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

fn duolog(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duolog"));
    command.args(arguments).output().expect("the program runs")
}

fn script(shell: &str) -> String {
    let ran = duolog(&["completions", shell]);
    assert!(ran.status.success(), "{shell}: {ran:?}");
    String::from_utf8(ran.stdout).expect("a script is text")
}

/// What `shell -c program script arguments...` prints; nothing if the shell is not there.
fn in_shell(shell: &str, program: &str, arguments: &[&str]) -> Option<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("script");
    std::fs::write(&file, script(shell)).expect("the script can be written");
    let mut command = Command::new(shell);
    if shell == "bash" {
        command.args(["--norc", "--noprofile"]);
    }
    command.arg("-c").arg(program);
    if shell != "fish" {
        command.arg(shell);
    }
    let ran = command.arg(&file).args(arguments).output();
    match ran {
        Ok(ran) => {
            assert!(ran.status.success(), "{shell}: {ran:?}");
            assert!(ran.stderr.is_empty(), "{shell}: {ran:?}");
            Some(String::from_utf8(ran.stdout).expect("it prints text"))
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "skipped: completions in {shell}: {error}");
            None
        }
    }
}

/// Words typed so far, the last one unfinished, and what bash may make of it.
const CASES: [(&[&str], &[&str]); 5] = [
    (&["rea"], &["read"]),
    (&["node", "rep"], &["replace"]),
    (&["serve", "--shards-c"], &["--shards-count", "--shards-cpus"]),
    (&["read", "--conf"], &["--confirmed"]),
    (&["completions", "z"], &["zsh"]),
];

/// Promised: bash completes commands, inner commands, flags and values.
/// Provoked: its own completion function, loaded from the script, asked as readline does.
/// Broken: a script that does not load, a missing or a wrong word.
#[test]
fn bash_completes_commands_and_flags() {
    let program = r#"
        source "$1"; shift
        complete -p duolog >/dev/null || exit 1
        COMP_WORDS=(duolog "$@"); COMP_CWORD=$#; COMP_LINE="duolog $*"; COMP_POINT=${#COMP_LINE}
        _duolog duolog "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    for (typed, offered) in CASES {
        let Some(found) = in_shell("bash", program, typed) else { return };
        assert_eq!(found.lines().collect::<Vec<_>>(), offered, "{typed:?}");
    }
}

/// The same for fish, which prints a description behind each word.
#[test]
fn fish_completes_commands_and_flags() {
    let program = r#"
        source $argv[1]
        complete -C "duolog $argv[2..-1]"
    "#;
    // Its script knows no values of arguments.
    for (typed, offered) in &CASES[..4] {
        let Some(found) = in_shell("fish", program, typed) else { return };
        let words = found.lines().filter_map(|line| line.split('\t').next());
        assert_eq!(words.collect::<Vec<_>>(), *offered, "{typed:?}");
    }
}

/// Promised: zsh reads its script.
/// Provoked: its own check of the syntax.
/// Broken: a complaint.
#[test]
fn zsh_takes_its_script() {
    let found = in_shell("zsh", r#"zsh -n "$1" && grep -c '^#compdef duolog' "$1""#, &[]);
    assert!(found.is_none_or(|found| found.trim() == "1"));
}

/// Promised: every shell's script knows every command.
/// Provoked: all shells; the commands are those of the program's own help.
/// Broken: a script without one of them.
#[test]
fn every_script_knows_every_command() {
    let help = String::from_utf8(duolog(&["--help"]).stdout).expect("help is text");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    // What a description needs more than one line for is indented further.
    let commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"serve") && commands.len() > 15, "{help}");
    for shell in SHELLS {
        let script = script(shell);
        for command in &commands {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
}

/// Promised: a shell that is not known is refused with those that are.
/// Provoked: `completions tcsh`.
/// Broken: another exit code than 2, or a text without the known ones.
#[test]
fn an_unknown_shell_is_refused_with_the_known_ones() {
    let ran = duolog(&["completions", "tcsh"]);
    assert_eq!(ran.status.code(), Some(2));
    let told = String::from_utf8_lossy(&ran.stderr);
    for shell in SHELLS {
        assert!(told.contains(shell), "{told}");
    }
}
