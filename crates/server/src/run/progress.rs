//! A bar for work that takes long, on standard error and for people only.
//!
//! Our own, because it is a line that is written again: no threads, no clock, no templates.

use std::io::{IsTerminal as _, Write};

/// Cells of the bar.
const WIDTH: u64 = 30;
/// Without a known end the number is shown again after so many.
const EVERY: u64 = 25;

/// How far some work has come. Where nobody watches, it says nothing.
pub struct Progress {
    what: &'static str,
    /// `None`: nobody knows how much there is.
    total: Option<u64>,
    out: Option<Box<dyn Write + Send>>,
    /// What was shown last, so that the same is not shown again.
    shown: Option<u64>,
}

impl Progress {
    /// Shown if standard error is a terminal.
    #[must_use]
    pub fn of(what: &'static str, total: Option<u64>) -> Self {
        let stderr = std::io::stderr();
        let out = stderr.is_terminal().then(|| Box::new(stderr) as Box<dyn Write + Send>);
        Self::on(what, total, out)
    }

    fn on(what: &'static str, total: Option<u64>, out: Option<Box<dyn Write + Send>>) -> Self {
        Self { what, total: total.filter(|total| *total > 0), out, shown: None }
    }

    /// So much is done.
    pub fn reach(&mut self, done: u64) {
        let Some(out) = &mut self.out else { return };
        // A thousandth more, or some more: what a person can see.
        let step = match self.total {
            Some(total) => done.min(total).saturating_mul(1000) / total,
            None => done / EVERY,
        };
        if self.shown == Some(step) {
            return;
        }
        self.shown = Some(step);
        let line = match self.total {
            Some(total) => {
                let cells = done.min(total) * WIDTH / total;
                let bar: String =
                    (0..WIDTH).map(|cell| if cell < cells { '█' } else { '·' }).collect();
                format!("\r\x1b[K{} {bar} {done}/{total}", self.what)
            }
            None => format!("\r\x1b[K{} {done}", self.what),
        };
        // Whoever closes the terminal does not stop the work.
        let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        if written.is_err() {
            self.out = None;
        }
    }
}

impl Drop for Progress {
    /// The line goes: what came of it is on standard output.
    fn drop(&mut self) {
        if let (Some(out), Some(_)) = (&mut self.out, self.shown) {
            drop(out.write_all(b"\r\x1b[K").and_then(|()| out.flush()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn shown(total: Option<u64>, steps: &[u64]) -> String {
        let screen = Screen::default();
        let mut progress = Progress::on("sent again", total, Some(Box::new(screen.clone())));
        for step in steps {
            progress.reach(*step);
        }
        drop(progress);
        String::from_utf8(screen.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn the_bar_grows_and_goes() {
        let text = shown(Some(4), &[1, 2, 4]);
        assert_eq!(text.matches("\r\x1b[K").count(), 4, "{text:?}");
        assert!(text.contains(&format!("{} 4/4", "█".repeat(30))), "{text}");
        assert!(text.ends_with("\r\x1b[K"), "{text:?}");
    }

    #[test]
    fn what_nobody_could_see_is_not_written() {
        let many: Vec<u64> = (0..=1_000_000).step_by(10).collect();
        assert!(shown(Some(1_000_000), &many).matches('\r').count() <= 1002);
        assert_eq!(shown(None, &[1, 2, 3]).matches('\r').count(), 2);
        assert_eq!(shown(Some(7), &[]), "", "nothing began");
        let beyond = shown(Some(2), &[5]);
        assert!(beyond.contains("5/2"), "more came than was known: {beyond}");
    }

    #[test]
    fn nobody_watches_a_file() {
        let mut progress = Progress::on("sent again", Some(2), None);
        progress.reach(1);
        assert_eq!(progress.shown, None);
    }
}
