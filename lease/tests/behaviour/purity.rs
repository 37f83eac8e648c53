//! The machine cannot read a clock, a file or a random source: its crate has no standard library.

use std::fs;
use std::path::Path;

fn sources(folder: &Path, texts: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            texts.push((path.display().to_string(), text));
        }
    }
}

#[test]
fn the_crate_has_no_standard_library() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut texts = Vec::new();
    sources(&folder, &mut texts);
    assert!(texts.len() > 15, "all of {}", folder.display());
    let root = fs::read_to_string(folder.join("lib.rs")).expect("there");
    assert!(root.contains("#![cfg_attr(not(test), no_std)]"));
    for (path, text) in texts {
        assert!(!text.contains("extern crate std") && !text.contains("std::"), "{path}");
    }
}
