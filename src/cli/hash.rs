//! `opledger hash`: the request hash of a JSON text, so that anyone can check a client's own hash.
//!
//! Exit status: 0, 1 where a text was refused or a read or write failed, 2 where the file cannot be opened.

use crate::fingerprint::{self, Rules};
use std::{
    fmt::Display,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write},
    path::PathBuf,
    process::ExitCode,
};

const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// Options of `opledger hash`.
#[derive(clap::Args)]
pub struct HashArgs {
    /// Print the canonical text (RFC 8785) instead of its hash; a single one without a line end
    #[arg(long)]
    canonical: bool,
    /// Take one JSON text a line, and print one line for each; go on after a refused one
    #[arg(long)]
    lines: bool,
    /// Refuse numbers that are not integers, as the policy's payload.reject_fractions does
    #[arg(long)]
    reject_fractions: bool,
    /// The file to read; "-" is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
}

/// Runs `opledger hash`.
#[must_use]
pub fn run(args: HashArgs) -> ExitCode {
    let (name, input): (String, Box<dyn Read>) = if args.file.as_os_str() == "-" {
        ("stdin".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let name = args.file.display().to_string();
        match File::open(&args.file) {
            Ok(file) => (name, Box::new(file)),
            Err(error) => {
                note(&name, format_args!("cannot be opened: {error}"));
                return USAGE.into();
            }
        }
    };
    let mut job = Job {
        name: &name,
        canonical: args.canonical,
        rules: Rules { reject_fractions: args.reject_fractions, ..Rules::default() },
        out: BufWriter::new(io::stdout().lock()),
    };
    let input = BufReader::with_capacity(1 << 16, input);
    let done = if args.lines { job.each_line(input) } else { job.whole(input) };
    match done.and_then(|accepted| job.out.flush().map(|()| accepted)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => FAILED.into(),
        // The reader of the output has gone (`| head`): nobody to tell.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => FAILED.into(),
        Err(error) => {
            note(&name, error);
            FAILED.into()
        }
    }
}

struct Job<'a, W: Write> {
    name: &'a str,
    canonical: bool,
    rules: Rules,
    out: W,
}

impl<W: Write> Job<'_, W> {
    /// One text: the whole input. False where it is refused.
    fn whole(&mut self, mut input: impl Read) -> io::Result<bool> {
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes)?;
        let accepted = self.text(&bytes, None)?;
        if accepted && !self.canonical {
            self.out.write_all(b"\n")?;
        }
        Ok(accepted)
    }

    /// One text a line. False where one is refused.
    fn each_line(&mut self, mut input: BufReader<impl Read>) -> io::Result<bool> {
        let mut all_accepted = true;
        let mut bytes = Vec::new();
        for number in 1.. {
            // Whoever writes a line and waits for its answer gets it.
            if input.buffer().is_empty() {
                self.out.flush()?;
            }
            bytes.clear();
            if input.read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            let accepted = self.text(bytes.strip_suffix(b"\n").unwrap_or(&bytes), Some(number))?;
            if accepted {
                self.out.write_all(b"\n")?;
            }
            all_accepted &= accepted;
        }
        Ok(all_accepted)
    }

    /// Writes the answer for one text, or says on stderr why there is none.
    fn text(&mut self, bytes: &[u8], line: Option<u32>) -> io::Result<bool> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let name = line.map_or(self.name.to_owned(), |line| format!("{}:{line}", self.name));
                let message = format_args!("not UTF-8 after {} bytes: send UTF-8", error.valid_up_to());
                note(&name, message);
                return Ok(false);
            }
        };
        match fingerprint::canonicalize(text, self.rules) {
            Ok(canonical) if self.canonical => self.out.write_all(canonical.as_bytes())?,
            Ok(canonical) => self.out.write_all(fingerprint::hash_hex(canonical.as_bytes()).as_bytes())?,
            Err(fault) => {
                let place = format!("{}:{}:{}", self.name, line.unwrap_or(fault.line), fault.column);
                note(&place, fault.message());
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Says on stderr what is wrong where. The place is how compilers give it, so that editors find it.
fn note(place: &str, message: impl Display) {
    // Where even stderr is closed, the exit status tells.
    _ = writeln!(io::stderr(), "{place}: {message}");
}
