//! Progress of long work, on standard error and only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for a known amount of work.
pub(crate) fn bar(what: &'static str, amount: usize) -> ProgressBar {
    styled(
        ProgressBar::new(amount as u64),
        what,
        "{msg:<12} {bar:30} {human_pos}/{human_len} {per_sec} {eta}",
    )
}

/// A line with a running clock for work of unknown length.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    let spinner = styled(ProgressBar::new_spinner(), what, "{spinner} {msg} {elapsed}");
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}

fn styled(bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(what)
}
