//! Goal: no two different requests hash equal, no request hashes two ways, nothing quotes a text.
//! Method: tables of texts, the RFC's own vectors, random values against a second implementation.

use super::{parse::utf16_order, *};
use proptest::prelude::*;
use serde_json::Value as Json;

const LOOSE: Rules = Rules { reject_fractions: false, strict_numbers: false };

fn strict(text: &str) -> Result<String, Fault> {
    canonicalize(text, Rules::default())
}

/// Text and its canonical form.
const TAKEN: &[(&str, &str)] = &[
    ("null", "null"),
    (" \t\r\n[ true , false ] ", "[true,false]"),
    ("{}", "{}"),
    (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
    (r#"{"aa":1,"a":2,"":3}"#, r#"{"":3,"a":2,"aa":1}"#),
    (r#"{"a":1,"A":2}"#, r#"{"A":2,"a":1}"#),
    (r#"{"\n":1,"\u0001":2}"#, r#"{"\u0001":2,"\n":1}"#),
    // A pair comes before U+FB33 in UTF-16, and after it in UTF-8.
    ("{\"\u{fb33}\":1,\"\u{1f980}\":2}", "{\"\u{1f980}\":2,\"\u{fb33}\":1}"),
    (r#"["\u0061\/\"\\\b\f\n\r\t\u001F"]"#, r#"["a/\"\\\b\f\n\r\t\u001f"]"#),
    (r#""\u007f\u00e9\ud83e\udd80""#, "\"\u{7f}é🦀\""),
    (r#""\u0000""#, r#""\u0000""#),
    // NFC and NFD stay two texts.
    ("[\"\u{e9}\",\"e\u{301}\"]", "[\"\u{e9}\",\"e\u{301}\"]"),
    // What serde_json's arbitrary_precision would take for a number.
    (r#"{"$serde_json::private::Number":"1e5"}"#, r#"{"$serde_json::private::Number":"1e5"}"#),
    ("0", "0"),
    ("-0", "0"),
    ("-0.0e5", "0"),
    ("1.0", "1"),
    ("1e0", "1"),
    ("10E-1", "1"),
    ("-1.50", "-1.5"),
    ("1e2", "100"),
    ("123456789012345", "123456789012345"),
    ("9007199254740991", "9007199254740991"),
    ("-9007199254740991.000", "-9007199254740991"),
    ("0.9007199254740991e16", "9007199254740991"),
    ("4503599627370495.5", "4503599627370495.5"),
    ("0.000001", "0.000001"),
    ("0.0000001", "1e-7"),
    ("5e-324", "5e-324"),
    ("0.1", "0.1"),
    ("0.30000000000000004", "0.30000000000000004"),
    ("0e999999999999999999999999", "0"),
];

/// Text, what is wrong, and where (line, column).
const REFUSED: &[(&str, Kind, (u32, u32))] = &[
    ("", Kind::UnexpectedEnd, (1, 1)),
    (" \n ", Kind::UnexpectedEnd, (2, 2)),
    ("\u{feff}{}", Kind::ByteOrderMark, (1, 1)),
    ("{} x", Kind::TrailingText, (1, 4)),
    ("{}{}", Kind::TrailingText, (1, 3)),
    ("{}\u{b}", Kind::TrailingText, (1, 3)),
    ("1 2", Kind::TrailingText, (1, 3)),
    (r#"{"a":1,"a":1}"#, Kind::DuplicateName, (1, 8)),
    (r#"{"a":1,"\u0061":2}"#, Kind::DuplicateName, (1, 8)),
    ("{\n  \"é\": 1, \"b\": 2,\n  \"é\": 3\n}", Kind::DuplicateName, (3, 3)),
    (r#"{"x":[{"y":{"a":1,"b":2,"a":1}}]}"#, Kind::DuplicateName, (1, 25)),
    (r#"{"b":1,"a":1,"b":1,"a":1}"#, Kind::DuplicateName, (1, 14)),
    (r#"["\ud800"]"#, Kind::LoneSurrogate, (1, 3)),
    (r#"["\udc00"]"#, Kind::LoneSurrogate, (1, 3)),
    (r#"["\udc00\ud800"]"#, Kind::LoneSurrogate, (1, 3)),
    (r#"["\ud800\ud800"]"#, Kind::LoneSurrogate, (1, 3)),
    (r#"["\ud800\n"]"#, Kind::LoneSurrogate, (1, 3)),
    (r#"{"\ud800":1}"#, Kind::LoneSurrogate, (1, 3)),
    (r#"["é\x"]"#, Kind::BadEscape, (1, 4)),
    (r#"["\u12"]"#, Kind::BadEscape, (1, 3)),
    (r#"["\u+123"]"#, Kind::BadEscape, (1, 3)),
    ("[\"\\", Kind::UnexpectedEnd, (1, 4)),
    ("[\"a\n\"]", Kind::ControlCharacter, (1, 4)),
    ("[\"\0\"]", Kind::ControlCharacter, (1, 3)),
    ("\"a", Kind::UnexpectedEnd, (1, 3)),
    ("[1,", Kind::UnexpectedEnd, (1, 4)),
    ("NaN", Kind::BadNumber, (1, 1)),
    ("[-Infinity]", Kind::BadNumber, (1, 2)),
    ("+1", Kind::BadNumber, (1, 1)),
    ("01", Kind::BadNumber, (1, 1)),
    ("-01", Kind::BadNumber, (1, 1)),
    ("-", Kind::BadNumber, (1, 1)),
    ("1.", Kind::BadNumber, (1, 1)),
    (".5", Kind::BadNumber, (1, 1)),
    ("1e", Kind::BadNumber, (1, 1)),
    ("1e+", Kind::BadNumber, (1, 1)),
    ("0x10", Kind::TrailingText, (1, 2)),
    ("1e400", Kind::NumberTooLarge, (1, 1)),
    ("-1e400", Kind::NumberTooLarge, (1, 1)),
    ("1e99999999999999999999", Kind::NumberTooLarge, (1, 1)),
    ("9007199254740992", Kind::UnsafeInteger, (1, 1)),
    ("-9007199254740992", Kind::UnsafeInteger, (1, 1)),
    ("[0, 9007199254740993.0]", Kind::UnsafeInteger, (1, 5)),
    ("18446744073709551616", Kind::UnsafeInteger, (1, 1)),
    ("1e20", Kind::UnsafeInteger, (1, 1)),
    ("1e21", Kind::UnsafeInteger, (1, 1)),
    ("1E30", Kind::UnsafeInteger, (1, 1)),
    ("0.10000000000000000001", Kind::InexactNumber, (1, 1)),
    ("0.30000000000000001", Kind::InexactNumber, (1, 1)),
    ("333333333.33333329", Kind::InexactNumber, (1, 1)),
    ("9007199254740990.9", Kind::InexactNumber, (1, 1)),
    ("1e-400", Kind::InexactNumber, (1, 1)),
    ("-1e-400", Kind::InexactNumber, (1, 1)),
    ("1e-99999999999999999999", Kind::InexactNumber, (1, 1)),
];

/// Text that is no JSON, and where that shows (column).
const NO_JSON: &[(&str, u32)] = &[
    ("{'a':1}", 2),
    (r#"{"a":1,}"#, 8),
    (r#"{"a" 1}"#, 6),
    (r#"{"a":}"#, 6),
    ("{1:2}", 2),
    ("[1,]", 4),
    ("[,1]", 2),
    ("[1 2]", 4),
    ("[1}", 3),
    ("]", 1),
    ("nul", 1),
    ("nan", 1),
    ("True", 1),
    (r#"{"a":1/*x*/}"#, 7),
];

#[test]
fn taken_texts_have_their_canonical_form_which_is_its_own() {
    for (text, canonical) in TAKEN {
        assert_eq!(strict(text).as_deref(), Ok(*canonical), "{text}");
        assert_eq!(strict(canonical).as_deref(), Ok(*canonical), "again: {text}");
        assert_eq!(check(text), Ok(()), "{text}");
    }
}

#[test]
fn refused_texts_are_refused_with_their_place() {
    for (text, kind, place) in REFUSED {
        let fault = strict(text).expect_err(text);
        assert_eq!((fault.kind, (fault.line, fault.column)), (*kind, *place), "{text}");
    }
    for (text, column) in NO_JSON {
        let fault = strict(text).expect_err(text);
        assert!(matches!(fault.kind, Kind::Expected(_)), "{text}: {fault}");
        assert_eq!((fault.line, fault.column), (1, *column), "{text}: {fault}");
    }
}

#[test]
fn check_refuses_all_that_is_not_about_numbers_values() {
    use Kind::{InexactNumber, NumberTooLarge, UnsafeInteger};
    for (text, kind, _) in REFUSED {
        let about_value = matches!(kind, InexactNumber | NumberTooLarge | UnsafeInteger);
        assert_eq!(check(text).is_ok(), about_value, "{text}");
    }
}

#[test]
fn nesting_ends_at_127_levels() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let nested = |levels: usize| {
            let inner = if open == "[" { "" } else { "0" };
            format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
        };
        assert_eq!(strict(&nested(127)), Ok(nested(127)));
        let fault = strict(&nested(128)).expect_err("128 levels");
        assert_eq!((fault.kind, fault.offset), (Kind::TooDeep, 127 * open.len()));
    }
    let fault = strict(&"[".repeat(1_000_000)).expect_err("a million levels");
    assert_eq!(fault.kind, Kind::TooDeep);
    // Side by side is not nested.
    assert!(strict(&format!("[{}[]]", "[],".repeat(1000))).is_ok());
}

#[test]
fn a_very_long_number_is_judged_exactly() {
    let zeros = "0".repeat(100_000);
    assert_eq!(strict(&format!("1.{zeros}")).as_deref(), Ok("1"));
    assert_eq!(strict(&format!("1{zeros}e-100000")).as_deref(), Ok("1"));
    assert_eq!(strict(&format!("0.{zeros}1e100001")).as_deref(), Ok("1"));
    let fault = strict(&format!("1.{zeros}1")).expect_err("not 1");
    assert_eq!(fault.kind, Kind::InexactNumber);
    let fault = strict(&"9".repeat(100_000)).expect_err("beyond a double");
    assert_eq!(fault.kind, Kind::NumberTooLarge);
}

#[test]
fn fractions_are_refused_only_where_the_policy_says_so() {
    for strict_numbers in [true, false] {
        let rules = Rules { reject_fractions: true, strict_numbers };
        for text in ["0", "-5", "1.0", "1.50e1", "100e-2", "0.0", "9007199254740991"] {
            assert!(canonicalize(text, rules).is_ok(), "{text}");
        }
        for text in ["0.5", "1e-1", "15e-1", "-1.01"] {
            assert_eq!(canonicalize(text, rules).expect_err(text).kind, Kind::Fraction, "{text}");
        }
    }
    assert!(strict("0.5").is_ok());
    let hidden = Rules { reject_fractions: true, strict_numbers: false };
    assert_eq!(canonicalize("1e-400", hidden).expect_err("rounds to 0").kind, Kind::Fraction);
}

#[test]
fn no_message_quotes_the_text() {
    let secrets =
        [r#"{"sesame":1,"sesame":2}"#, r#"["sesame\x"]"#, "sesame", "[1,sesame]", r#"{"a":sesame}"#];
    for text in secrets {
        let fault = strict(text).expect_err(text);
        assert!(!format!("{fault} {fault:?}").contains("sesame"), "{fault}");
    }
    let fault = strict("[0, 7777777777777777777]").expect_err("unsafe");
    assert_eq!(
        fault.to_string(),
        "at line 1, column 5: integer beyond +-(2^53 - 1), which some readers would round: send it as a string"
    );
}

#[test]
fn hashes_are_sha256_of_the_canonical_form() {
    let empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!(hash_hex(b"{}"), empty);
    let hash = request_hash(" { } ", Rules::default()).expect("JSON");
    assert_eq!(to_hex(&hash), empty);
}

#[test]
fn the_vectors_of_rfc_8785_pass() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/jcs");
    let read =
        |path: String| std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    for name in ["arrays", "french", "structures", "unicode", "values", "weird"] {
        let input = read(format!("{folder}/input/{name}.json"));
        let output = read(format!("{folder}/output/{name}.json"));
        assert_eq!(canonicalize(&input, LOOSE).as_deref(), Ok(output.as_str()), "{name}");
        let hex: Vec<_> = output.bytes().map(|byte| format!("{byte:02x}")).collect();
        let expected = read(format!("{folder}/outhex/{name}.txt"));
        assert_eq!(hex, expected.split_whitespace().collect::<Vec<_>>(), "{name}");
        if name == "values" {
            // 333333333.33333329 and 1E30 are numbers that another reader could take for others.
            assert_eq!(strict(&input).expect_err(name).kind, Kind::InexactNumber);
        } else {
            assert_eq!(strict(&input), Ok(output), "{name}");
        }
    }
}

/// With `arbitrary_precision` anywhere in the build, serde_json would read a caller's object as a number.
#[test]
fn serde_json_is_built_without_arbitrary_precision() {
    let tree = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "-e", "features", "--all-features", "-i", "serde_json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&tree.stdout);
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    assert!(text.contains("serde_json feature \"default\""), "the tree names features: {text}");
    assert!(!text.contains("arbitrary_precision"), "{text}");
    // And what was built: the same by its behaviour.
    let value: Json = serde_json::from_str(r#"{"$serde_json::private::Number":"1e5"}"#).expect("JSON");
    assert!(value.is_object());
}

#[test]
fn differing_pointers_name_places_and_no_values() {
    let rows: &[(&str, &str, &[&str])] = &[
        (r#"{"a":1,"b":[1,2]}"#, r#"{"b":[1.0,2e0],"a":1}"#, &[]),
        (r#"{"a":1}"#, r#"{"a":2}"#, &["/a"]),
        (r#"{"a":1,"b":2}"#, r#"{"b":3,"c":4}"#, &["/a", "/b", "/c"]),
        (r#"{"a":{"b":[1,{"c":"x"}]}}"#, r#"{"a":{"b":[1,{"c":"y"},3]}}"#, &["/a/b/1/c", "/a/b/2"]),
        (r#"{"a/b":1,"~":1,"":1}"#, r#"{"a/b":2,"~":2,"":2}"#, &["/", "/a~1b", "/~0"]),
        ("1", "2", &[""]),
        (r#""\u0061""#, r#""a""#, &[]),
        ("[null]", "[false]", &["/0"]),
        ("{}", "[]", &[""]),
        ("-0", "0", &[]),
        ("not json", "1", &[]),
    ];
    for (a, b, expected) in rows {
        assert_eq!(differing_pointers(a, b, 10), *expected, "{a} {b}");
        assert_eq!(differing_pointers(b, a, 10), *expected, "{b} {a}");
    }
    assert_eq!(differing_pointers("[1,2,3,4]", "[]", 2), ["/0", "/1"]);
    assert_eq!(differing_pointers("[1]", "[]", 0), [""; 0]);
}

#[test]
fn a_long_pointer_is_cut_to_the_place_that_contains_it() {
    let long = "n".repeat(300);
    let text = |value: &str| format!(r#"{{"a":{{"{long}":{value},"{long}2":{{"x":{value}}},"b":{value}}}}}"#);
    assert_eq!(differing_pointers(&text("1"), &text("1"), 10), [""; 0]);
    assert_eq!(differing_pointers(&text("1"), &text("2"), 10), ["/a/b", "/a"]);
}

#[test]
fn redact_blanks_the_values_and_nothing_else() {
    let text = "{ \"a\" : { \"b\" : [1, \"é\" ,{\"c\":2}] },\n \"d/e\":true, \"f\" : 1.50 }";
    let rows: &[(&[&str], &str)] = &[
        (&[], text),
        (&["/x", "/a/b/9", "/a/b/01", "/a/b/-", "/f/g", "f", "/d~2e"], text),
        (&["/a/b/1"], "{ \"a\" : { \"b\" : [1, null ,{\"c\":2}] },\n \"d/e\":true, \"f\" : 1.50 }"),
        (
            &["/f", "/a/b/2/c"],
            "{ \"a\" : { \"b\" : [1, \"é\" ,{\"c\":null}] },\n \"d/e\":true, \"f\" : null }",
        ),
        (&["/a/b/0", "/a", "/a/b"], "{ \"a\" : null,\n \"d/e\":true, \"f\" : 1.50 }"),
        (&["/d~1e", "/d~1e"], "{ \"a\" : { \"b\" : [1, \"é\" ,{\"c\":2}] },\n \"d/e\":null, \"f\" : 1.50 }"),
        (&[""], "null"),
    ];
    for (pointers, expected) in rows {
        assert_eq!(redact(text, pointers), *expected, "{pointers:?}");
    }
    assert_eq!(redact(r#"{"\u0061":1}"#, &["/a"]), r#"{"\u0061":null}"#, "a name is what it stands for");
    assert_eq!(redact(" [1] ", &[""]), " null ");
    assert_eq!(redact("secret, but no JSON", &["/a"]), "null", "rather nothing than a secret");
}

#[test]
fn pointers_are_told_from_other_texts() {
    for pointer in ["", "/", "/a", "/a~0b~1c", "//", "/0"] {
        assert!(is_pointer(pointer), "{pointer}");
    }
    for other in ["a", "a/b", "/~", "/~2", "#/a", "/a~"] {
        assert!(!is_pointer(other), "{other}");
    }
}

/// Values that canonical JSON can hold.
fn json() -> impl Strategy<Value = Json> {
    let number = prop_oneof![
        any::<i32>().prop_map(Json::from),
        (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Json::from),
        any::<f64>().prop_filter("finite and in range", |value| value.abs() < 9e15).prop_map(Json::from),
        (-1_000_000i32..1_000_000).prop_map(|cents| Json::from(f64::from(cents) / 100.0)),
    ];
    let text =
        || prop_oneof![".{0,8}", any::<String>(), "[\u{e000}-\u{ffff}🦀-🦿a-c\"\\\\\u{0}-\u{1f}]{0,4}"];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        number,
        text().prop_map(Json::from)
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Json::from),
            prop::collection::vec((text(), inner), 0..8).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    // A failing case is shrunk and printed; its seed is kept in proptest-regressions/.
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_form_is_the_one_that_another_implementation_makes(value in json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let canonical = strict(&text.expect("JSON")).expect("accepted");
        prop_assert_eq!(&canonical, &serde_json_canonicalizer::to_string(&value).expect("canonical"));
        prop_assert_eq!(strict(&canonical).expect("accepted"), canonical, "its own canonical form");
    }

    #[test]
    fn any_text_is_refused_or_agreed_upon(text in r#"[\[\]{}:,"\\ a-cu0-9dDeE.+-]{0,24}"#) {
        let ours = canonicalize(&text, LOOSE);
        let theirs = serde_json::from_str::<Json>(&text);
        if let Ok(canonical) = &ours {
            let value = theirs.as_ref().expect("JSON for the other reader too");
            prop_assert_eq!(canonical, &serde_json_canonicalizer::to_string(value).expect("canonical"));
        } else if theirs.is_ok() {
            // The other reader takes the last of two members.
            prop_assert_eq!(ours.as_ref().expect_err("refused").kind, Kind::DuplicateName);
        }
        prop_assert_eq!(check(&text).is_ok(), ours.is_ok() || ours.is_err_and(|f| f.kind == Kind::NumberTooLarge));
    }

    #[test]
    fn accepted_numbers_hash_equal_only_where_they_are_equal(
        digits in "[1-9][0-9]{0,19}", more in "[0-9]{0,2}", point in 0usize..20, exponent in -30i32..30,
    ) {
        let at = point.min(digits.len());
        let (whole, fraction) = digits.split_at(at);
        let whole = if whole.is_empty() { "0" } else { whole };
        let literal = |tail: &str| format!("{whole}.{fraction}{tail}0e{exponent}");
        let (a, b) = (strict(&literal("")), strict(&literal(&more)));
        if let (Ok(a), Ok(b)) = (a, b) {
            prop_assert_eq!(a == b, more.bytes().all(|digit| digit == b'0'));
        }
    }

    #[test]
    fn the_order_is_that_of_utf16(a in "[\u{d000}-\u{ffff}🦀-🦿a-c]{0,3}", b in "[\u{d000}-\u{ffff}🦀-🦿a-c]{0,3}") {
        prop_assert_eq!(utf16_order(&a, &b), a.encode_utf16().cmp(b.encode_utf16()));
    }

    #[test]
    fn equal_values_differ_nowhere_and_others_somewhere(a in json(), b in json()) {
        let (text, pretty) = (a.to_string(), serde_json::to_string_pretty(&a).expect("JSON"));
        prop_assert_eq!(differing_pointers(&text, &pretty, 9), Vec::<String>::new());
        let other = b.to_string();
        let same = strict(&text) == strict(&other);
        prop_assert_eq!(differing_pointers(&text, &other, 9).is_empty(), same);
    }
}
