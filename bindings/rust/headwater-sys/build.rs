//! Links the C library: that of HEADWATER_LIB_DIR, with the feature `system` that of pkg-config,
//! else the sources beside this file, compiled with $CC as meson.build does.
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// A test compares them with meson.build's. NDEBUG and -O3 are its buildtype `release`.
const FLAGS: [&str; 7] = [
    "-std=c17",
    "-O3",
    "-DNDEBUG",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-fPIC",
    "-pthread",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=HEADWATER_LIB_DIR");
    if let Some(folder) = env::var_os("HEADWATER_LIB_DIR") {
        link_shared(&folder.to_string_lossy());
    } else if env::var_os("CARGO_FEATURE_SYSTEM").is_some() {
        println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
        let found = output_of(Command::new("pkg-config").args(["--variable=libdir", "headwater"]));
        link_shared(found.trim());
    } else {
        link_compiled();
    }
}

/// DEP_HEADWATER_LIBDIR has the folder, for dependents that want it among their rpaths.
fn link_shared(folder: &str) {
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=dylib=headwater");
    println!("cargo:libdir={folder}");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}

fn link_compiled() {
    println!("cargo:rerun-if-env-changed=CC");
    println!("cargo:rerun-if-env-changed=HEADWATER_CFLAGS");
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut sources = Vec::new();
    list_files(&here.join("c-src"), &mut sources);
    list_files(&here.join("c-include"), &mut Vec::new());
    sources.retain(|source| source.extension() == Some(OsStr::new("c")));
    sources.sort();
    let objects: Vec<PathBuf> = (0..sources.len()).map(|i| out.join(format!("{i}.o"))).collect();
    let next = Mutex::new(sources.iter().zip(&objects));
    let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1);
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let claimed = next.lock().expect("no compiler panics").next();
                    let Some((source, object)) = claimed else { break };
                    compile(&here, source, object);
                }
            });
        }
    });
    let archive = out.join("libheadwater.a");
    let _ = std::fs::remove_file(&archive); // ar would add to it
    output_of(Command::new("ar").arg("crs").arg(&archive).args(&objects));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=headwater");
    println!("cargo:rustc-link-lib=m");
}

fn compile(here: &Path, source: &Path, object: &Path) {
    let given = env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut words = given.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words).args(FLAGS);
    // More flags, of a sanitizer for instance.
    command.args(env::var("HEADWATER_CFLAGS").unwrap_or_default().split_whitespace());
    command.arg("-I").arg(here.join("c-include")).arg("-I").arg(here.join("c-src"));
    output_of(command.arg("-c").arg(source).arg("-o").arg(object));
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            list_files(&path, files);
        } else {
            println!("cargo:rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
}

fn output_of(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?} failed:\n{said}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}
