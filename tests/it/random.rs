//! Random histories in the language of [`crate::script`], from a printed seed.
//!
//! `OPLEDGER_TEST_SEED=N` repeats a run.

/// SplitMix64: small, seedable, the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// The seed of this run, printed.
pub fn seed(test: &str) -> u64 {
    let from_env = std::env::var("OPLEDGER_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = from_env.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos()) ^ (now.as_secs() << 20)
    });
    println!("{test}: OPLEDGER_TEST_SEED={seed}");
    seed
}

/// A history of one operation.
pub fn history(random: &mut Random, steps: u64) -> Vec<String> {
    let action =
        random.pick(&["pay", "pay", "mail", "same-key", "same-key", "ask", "keep", "brief", "tidy", "gone"]);
    let register = format!("register{}/{action}", random.pick(&["", "!"]));
    let mut history = vec![register.clone()];
    let mut claims = 0;
    for _ in 0..random.below(steps) + 2 {
        let step = step(random, &register, &mut claims);
        history.push(step);
    }
    history
}

fn step(random: &mut Random, register: &str, claims: &mut u64) -> String {
    let token = random.pick(&["1", "1", "1", "2", "2", "3", "9", "c1"]);
    let external = random.pick(&["", ":e1", ":e1", ":e2"]);
    // Mostly a fresh claim id, sometimes one that was used before.
    let mut claim_id = |random: &mut Random| {
        *claims += u64::from(random.below(4) > 0);
        format!("c{claims}")
    };
    match random.below(24) {
        0 => register.to_owned(),
        1 => format!("{register}#2"),
        2 => format!("{register}{}{}", random.pick(&["+", "++"]), claim_id(random)),
        3..=6 => format!("claim:{}", claim_id(random)),
        7..=8 => format!("claim2:{}", claim_id(random)),
        9 => format!("dispatch:{token}"),
        10 => format!("renew:{token}:{}", random.pick(&["10", "60", "600"])),
        11..=12 => format!("ok:{token}{external}"),
        13 => format!("fail:{token}:{}", random.pick(&["E1", "E2"])),
        14..=16 => format!("lost:{token}{external}"),
        17 => {
            let who = random.pick(&["saw", "saw", "op"]);
            let what = random.pick(&["ok", "ok:e1", "ok:e2", "failed"]);
            let by = random.pick(&["", "", "@1", "@2"]);
            format!("{who}-{what}{by}")
        }
        18..=19 => {
            let who = random.pick(&["saw", "saw", "op"]);
            let what = random.pick(&["absent", "absent", "nothing"]);
            let by = random.pick(&["", "", "@1", "@2", "@9", "@c1", "@c2", "?2", "?3", "?4"]);
            format!("{who}-{what}{by}")
        }
        20 => random
            .pick(&[
                "observe",
                "observe",
                "observe",
                "check:P",
                "check:Q",
                "check:R",
                "deliver:P",
                "deliver:Q",
            ])
            .into(),
        _ => format!("wait:{}", random.pick(&["1", "10", "31", "61", "200", "301", "901", "86401"])),
    }
}
