//! The terminal: a page of its own that is drawn again, keys one by one, and everything put back.

use std::io::{self, Read as _, Write as _};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

use super::frame::Line;

/// Another page, without a cursor; and back to what was there before.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";

/// Until this goes, the terminal shows our page and hands keys over as they are pressed.
pub struct Screen {
    before: Termios,
    out: io::Stdout,
}

impl Screen {
    /// The screen, and the keys that are pressed. Ctrl-C stays a signal.
    pub fn open() -> io::Result<(Self, mpsc::Receiver<u8>)> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let mut screen = Self { before, out: io::stdout() };
        screen.out.write_all(OPEN.as_bytes())?;
        screen.out.flush()?;
        let (send, keys) = mpsc::channel(8);
        // Reading waits for as long as nobody presses anything: on a thread of its own, which ends
        // with the process.
        std::thread::spawn(move || {
            let mut key = [0];
            while matches!(io::stdin().read(&mut key), Ok(1)) && send.blocking_send(key[0]).is_ok()
            {
            }
        });
        Ok((screen, keys))
    }

    /// Draws a page, as much of it as fits.
    pub fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        // Some terminals do not know how large they are.
        let size = tcgetwinsize(&self.out).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (columns, rows) = size.map_or((80, 24), |size| (size.ws_col, size.ws_row));
        self.out.write_all(page(lines, columns.into(), rows.into()).as_bytes())?;
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let out = &mut self.out;
        out.write_all(CLOSE.as_bytes()).and_then(|()| out.flush()).ok();
        // There is nobody left to tell.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).ok();
    }
}

/// Each line is written over the one that was there: nothing flickers.
fn page(lines: &[Line], columns: usize, rows: usize) -> String {
    let mut page = String::from("\x1b[H");
    for (number, line) in lines.iter().take(rows.max(1)).enumerate() {
        if number > 0 {
            page.push_str("\r\n");
        }
        let text: String = line.text.chars().take(columns).collect();
        let (on, off) = if line.strong { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        page.extend([on, &text, off, "\x1b[K"]);
    }
    page.push_str("\x1b[J");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fits_the_terminal() {
        let line = |text: &str, strong| Line { text: text.to_owned(), strong };
        let lines = [line("heading", true), line("a long line", false), line("below", false)];
        let drawn = page(&lines, 6, 2);
        assert_eq!(drawn, "\x1b[H\x1b[1mheadin\x1b[0m\x1b[K\r\na long\x1b[K\x1b[J");
    }
}
