//! Every size and offset of bindings.rs is the C compiler's.
use std::env;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use headwater_sys::layout;

#[test]
fn sizes_and_offsets_are_those_of_c() {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut c = String::from(
        "#include <headwater.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for (name, member, _) in layout() {
        let kind =
            if name.starts_with("Arrow") { format!("struct {name}") } else { (*name).into() };
        let place = match *member {
            "" => format!("sizeof({kind})"),
            member => format!("offsetof({kind}, {})", member.trim_end_matches('_')),
        };
        writeln!(c, "printf(\"%zu\\n\", {place});").expect("a String can be written");
    }
    c.push_str("return 0;\n}\n");
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, c).expect("the test's folder can be written");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler.split_whitespace().next().expect("a compiler"));
    command.arg("-I").arg(here.join("c-include")).arg(&source).arg("-o").arg(&program);
    assert!(command.status().expect("a C compiler is here").success());
    let said = Command::new(program).output().expect("it runs").stdout;
    let said = String::from_utf8(said).expect("digits");
    let of_c: Vec<usize> = said.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(of_c.len(), layout().len());
    assert!(of_c.len() > 250, "{} places", of_c.len());
    for ((name, member, here), there) in layout().iter().zip(of_c) {
        assert_eq!(*here, there, "{name}.{member}");
    }
}

#[test]
fn flags_are_those_of_meson() {
    let build = include_str!("../build.rs");
    let meson = include_str!("../../../../headwater/meson.build");
    for (flag, of_meson) in [
        ("-std=c17", "'c_std=c17'"),
        ("-O3", "'buildtype=release'"),
        ("-DNDEBUG", "'b_ndebug=if-release'"),
        ("-ffp-contract=off", "exact = cc.get_supported_arguments('-ffp-contract=off')"),
        ("-fvisibility=hidden", "gnu_symbol_visibility: 'hidden'"),
        ("-fPIC", "pic: true"),
        ("-pthread", "dependency('threads')"),
    ] {
        assert!(build.contains(&format!("\"{flag}\"")), "build.rs has no {flag}");
        assert!(meson.contains(of_meson), "meson.build has no {of_meson}");
    }
    assert_eq!(meson.matches("c_args: warnings + exact").count(), 1); // nothing but these
}

#[test]
fn the_library_is_of_this_header() {
    // SAFETY: neither takes anything; the text is static.
    let (abi, version) = unsafe {
        let version = core::ffi::CStr::from_ptr(headwater_sys::hw_version());
        (headwater_sys::hw_abi(), version.to_str().expect("a version"))
    };
    assert!(abi >= headwater_sys::HW_ABI);
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}
