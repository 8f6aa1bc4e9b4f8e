//! That cargo's tests build the extension module: those of Python run on this file, and none is linked to it here.

#[test]
fn the_extension_module_is_built_beside_the_tests() {
    let module = std::env::current_exe().expect("a path").with_file_name("lib_uringload.so");
    let bytes = std::fs::read(&module).unwrap_or_else(|error| panic!("{}: {error}", module.display()));
    let entry = b"PyInit__uringload";
    assert!(bytes.windows(entry.len()).any(|window| window == entry), "{} has no entry", module.display());
}
