//! Another clock and another disk for a server under test, without rights that a test does not have.
//!
//! `shim/shim.c` is built with the C compiler that building Tashika needs anyway, and preloaded into the server. It answers
//! the server's system calls: the wall clock is set, writes and flushes of files fail or take their time. What the kernel
//! itself would do on such a disk is not part of it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

/// Why a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    InputOutput,
    NoSpace,
    ReadOnly,
}

impl Errno {
    /// As Linux counts them.
    const fn number(self) -> i64 {
        match self {
            Self::InputOutput => 5,
            Self::NoSpace => 28,
            Self::ReadOnly => 30,
        }
    }
}

/// Places in the control file, as `struct control` has them.
#[derive(Clone, Copy)]
enum Place {
    ClockOffset,
    WriteErrno,
    FlushErrno,
    FlushDelay,
    Used,
}

const PLACES: usize = 5;

/// The library, and what it shall do. Must live for as long as the servers that it is preloaded into.
pub struct Shim {
    folder: TempDir,
    control: File,
}

impl Shim {
    /// Builds the library; it does nothing yet.
    ///
    /// # Panics
    ///
    /// When there is no C compiler, or no place for temporary files.
    #[must_use]
    pub fn build() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/shim/shim.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
            .arg(folder.path().join("shim.so"))
            .arg(source)
            .arg("-ldl")
            .output()
            .expect("cc runs: building Tashika needs it, too");
        let complaints = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "the shim does not build: {complaints}");
        let path = folder.path().join("control");
        std::fs::write(&path, [0; PLACES * 8]).expect("the control file is written");
        let control = File::options().read(true).write(true).open(path).expect("it was just made");
        Self { folder, control }
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("shim.so")
    }

    /// What the environment of a server must have.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 2] {
        let control = self.folder.path().join("control");
        [
            ("LD_PRELOAD", self.library().display().to_string()),
            ("TASHIKA_SHIM", control.display().to_string()),
        ]
    }

    fn set(&self, place: Place, value: i64) {
        let at = place as u64 * 8;
        self.control.write_all_at(&value.to_ne_bytes(), at).expect("the control file is written");
    }

    /// The wall clock is so many seconds ahead, or behind.
    pub fn clock(&self, offset_sec: i64) {
        self.set(Place::ClockOffset, offset_sec);
    }

    pub fn writes_fail(&self, errno: Option<Errno>) {
        self.set(Place::WriteErrno, errno.map_or(0, Errno::number));
    }

    pub fn flushes_fail(&self, errno: Option<Errno>) {
        self.set(Place::FlushErrno, errno.map_or(0, Errno::number));
    }

    pub fn flushes_take(&self, time: Duration) {
        self.set(Place::FlushDelay, i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    }

    /// Whether any write has come this way: a shim that nobody calls proves nothing.
    #[must_use]
    pub fn was_used(&self) -> bool {
        let mut value = [0; 8];
        self.control.read_exact_at(&mut value, Place::Used as u64 * 8).expect("it can be read");
        i64::from_ne_bytes(value) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(shim: &Shim, line: &str) -> (bool, String) {
        let output = Command::new("sh").args(["-c", line]).envs(shim.settings()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn a_program_sees_another_clock_and_another_disk() {
        let shim = Shim::build();
        let folder = tempfile::tempdir().unwrap();
        let year = || run(&shim, "date +%Y").1.trim().parse::<i64>().unwrap();
        let before = year();
        shim.clock(366 * 24 * 3600);
        assert_eq!(year(), before + 1);
        shim.clock(0);

        let write = format!("echo x > {}/file", folder.path().display());
        assert!(run(&shim, &write).0 && shim.was_used());
        for errno in [Errno::InputOutput, Errno::NoSpace, Errno::ReadOnly] {
            shim.writes_fail(Some(errno));
            assert!(!run(&shim, &write).0, "{errno:?}");
        }
        shim.writes_fail(None);
        let flush = format!("sync {}/file", folder.path().display());
        assert!(run(&shim, &flush).0);
        shim.flushes_fail(Some(Errno::InputOutput));
        shim.flushes_take(Duration::from_millis(1));
        assert!(!run(&shim, &flush).0);
    }
}
