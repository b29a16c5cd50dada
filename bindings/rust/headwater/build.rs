//! Where the shared library of headwater-sys is, if it links one, for the programs of this crate.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_HEADWATER_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo:libdir={folder}");
    }
}
