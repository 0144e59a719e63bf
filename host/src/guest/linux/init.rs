//! The program that is the first process of a guest with stock Linux (`init/` in the repository).

use crate::embedded;
use crate::system::read_regular;
use crate::text::one_line;
use std::borrow::Cow;
use std::env;
use std::path::PathBuf;

/// The environment variable by which developers name another program.
const VARIABLE: &str = "EBB_INIT";
const NAME: &str = "ebb-init";

/// The reason why the program is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error(
        "this ebb was built without the first process of Linux guests (EBB_SKIP_KERNEL), and \
         {} is not there",
        one_line(.0)
    )]
    NotEmbedded(PathBuf),
    #[error("cannot read {}", one_line(path))]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Returns the contents of the program: the file that the environment variable `EBB_INIT` names,
/// else the embedded one, else the file `ebb-init` next to `ebb`. Fails if there is no program or
/// it cannot be read.
pub(crate) fn load() -> Result<Cow<'static, [u8]>, InitError> {
    let read = |path: PathBuf| match read_regular(&path) {
        Ok(bytes) => Ok(Cow::Owned(bytes)),
        Err(source) => Err(InitError::Read { path, source }),
    };
    if let Some(path) = env::var_os(VARIABLE) {
        return read(path.into());
    }
    let embedded = embedded::get().init;
    if !embedded.is_empty() {
        return Ok(Cow::Borrowed(embedded));
    }
    let beside = env::current_exe()
        .ok()
        .and_then(|path| Some(path.parent()?.join(NAME)))
        .unwrap_or_else(|| NAME.into());
    if beside.is_file() {
        read(beside)
    } else {
        Err(InitError::NotEmbedded(beside))
    }
}
