//! A store is proved when it opens, and told of in full.
mod common;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use common::folder;
use headwater::{ErrorKind, Load, Store, Verify};

/// A copy of the store `keys` under another name.
fn copy(name: &str) -> PathBuf {
    fn copy_all(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, target) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
            if path.is_dir() {
                copy_all(&path, &to.join(target));
            } else {
                fs::copy(&path, to.join(target)).unwrap();
            }
        }
    }
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&made);
    copy_all(&folder().join("keys.store"), &made);
    made
}

/// The largest file of a table has another byte in its middle.
fn damage(store: &Path) -> PathBuf {
    fn files(folder: &Path, found: &mut Vec<(u64, PathBuf)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|kind| kind == "bin") {
                found.push((fs::metadata(&path).unwrap().len(), path));
            }
        }
    }
    let mut found = Vec::new();
    files(store, &mut found);
    let (size, file) = found.into_iter().max().expect("a store has files");
    let mut bytes = fs::read(&file).unwrap();
    bytes[size as usize / 2] ^= 0x40;
    fs::write(&file, bytes).unwrap();
    file
}

#[test]
fn a_sound_store_opens_in_every_way() {
    let path = copy("sound.store");
    for load in [Load::Mmap, Load::Ram] {
        for verify in [Verify::Once, Verify::Once, Verify::Header, Verify::Full] {
            let store = Store::options().load(load).verify(verify).open(&path).unwrap();
            assert_eq!(store.verify(|fault| panic!("{fault}")).unwrap(), 0);
        }
    }
}

#[test]
fn a_damaged_store_is_refused_and_its_faults_are_listed() {
    let path = copy("damaged.store");
    Store::open(&path).unwrap(); // it is sound, which is remembered
    let file = damage(&path);
    let name = file.file_name().unwrap().to_str().unwrap();
    let in_full = Store::options().verify(Verify::Full).open(&path);
    for error in [Store::open(&path).unwrap_err(), in_full.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::BadStore);
        assert!(error.message().contains(name), "{error}");
    }
    let store = Store::options().verify(Verify::Header).open(&path).unwrap();
    let mut faults = Vec::new();
    let count = store.verify(|fault| faults.push(fault.to_owned())).unwrap();
    assert_eq!(faults.len() as u64, count);
    assert!(faults.iter().any(|fault| fault.contains(name)), "{faults:?}");
}

#[test]
fn a_panic_in_a_callback_comes_back_to_the_caller() {
    let path = copy("panic.store");
    damage(&path);
    let store = Store::options().verify(Verify::Header).open(&path).unwrap();
    let mut calls = 0;
    let verify = AssertUnwindSafe(|| {
        store.verify(|_| {
            calls += 1;
            panic!("seen one");
        })
    });
    let panic = catch_unwind(verify).unwrap_err();
    assert_eq!((panic.downcast_ref::<&str>(), calls), (Some(&"seen one"), 1));
    assert!(store.counts().is_ok());
}
