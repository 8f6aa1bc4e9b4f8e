//! The shared library's name for the loader: `ldd` and packages tell by it which ABI a program was linked against.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liburingload.so.0");
}
