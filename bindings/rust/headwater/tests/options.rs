//! The setters are the options that C has.
use std::collections::BTreeSet;
use std::ffi::CStr;

use headwater_sys as sys;

/// The names of C's table.
fn of_c() -> BTreeSet<String> {
    // SAFETY: a number; and fields whose size is set, of which names are static.
    unsafe {
        (0..sys::hw_option_field_count())
            .map(|index| {
                let mut field = std::mem::zeroed::<sys::hw_option_field>();
                field.struct_bytes = size_of_val(&field);
                let status = sys::hw_option_field_at(index, &mut field, std::ptr::null_mut());
                assert_eq!(status, sys::HW_OK);
                CStr::from_ptr(field.name).to_str().expect("ASCII").to_owned()
            })
            .collect()
    }
}

#[test]
fn every_option_has_a_setter() {
    let sources = [include_str!("../src/option_table.rs"), include_str!("../src/options.rs")];
    let setters: BTreeSet<String> = sources
        .iter()
        .flat_map(|source| source.split("pub fn ").skip(1))
        .filter(|rest| rest.split(')').next().is_some_and(|head| head.contains("mut self")))
        .map(|rest| rest.split(['<', '(']).next().expect("a name").to_owned())
        .collect();
    assert_eq!(setters, of_c());
}
