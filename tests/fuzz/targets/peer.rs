#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| duolog_net::peer::fuzz_peer(bytes));
