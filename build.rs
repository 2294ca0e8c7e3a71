//! Compiles `proto/` without a protoc install and keeps the descriptor set for gRPC reflection.

use prost::Message;
use std::{env, error::Error, fs, path::PathBuf};

/// Messages that carry a lease token, a payload or a result: they get no `Debug`, so that printing
/// one does not compile and a secret cannot reach a log by accident.
const SECRET_BEARING: &[&str] = &[];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut files: Vec<PathBuf> =
        fs::read_dir("proto/opledger/v1")?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|ext| ext == "proto"));
    files.sort();

    let descriptors = protox::compile(&files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().skip_debug(SECRET_BEARING).compile_fds(descriptors)?;
    Ok(())
}
