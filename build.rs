//! Compiles `proto/` without a protoc install and keeps the descriptor set for gRPC reflection.

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor, Value};
use std::{collections::HashSet, env, error::Error, fs, path::PathBuf};

/// The proto package; one Rust module.
const PACKAGE: &str = "opledger.v1";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut files: Vec<PathBuf> =
        fs::read_dir("proto/opledger/v1")?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|ext| ext == "proto"));
    files.sort();

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true).open_files(files)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .skip_debug(secret_bearing(&compiler.descriptor_pool()))
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// Messages with a field marked `debug_redact` (lease tokens and the claim ids that stand for them,
/// payloads, results), and all that contain such a message. They get no `Debug`, so that printing one
/// does not compile and a secret cannot reach a log by accident.
fn secret_bearing(pool: &DescriptorPool) -> HashSet<String> {
    let messages: Vec<_> = pool.all_messages().filter(|message| message.package_name() == PACKAGE).collect();
    let mut secret: HashSet<String> = HashSet::new();
    // Until nothing is added: a holder may come before what it holds.
    loop {
        let before = secret.len();
        for message in &messages {
            if message.fields().any(|field| is_redacted(&field) || holds(&field, &secret)) {
                secret.insert(path(message));
            }
        }
        if secret.len() == before {
            assert!(!secret.is_empty(), "no field is marked debug_redact: are options still read?");
            return secret;
        }
    }
}

fn is_redacted(field: &FieldDescriptor) -> bool {
    let options = field.options();
    options.get_field_by_name("debug_redact").is_some_and(|value| *value == Value::Bool(true))
}

fn holds(field: &FieldDescriptor, secret: &HashSet<String>) -> bool {
    field.kind().as_message().is_some_and(|message| secret.contains(&path(message)))
}

/// The message's name as prost-build wants it.
fn path(message: &MessageDescriptor) -> String {
    format!(".{}", message.full_name())
}
