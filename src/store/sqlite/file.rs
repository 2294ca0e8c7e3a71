//! The file behind the connections must stay the one at the path: a file that was moved away or deleted goes
//! on taking writes that the next start would not find.

use crate::store::Error;
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// A file as it was when the store was opened.
pub(super) struct File {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl File {
    /// Remembers which file is at this path.
    pub(super) fn at(path: &Path) -> Result<Self, Error> {
        let found = fs::metadata(path).map_err(|error| unusable(path, &error.to_string()))?;
        if !found.is_file() {
            return Err(Error::schema(format!("{} is no regular file", path.display())));
        }
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// Succeeds while that file is still there.
    pub(super) fn check(&self) -> Result<(), Error> {
        match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            Ok(_) => Err(unusable(&self.path, "another file is there now")),
            Err(error) => Err(unusable(&self.path, &error.to_string())),
        }
    }
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::unavailable(format!(
        "the database file {} was moved, deleted or replaced ({why}): stop the service, put the file and its -wal \
         back, start again",
        path.display()
    ))
}

/// Creates an empty file that only its owner may read, where there is none: it will hold payloads, results and
/// the secrets of leases. SQLite gives its log the same permissions.
pub(super) fn create(path: &Path) -> Result<(), Error> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::schema(format!("cannot create {}: {error}", path.display()))),
    }
}
