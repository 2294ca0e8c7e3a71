//! Page tokens: where the next page begins, bound to the filter that the first page had.

use sha2::{Digest, Sha256};

/// A token for the position `at` under `filter`, a text that is the same for the same filter.
pub(super) fn encode(at: &[u8], filter: &str) -> String {
    let mut bytes = at.to_vec();
    bytes.extend_from_slice(&tag(at, filter));
    super::convert::hex(&bytes)
}

/// The position in a token that was made for this filter.
///
/// # Errors
/// What is wrong with it, and what to do.
pub(super) fn decode<const N: usize>(token: &str, filter: &str) -> Result<[u8; N], &'static str> {
    let malformed = "is not a page token of this service: send next_page_token as it came";
    let bytes = unhex(token).filter(|bytes| bytes.len() == N + 8).ok_or(malformed)?;
    let (at, rest) = bytes.split_at(N);
    if rest != tag(at, filter) {
        return Err("belongs to another filter: send the filter of the first page again, or begin anew");
    }
    at.try_into().map_err(|_| malformed)
}

fn tag(at: &[u8], filter: &str) -> [u8; 8] {
    let mut digest = Sha256::new();
    digest.update(b"opledger page 1");
    digest.update(at);
    digest.update(filter);
    let digest = digest.finalize();
    std::array::from_fn(|i| digest[i])
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2)
        || !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_its_filter_and_its_form_only() {
        let token = encode(&[1, 2, 3, 4], "namespace=a");
        assert_eq!(decode::<4>(&token, "namespace=a"), Ok([1, 2, 3, 4]));
        assert!(decode::<4>(&token, "namespace=b").is_err());
        let cut = token[1..].to_owned();
        for bad in ["x", "", "00", "zz00", cut.as_str(), "É"] {
            assert!(decode::<4>(bad, "namespace=a").is_err(), "{bad}");
        }
    }
}
