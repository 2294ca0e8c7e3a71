//! Recognising a report that is repeated because its answer was lost.

/// What tells one report from another. The lowest bit says whether it is an absence, which may release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportDigest([u8; 16]);

impl ReportDigest {
    /// From a hash of the report's parts.
    #[must_use]
    pub fn new(mut hash: [u8; 16], is_absence: bool) -> Self {
        hash[15] = hash[15] & 0xfe | u8::from(is_absence);
        Self(hash)
    }

    fn is_absence(self) -> bool {
        self.0[15] & 1 == 1
    }
}

/// The reports of one operation whose repeat is recognised: the last one, while nothing else has changed;
/// and an absence for good, because its late repeat must not release an attempt that it knows nothing of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports(Vec<ReportDigest>);

/// Absences remembered. A person, or an executor with its token, makes few.
const KEPT_MAX: usize = 64;

impl Reports {
    /// True where this report was made before.
    #[must_use]
    pub fn contains(&self, digest: ReportDigest) -> bool {
        self.0.contains(&digest)
    }

    /// Something changed: forgets what is only recognised until then.
    pub fn forget_passing(&mut self) {
        self.0.retain(|digest| digest.is_absence());
    }

    /// Remembers this report, if there is one to tell from others.
    pub fn remember(&mut self, digest: Option<ReportDigest>) {
        let Some(digest) = digest.filter(|digest| !self.contains(*digest)) else { return };
        if self.0.len() >= KEPT_MAX {
            self.0.remove(0);
        }
        self.0.push(digest);
    }

    /// Sixteen bytes for each.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|digest| digest.0).collect()
    }

    /// What [`Reports::to_bytes`] gave; none where it cannot be.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (digests, rest) = bytes.as_chunks::<16>();
        rest.is_empty().then(|| Self(digests.iter().copied().map(ReportDigest).collect()))
    }
}
