#![no_main]
//! See `duolog_net::wire`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| duolog_net::wire::fuzz_frame(bytes));
