//! Exit codes and the last words of a failure.

use std::io;
use std::process::ExitCode;

use linewise_machine::process::Ended;

use crate::say::say;

/// linewise itself failed.
pub(crate) const LINEWISE_FAILED: u8 = 125;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NO_SUCH_COMMAND: u8 = 127;

/// EMFILE.
const TOO_MANY_OPEN_FILES: i32 = 24;

/// The target's own end as an exit code.
pub(crate) fn of_target(ended: Option<Ended>) -> ExitCode {
    match ended {
        Some(Ended::Code(code)) => ExitCode::from(code as u8),
        Some(Ended::Signal(signal)) => ExitCode::from(128u8.wrapping_add(signal as u8)),
        None => ExitCode::SUCCESS,
    }
}

/// An error with its causes, on one line, and what helps against a want of descriptors, which may come anywhere. A cause that
/// the error's own text tells is not told again.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut lacks_descriptors = false;
    let mut cause = Some(error);
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        lacks_descriptors |= error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.raw_os_error() == Some(TOO_MANY_OPEN_FILES));
        cause = error.source();
    }
    if lacks_descriptors && !text.contains("ulimit -n") {
        text.push_str("; allow more open files: ulimit -n 1024");
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
    say(&format!("{}{hint}", chain(error.as_ref())));
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::chain;

    #[test]
    fn a_cause_that_the_text_tells_is_not_told_again() {
        let program = "/etc/passwd".to_owned();
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let told = chain(&linewise_collect::Error::NotExecutable { program, source });
        assert_eq!(told.matches("permission denied").count(), 1, "{told}");
        let told = chain(&io::Error::from_raw_os_error(super::TOO_MANY_OPEN_FILES));
        assert!(told.ends_with("ulimit -n 1024"), "{told}");
        let untold = anyhow::anyhow!("disk full").context("cannot write x");
        assert_eq!(chain(untold.as_ref()), "cannot write x: disk full");
    }
}
