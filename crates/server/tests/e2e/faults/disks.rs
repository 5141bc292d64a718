//! The disk below SQLite is full, cannot be written, fails to flush, or is slow.
//!
//! Full is a real small file system where one may be mounted. Everything else, and full where that is not allowed, is
//! done to the server's system calls by a preloaded library (`testkit::shim`): the same calls fail with the same errors,
//! but what the kernel itself would have kept is not part of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tashika_testkit::gate::until;
use tashika_testkit::shim::{Errno, Shim};
use tempfile::TempDir;

use super::load::{Clients, Load};
use super::town::Town;
use super::{books, seed};
use crate::support::{Server, Setup};

/// How long a fault lasts: the length of the story, not a wait for something.
const FAULT: Duration = Duration::from_secs(3);

/// A small file system of the test's own, unmounted with this value.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    const MIB: usize = 48;

    /// `None` where nothing may be mounted.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={}m", Self::MIB);
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path());
        let mounted = command.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Self { folder })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("filler")
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "bs=4096", "status=none"]);
        let ended = command.arg(format!("of={}", self.file().display())).output().unwrap();
        assert!(!ended.status.success(), "the disk took more than it has");
    }

    fn free(&self) {
        std::fs::remove_file(self.file()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server's files are open until it has ended.
        let ended = Command::new("umount").arg("-l").arg(self.folder.path()).status();
        assert!(ended.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

struct Story {
    load: Arc<Load>,
    setup: Setup,
    server: Server,
    clients: Clients,
    url: String,
}

impl Story {
    async fn begin(folder: &Path, shim: Option<&Shim>) -> Self {
        let seed = seed();
        let load = Arc::new(Load::new(Town::without_keys(seed).await, seed));
        let url = format!("sqlite:{}", folder.join("tashika.db").display());
        let mut setup = load.town.setup(Setup::on(&url));
        for (name, value) in shim.iter().flat_map(|shim| shim.settings()) {
            setup = setup.set(name, value);
        }
        let server = setup.start().await;
        Load::prepare(&server).await;
        load.served_by([&server]);
        let mut clients = load.begin();
        clients.until_more(40).await;
        Self { load, setup, server, clients, url }
    }

    fn refused(&self) -> usize {
        self.load.tally.lock().unwrap().refused.values().sum()
    }

    /// Writes are refused (the load checks how), reading goes on, and the process is well.
    async fn refuses_and_reads(&self) {
        let before = self.refused();
        until("refusals", async || (self.refused() > before + 20).then_some(())).await;
        let shown = self.server.get("/payments?limit=1").await;
        assert_eq!(shown.status, 200, "reading goes on: {shown:?}");
        assert_eq!(self.server.get("/healthz").await.status, 200, "the process itself is well");
        until("/readyz to say no", async || {
            let ready = self.server.get("/readyz").await;
            (ready.status == 503).then(|| ready.is_problem(503, "STORE_UNAVAILABLE"))
        })
        .await;
        tokio::time::sleep(FAULT).await;
    }

    /// By itself, without a restart.
    async fn recovers(&mut self) {
        self.clients.until_more(60).await;
        until("/readyz", async || (self.server.get("/readyz").await.status == 200).then_some(()))
            .await;
    }

    async fn end(self, title: &str) {
        self.clients.finish().await;
        books::balance(title, &self.load, &self.url, &self.server).await;
        self.server.stop().await;
        let verdict = self.setup.print(&["audit", "verify"]).await;
        assert!(verdict.starts_with("intact"), "{verdict}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_and_recovers_sqlite() {
    let Some(disk) = SmallDisk::mount() else {
        println!("nothing may be mounted here: the disk is full by the shim's word");
        return full_by_shim().await;
    };
    let mut story = Story::begin(disk.folder.path(), None).await;
    for _ in 0..2 {
        disk.fill();
        story.refuses_and_reads().await;
        disk.free();
        story.recovers().await;
    }
    // A process that dies on a full disk starts again when there is space.
    disk.fill();
    story.refuses_and_reads().await;
    story.server.kill().await;
    disk.free();
    story.server = story.setup.start().await;
    story.load.served_by([&story.server]);
    story.recovers().await;
    story.end("SQLite on a file system that was full three times").await;
}

async fn full_by_shim() {
    let (shim, folder) = (Shim::build(), tempfile::tempdir().unwrap());
    let mut story = Story::begin(folder.path(), Some(&shim)).await;
    shim.writes_fail(Some(Errno::NoSpace));
    story.refuses_and_reads().await;
    shim.writes_fail(None);
    story.recovers().await;
    story.end("SQLite on a disk that said to be full").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_a_failing_and_a_slow_disk_sqlite() {
    let (shim, folder) = (Shim::build(), tempfile::tempdir().unwrap());
    let mut story = Story::begin(folder.path(), Some(&shim)).await;

    shim.writes_fail(Some(Errno::ReadOnly));
    story.refuses_and_reads().await;
    shim.writes_fail(None);
    story.recovers().await;

    shim.flushes_fail(Some(Errno::InputOutput));
    story.refuses_and_reads().await;
    shim.flushes_fail(None);
    story.recovers().await;

    shim.flushes_take(Duration::from_millis(400));
    story.clients.until_more(40).await;
    shim.flushes_take(Duration::ZERO);
    story.recovers().await;
    assert!(shim.was_used(), "the server writes through the shim");
    story.end("SQLite on a disk that was read-only, failed to flush, and was slow").await;
}
