//! How it is linked: nothing but the names of the recorder.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_BARE").is_some() {
        println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
    }
}
