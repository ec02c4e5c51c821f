//! How the recorder is linked: nothing but the C library's names, nothing of a compiler's start files.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Only the recorder as it is used does without the standard library.
    if std::env::var_os("CARGO_FEATURE_BARE").is_none() {
        return;
    }
    for argument in [
        "-nostartfiles",
        // Its own beginning comes before that of all other libraries.
        "-Wl,-z,initfirst",
        "-Wl,-z,now",
        // A panic would be an undefined symbol (`crate::panic`).
        "-Wl,-z,defs",
        "-Wl,--as-needed",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
