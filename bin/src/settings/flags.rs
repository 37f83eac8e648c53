//! The command line's layer: one flag per key, made from the table.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{StringValueParser, ValueParser};
use clap::{Arg, ArgMatches, Command, ValueHint};

use crate::settings::key::{ENV_PREFIX, Fallback, KEYS, Key, Kind, write_bytes};
use crate::settings::{ENV_CONFIG, Surroundings};

const CONFIG_ID: &str = "config";

/// Settings given as flags.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// Index in [`KEYS`] and text.
    pub given: Vec<(usize, String)>,
}

impl clap::Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG_ID)
            .long(CONFIG_ID)
            .value_name("FILE")
            .value_parser(ValueParser::path_buf())
            .help(format!("Configuration file (TOML) [env: {ENV_CONFIG}]"))
            .help_heading("Settings (flag > environment > file > default)");
        KEYS.iter().fold(command.arg(config), |command, key| command.arg(argument(key)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one::<PathBuf>(CONFIG_ID).cloned();
        let given = KEYS.iter().enumerate();
        let given = given.filter_map(|(index, key)| {
            Some(matches.get_many::<String>(key.name)?.map(move |text| (index, text.clone())))
        });
        // More than one only where a command takes several; the last one is the setting's.
        self.given = given.flatten().collect();
        Ok(())
    }
}

fn argument(key: &'static Key) -> Arg {
    let default = match key.fallback {
        Fallback::Number(number) if matches!(key.kind, Kind::Bytes { .. }) => write_bytes(number),
        Fallback::Number(number) => number.to_string(),
        Fallback::Text(text) => text.to_owned(),
        Fallback::Switch(switch) => switch.to_string(),
        Fallback::Unset { means, .. } => means.to_owned(),
    };
    let help = format!("{} [default: {default}] [env: {}]", key.doc, key.env());
    let argument = Arg::new(key.name)
        .long(key.flag())
        .value_parser(ValueParser::new(StringValueParser::new()))
        .value_name(value_name(key))
        .value_hint(if key.kind == Kind::Path { ValueHint::AnyPath } else { ValueHint::Unknown })
        .help(help)
        .help_heading("Settings (flag > environment > file > default)");
    if key.kind == Kind::Switch {
        argument.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        // A negative number is a wrong value of this setting, not an unknown flag.
        argument.allow_negative_numbers(true)
    }
}

const fn value_name(key: &Key) -> &'static str {
    match key.kind {
        Kind::Switch => "true|false",
        Kind::Path => "DIR",
        Kind::Address => "ADDRESS:PORT",
        Kind::AddressOrOff => "ADDRESS:PORT|off",
        Kind::Number { .. } => "N",
        Kind::Bytes { .. } => "BYTES",
        Kind::Text { .. } | Kind::Secret => "TEXT",
        Kind::Choice(_) => "WORD",
        Kind::Cpus => "CPUS",
    }
}

impl Surroundings {
    /// What this process was started with.
    #[must_use]
    pub fn of_this_process() -> Self {
        let text = |value: OsString| value.into_string().ok();
        let mut env: Vec<_> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, text(value))))
            .filter(|(name, _)| name.starts_with(ENV_PREFIX))
            .collect();
        env.sort();
        Self { env, affinity: crate::probe::affinity::cpus() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn parse(arguments: &[&str]) -> Result<SettingFlags, clap::Error> {
        let command = SettingFlags::augment_args(Command::new("test"));
        let matches = command.try_get_matches_from([&["test"], arguments].concat())?;
        SettingFlags::from_arg_matches(&matches)
    }

    fn given(arguments: &[&str]) -> Vec<(&'static str, String)> {
        let flags = parse(arguments).unwrap();
        flags.given.into_iter().map(|(index, text)| (KEYS[index].name, text)).collect()
    }

    #[test]
    fn every_key_is_a_flag_named_like_it() {
        let arguments = ["--standalone", "--data-dir", "d", "--shards-count=-1"];
        let expected = [("data_dir", "d"), ("standalone", "true"), ("shards.count", "-1")];
        assert_eq!(given(&arguments), expected.map(|(key, text)| (key, text.to_owned())));
        assert_eq!(given(&["--standalone=false"]), [("standalone", "false".to_owned())]);
    }

    #[test]
    fn a_misspelt_flag_is_refused_with_the_right_one() {
        let error = parse(&["--shard-count", "3"]).unwrap_err().to_string();
        assert!(error.contains("--shards-count"), "{error}");
    }
}
