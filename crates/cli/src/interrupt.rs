//! Ending in good order on Ctrl-C or SIGTERM.

/// Does this once when the process is asked to end, and then ends it as that signal would have.
///
/// # Errors
/// When the system does not let us listen.
#[cfg(unix)]
pub(crate) fn before_ending(clean_up: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};

    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        clean_up();
        // It does not return for these signals.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    });
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn before_ending(_: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    Ok(())
}
