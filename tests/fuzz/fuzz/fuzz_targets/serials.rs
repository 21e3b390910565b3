#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agent_forge_fuzz::check("serials", data));
