#![no_main]
//! See `duolog_engine::fuzz`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| duolog_engine::fuzz::fuzz_chain(bytes));
