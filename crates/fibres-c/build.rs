//! Names the shared library as it is installed, so that programs find it by its version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblinewise_fibres.so.0");
}
