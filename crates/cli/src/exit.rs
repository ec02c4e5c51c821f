//! Exit codes and the last words of a failure.

use std::process::ExitCode;

use linewise_machine::process::Ended;

/// linewise itself failed.
pub(crate) const LINEWISE_FAILED: u8 = 125;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NO_SUCH_COMMAND: u8 = 127;

/// The target's own end as an exit code.
pub(crate) fn of_target(ended: Option<Ended>) -> ExitCode {
    match ended {
        Some(Ended::Code(code)) => ExitCode::from(code as u8),
        Some(Ended::Signal(signal)) => ExitCode::from(128u8.wrapping_add(signal as u8)),
        None => ExitCode::SUCCESS,
    }
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Prints a failure as one chain of causes, unless the reader of our output has gone away.
pub(crate) fn report_failure(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    });
    if broken_pipe {
        return ExitCode::SUCCESS;
    }
    let hint = match error.downcast_ref::<linewise_collect::Error>() {
        Some(linewise_collect::Error::Recording(linewise_recording::Error::AlreadyRecorded {
            ..
        })) => " with --force",
        _ => "",
    };
    eprintln!("linewise: {error:#}{hint}");
    use linewise_collect::exact::ExactError;
    let code = match error.downcast_ref::<linewise_collect::Error>() {
        Some(linewise_collect::Error::Exact(ExactError::NoSuchProgram { .. })) => NO_SUCH_COMMAND,
        Some(linewise_collect::Error::Exact(
            ExactError::NotExecutable { .. }
            | ExactError::Architecture { .. }
            | ExactError::Rights { .. },
        )) => NOT_EXECUTABLE,
        Some(linewise_collect::Error::NoSuchProgram { .. }) => NO_SUCH_COMMAND,
        Some(linewise_collect::Error::NotExecutable { .. }) => NOT_EXECUTABLE,
        _ => LINEWISE_FAILED,
    };
    code.into()
}
