//! Leaves debug information out of the driver: each test copies the file, which is a hundred times smaller without it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-debug");
    println!("cargo:rerun-if-changed=build.rs");
}
