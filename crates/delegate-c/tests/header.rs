//! The committed header is that of the sources.

use std::path::Path;

use linewise_edge::header;

const HEADER: &str = "include/linewise_delegate.h";

#[test]
fn every_function_and_every_code_of_the_sources_is_in_the_header() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    header::has_all(folder, HEADER, "LINEWISE_DELEGATE_H");
}

#[test]
fn the_header_is_what_cbindgen_makes_of_the_sources() {
    header::is_made(Path::new(env!("CARGO_MANIFEST_DIR")), HEADER);
}
